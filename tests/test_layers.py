"""The architecture, checked by parsing imports: who may import whom, where heavy packages may appear, twin tests.

errors → tokens → rules → objective, diagnostics, testing ┐
errors → pipeline ────────────────────────────────────────┴→ sim | real → traces → promotion → report → cli
errors → theory ─────────────────────────────────────────────────────────────────────────────┘
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "entr_lab"
MODULES = sorted(PACKAGE.rglob("*.py"))

SPINE = {"errors", "tokens", "rules"}
DRIVEN = SPINE | {"objective", "diagnostics", "pipeline"}
RESULTS = DRIVEN | {"sim", "real", "theory"}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "theory": {"errors"},
    "pipeline": {"errors"},
    "tokens": {"errors"},
    "rules": {"errors", "tokens"},
    "objective": SPINE,
    "diagnostics": SPINE,
    "testing": SPINE,
    "sim": DRIVEN,
    "real": DRIVEN,
    "traces": RESULTS,
    "promotion": RESULTS | {"traces", "testing"},
    "report": RESULTS | {"traces", "promotion"},
    "cli": RESULTS | {"traces", "promotion", "report", "testing"},
}
"""What each part may import besides itself and the version in the package root."""

OUTSIDE: dict[str, set[str]] = {
    "errors": set(),
    "theory": {"numpy", "scipy", "flint"},
    "pipeline": {"pydantic"},
    "tokens": {"torch"},
    "rules": {"torch"},
    "objective": {"torch"},
    "diagnostics": {"torch"},
    "testing": {"torch"},
}
"""What the pure layers may import from outside the standard library."""

HEAVY = {"ray", "vllm", "transformers"}
ENGINE_SIDE = {"real/engine_hook.py", "real/engine_hook_v2.py"}
"""Modules that only the engine's own process imports; nothing in the package may import them when it is imported."""


def _relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


every_module = pytest.mark.parametrize("path", MODULES, ids=_relative)


def _part(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0].removesuffix(".py")


def _imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield (dotted name, line) of every import below a node, function bodies and TYPE_CHECKING blocks included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in line {node.lineno}; write the full name"
            module = node.module or ""
            if module == "entr_lab":  # `from entr_lab import sim` imports the part, not the root
                yield from ((f"entr_lab.{alias.name}", node.lineno) for alias in node.names)
            else:
                yield module, node.lineno


def _top_level(tree: ast.Module) -> Iterator[str]:
    """Yield what runs at import time: not function bodies, not TYPE_CHECKING blocks."""
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (name for name, _ in _imports(node))


def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_every_part_of_the_package_has_a_place() -> None:
    parts = {_part(path) for path in MODULES} - {"__init__"}
    assert parts <= set(MAY_IMPORT), f"give {sorted(parts - set(MAY_IMPORT))} a place in MAY_IMPORT"


def test_the_order_has_no_cycle() -> None:
    done: set[str] = set()
    while len(done) < len(MAY_IMPORT):
        ready = {part for part, needs in MAY_IMPORT.items() if part not in done and needs <= done}
        assert ready, f"cycle among {sorted(set(MAY_IMPORT) - done)}"
        done |= ready


@every_module
def test_imports_follow_the_order(path: Path) -> None:
    part = _part(path)
    allowed = MAY_IMPORT.get(part, set()) | {part, "__version__"}
    for name, line in _imports(_parse(path)):
        head, _, rest = name.partition(".")
        if head == "entr_lab":
            used = rest.split(".")[0]
            assert used in allowed, f"{_relative(path)}:{line} imports {name}; {part} may not use {used}"
        elif part in OUTSIDE and head not in sys.stdlib_module_names:
            assert head in OUTSIDE[part], f"{_relative(path)}:{line} imports {name}, outside what {part} may use"


@every_module
def test_heavy_packages_are_imported_by_the_real_path_only_and_only_inside_functions(path: Path) -> None:
    tree = _parse(path)
    used = {name.split(".")[0] for name, _ in _imports(tree)} & HEAVY
    assert not used or _part(path) == "real", f"{_relative(path)} imports {sorted(used)}"
    at_import = set(_top_level(tree))
    heavy = {name.split(".")[0] for name in at_import} & HEAVY
    assert not heavy or _relative(path) in ENGINE_SIDE, f"{_relative(path)} imports {sorted(heavy)} at once"
    hooks = {f"entr_lab.{name.removesuffix('.py').replace('/', '.')}" for name in ENGINE_SIDE}
    engine_side = {name for name in at_import if name in hooks} if _relative(path) not in ENGINE_SIDE else set()
    assert not engine_side, f"{_relative(path)} imports {sorted(engine_side)} at once; name it to the engine instead"


@every_module
def test_pure_layers_use_no_clock_no_thread_no_log(path: Path) -> None:
    forbidden = {"time", "threading", "asyncio", "logging", "socket", "subprocess", "multiprocessing", "random"}
    if _part(path) in {"errors", "pipeline", "tokens", "rules", "objective", "diagnostics"}:
        used = {name.split(".")[0] for name, _ in _imports(_parse(path))} & forbidden
        assert not used, f"{_relative(path)} imports {sorted(used)}"


@pytest.mark.parametrize(
    "path", [p for p in MODULES if _part(p) != "cli"], ids=lambda path: str(path.relative_to(ROOT))
)
def test_only_the_command_line_prints(path: Path) -> None:
    for node in ast.walk(_parse(path)):
        prints = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
        assert not prints or _part(path) == "cli", f"{_relative(path)}:{node.lineno} prints"


def test_every_module_has_a_twin_test_file() -> None:
    missing = []
    for path in MODULES:
        if path.name == "__init__.py":
            continue
        relative = path.relative_to(PACKAGE)
        twin = ROOT / "tests" / relative.parent / f"test_{relative.name}"
        if not twin.exists():
            missing.append(f"{relative} → {twin.relative_to(ROOT)}")
    assert not missing, "modules without a test file of the same name:\n" + "\n".join(missing)
