"""Seeds, lists, strict JSON and the output folder."""

import json
import math
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from entr_lab.cli.common import parse_seeds, prepare_out, split_list, strict_json, write_json
from entr_lab.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "seeds"), [("3", [0, 1, 2]), ("100-102", [100, 101, 102]), ("3,5,9-10", [3, 5, 9, 10]), ("7,", None)]
)
def test_seeds(text, seeds):
    if seeds is None:
        with pytest.raises(ConfigError, match="--seeds"):
            parse_seeds(text)
    else:
        assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["0", "-1", "nan", "1.5", "", "5-3", "1,1", "1-99999", "3,a"])
def test_bad_seeds_are_refused_by_name(text):
    with pytest.raises(ConfigError, match="--seeds"):
        parse_seeds(text)


def test_lists_split_outside_parentheses():
    assert split_list("entr(tau=1.6,eps=0.1), icepop,,m2po") == ["entr(tau=1.6,eps=0.1)", "icepop", "m2po"]


def test_json_has_no_nan_and_takes_arrays_and_dataclasses():
    @dataclass
    class Row:
        values: np.ndarray
        note: str

    data = json.loads(strict_json({"row": Row(np.array([1.0, math.nan, math.inf]), "ε")}))

    assert data == {"row": {"values": [1.0, None, None], "note": "ε"}}


def test_out_is_created_and_an_occupied_one_refused_untouched(tmp_path):
    fresh = prepare_out(tmp_path / "a" / "b")
    write_json(fresh / "run.json", {"x": 1})

    with pytest.raises(ConfigError, match="already holds files"):
        prepare_out(fresh)

    assert json.loads((fresh / "run.json").read_text()) == {"x": 1}


def test_out_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")

    with pytest.raises(ConfigError, match="cannot be written"):
        prepare_out(tmp_path / "file")

    assert (tmp_path / "file").read_text() == "mine"


def test_the_out_of_a_running_command_is_refused_until_it_ends(tmp_path):
    script = (
        "import sys; from pathlib import Path; from entr_lab.cli.common import prepare_out\n"
        "prepare_out(Path(sys.argv[1])); print('mine', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"mine\n"

        with pytest.raises(ConfigError, match="still running"):
            prepare_out(tmp_path)

        other.kill()
    assert prepare_out(tmp_path) == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_no_out_means_no_folder():
    assert prepare_out(None) is None


@pytest.mark.parametrize("text", ["²", "٣", "9" * 5000, "3," + "9" * 5000, "3,٤²"])
def test_digits_that_are_no_seeds_are_refused(text):
    with pytest.raises(ConfigError, match="--seeds"):
        parse_seeds(text)
