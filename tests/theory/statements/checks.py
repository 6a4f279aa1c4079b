"""What every statement must pass: it holds, its numbers are finite, and it reaches equality where it says sharp."""

import numpy as np

from entr_lab.theory import statements as st

HOW = st.Search(1, 120, np.inf)


def check_statement(name: str) -> None:
    """Search for the worst instance of a statement and judge what was found."""
    findings = st.STATEMENTS[name].check(HOW)
    assert findings
    for found in findings:
        assert found.holds, found
        assert not found.sharp or found.worst >= 0.999, found
        assert np.isfinite(found.worst)
