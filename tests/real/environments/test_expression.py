"""The calculator's language against Python's own arithmetic on fractions, and its bounds."""

from contextlib import suppress
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entr_lab.real.environments.expression import ExpressionError, evaluate, format_number, operators


@st.composite
def trees(draw, depth=3):
    """An expression as (text, value, operators); values are computed on the tree, never from the text."""
    if depth == 0 or draw(st.booleans()):
        number = draw(st.integers(0, 99))
        return str(number), Fraction(number), 0
    left, x, n = draw(trees(depth=depth - 1))
    right, y, m = draw(trees(depth=depth - 1))
    sign = draw(st.sampled_from("+-*/"))
    if sign == "/" and y == 0:
        sign = "+"
    value = {"+": x + y, "-": x - y, "*": x * y, "/": x / y if y else None}[sign]
    space = draw(st.sampled_from(["", " "]))
    return f"({left}){space}{sign}{space}({right})", value, n + m + 1


@given(trees())
def test_value_and_operators_of_any_tree(tree):
    """Fully parenthesised expressions have the value of their tree."""
    text, value, count = tree

    assert evaluate(text) == value
    assert operators(text) == count


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2+3*4", 14),
        ("2*3+4", 10),
        ("10-3-2", 5),
        ("100/10/5", 2),
        ("-3+5", 2),
        ("2*-3", -6),
        ("--4", 4),
        ("0.1+0.2", Fraction(3, 10)),
        (" 7 ", 7),
    ],
)
def test_precedence_and_signs(text, value):
    """Products bind tighter, equal operators associate to the left, decimals are exact."""
    assert evaluate(text) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("1+", "at the end"),
        ("1 2", "unexpected"),
        ("(1", "not closed"),
        ("1)", "unexpected"),
        ("1/0", "division by zero"),
        ("1/(2-2)", "division by zero"),
        ("2**3", "before '\\*'"),
        ("__import__('os')", "cannot read"),
        ("1e9", "cannot read"),
        ("٣+1", "cannot read"),
        ("+".join("1" * 101), "longer"),
        ("(" * 40 + "1" + ")" * 40, "nested"),
        ("-" * 100 + "1", "nested"),
        ("*".join(["9" * 60] * 3), "too large"),
    ],
)
def test_refusals(text, message):
    """Nothing but arithmetic, and no more of it than the bounds allow."""
    with pytest.raises(ExpressionError, match=message):
        evaluate(text)


@given(st.text(max_size=60))
def test_any_text_gives_a_number_or_a_refusal(text):
    """No input makes the parser fail in another way."""
    with suppress(ExpressionError):
        assert isinstance(evaluate(text), Fraction)


def test_numbers_are_written_as_a_reader_expects():
    """Integers as such, fractions as decimals."""
    assert format_number(Fraction(-6)) == "-6"
    assert format_number(Fraction(1, 4)) == "0.25"
    assert format_number(Fraction(1, 3)) == "0.3333333333"
