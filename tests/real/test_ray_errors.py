from __future__ import annotations

import pytest

from entr_lab.errors import DataError, EngineError
from entr_lab.real.ray_errors import as_engine_errors

exceptions = pytest.importorskip("ray.exceptions")


def raised(error: Exception) -> Exception:
    with pytest.raises(Exception) as caught, as_engine_errors("it failed in f", "it is gone", "start it again"):
        raise error
    return caught.value


def test_an_error_of_ours_comes_out_as_it_was_raised() -> None:
    cause = DataError("row 3 has no prompt.")
    assert raised(exceptions.RayTaskError("f", "traceback", cause)) is cause


def test_another_error_of_the_call_is_named() -> None:
    found = raised(exceptions.RayTaskError("f", "traceback", KeyError("x")))
    assert isinstance(found, EngineError)
    assert str(found) == "it failed in f: KeyError('x')"


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (exceptions.RaySystemError("first line\nsecond"), "first line"),
        (exceptions.ActorDiedError(), "actor died"),
    ],
)
def test_a_process_that_is_gone_is_one_line_and_says_what_to_do(error: Exception, sentence: str) -> None:
    found = raised(error)
    assert isinstance(found, EngineError)
    assert str(found).startswith("it is gone (")
    assert str(found).endswith("); start it again.")
    assert sentence in str(found)
    assert "\n" not in str(found)


def test_what_is_not_rays_passes() -> None:
    assert isinstance(raised(TypeError("no")), TypeError)
