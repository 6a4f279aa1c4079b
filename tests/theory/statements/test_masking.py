"""The statements of `entr_lab.theory.statements.masking` hold, and the sharp ones are attained."""

import pytest

from entr_lab.theory.statements.masking import STATEMENTS
from tests.theory.statements.checks import check_statement


@pytest.mark.parametrize("name", [statement.id for statement in STATEMENTS])
def test_holds_and_is_attained_where_sharp(name):
    check_statement(name)
