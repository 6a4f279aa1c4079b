"""What Ray raises, as one sentence of ours: the same for a generator's actor and for the trainer's. Ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from entr_lab.errors import EngineError, EntrLabError

__all__ = ["as_engine_errors"]


@contextmanager
def as_engine_errors(failed: str, gone: str, then: str) -> Iterator[None]:
    """Turn Ray's errors of a call into ours; one that the actor raised itself, if it is ours, comes out unchanged.

    Args:
        failed: what the sentence begins with where the call raised.
        gone: what it begins with where the process cannot be reached.
        then: what to do where it cannot be reached.

    Raises:
        EntrLabError: the actor's own.
        EngineError: any other that Ray raised.
    """
    from ray.exceptions import RayError, RayTaskError

    try:
        yield
    except RayTaskError as error:
        if isinstance(error.cause, EntrLabError):
            raise error.cause from None
        raise EngineError(f"{failed}: {error.cause!r}") from error
    except RayError as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise EngineError(f"{gone} ({reason}); {then}.") from error
