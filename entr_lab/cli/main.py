"""The entry point: one command a module, and errors as one sentence with exit code 2."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from entr_lab import __version__
from entr_lab.cli.plan import plan
from entr_lab.cli.rules import rules
from entr_lab.cli.sim import sim
from entr_lab.cli.theory import theory
from entr_lab.cli.train import train
from entr_lab.errors import EntrLabError

__all__ = ["app", "main"]

app = typer.Typer(
    name="entr-lab",
    help="Which keep rule survives the staleness of your asynchronous RL run: by proof, by simulation, by training.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"entr-lab {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command()(sim)
app.command()(theory)
app.command()(plan)
app.command()(train)
app.command()(rules)


def main() -> None:
    """Run the command line; an error that the package raises on purpose becomes one sentence and exit code 2."""
    try:
        app()
    except EntrLabError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted; nothing more was written.", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader went away; Python would complain at exit otherwise
        sys.exit(0)
