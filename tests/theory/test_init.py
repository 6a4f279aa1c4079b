"""The public names: sorted, complete, documented, and light."""

import subprocess
import sys

import entr_lab.theory as theory


def test_all_is_sorted_and_every_name_exists_with_a_docstring():
    by_kind = sorted(theory.__all__, key=lambda n: (not n.isupper(), not n[0].isupper(), n))
    assert theory.__all__ == by_kind  # constants, classes, functions
    for name in theory.__all__:
        item = getattr(theory, name)
        assert not callable(item) or item.__doc__, name


def test_theory_loads_neither_torch_nor_any_layer_above_it():
    code = (
        "import sys, entr_lab.theory, entr_lab.theory.checks, entr_lab.theory.statements;"
        "bad = [m for m in sys.modules if m == 'torch' or m.startswith('entr_lab.')"
        " and not m.startswith('entr_lab.theory') and m != 'entr_lab.errors'];"
        "print(bad)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
