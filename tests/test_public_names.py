"""`__all__`: sorted as ruff's RUF022 sorts, complete, and nothing in it is missing; read from the source alone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "entr_lab").rglob("*.py"))
STRICT = ("rules", "objective", "theory", "pipeline", "testing", "tokens.py", "errors.py", "diagnostics.py")
every_module = pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))


def _exported(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return list(ast.literal_eval(node.value))
    return None


def _defined(tree: ast.Module) -> tuple[set[str], set[str]]:
    """Return names defined in a module, and names that it imports from this package."""
    own, imported = set(), set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.Assign):
            own |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            own.add(node.target.id)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("entr_lab"):
            imported |= {alias.asname or alias.name for alias in node.names}
    return own, imported


def ruff_key(name: str) -> tuple[int, list[tuple[int, int | str]]]:
    """SCREAMING_CASE, then CamelCase, then the rest; digits compare as numbers."""
    group = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    pieces = [piece for piece in re.split(r"(\d+)", name) if piece]
    return group, [(0, int(piece)) if piece.isdigit() else (1, piece) for piece in pieces]


def test_the_sort_key_sorts_as_ruff_documents() -> None:
    names = ["METHODS", "SURROGATES", "Advantage", "Method", "Method2", "Method10", "__version__", "decide", "local"]
    shuffled = ["local", "Method10", "METHODS", "decide", "Advantage", "SURROGATES", "__version__", "Method2", "Method"]
    assert sorted(shuffled, key=ruff_key) == names


@every_module
def test_all_is_sorted_and_free_of_duplicates(path: Path) -> None:
    exported = _exported(ast.parse(path.read_text(encoding="utf-8")))
    if exported is not None:
        assert exported == sorted(set(exported), key=ruff_key)


@every_module
def test_all_names_what_exists(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    own, imported = _defined(tree)
    missing = set(_exported(tree) or []) - own - imported
    assert not missing, f"__all__ of {path.relative_to(ROOT)} names {sorted(missing)}, which it does not define"


@every_module
def test_all_names_everything_public(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    exported = _exported(tree)
    relative = path.relative_to(ROOT / "entr_lab")
    strict = relative.parts[0] in STRICT
    own, imported = _defined(tree)
    if not strict:  # constants and type aliases of the outer layers may stay between a module and its tests
        own = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    if len(relative.parts) == 2 and path.name == "__init__.py":
        own |= imported  # a package's own file is its table of contents
    public = {name for name in own if not name.startswith("_")}
    if exported is None:
        assert not (strict and public), f"{relative} has no __all__"
        return
    forgotten = public - set(exported)
    assert not forgotten, f"__all__ of {relative} lacks {sorted(forgotten)}; export or underscore them"
