"""`entr-lab sim`: what it writes, and that bad input is refused before any work."""

import json

import pyarrow.parquet as pq
import pytest

import entr_lab.sim.learning_level as learning_level

SMALL = ("sim", "--staleness", "4", "--updates", "12", "--seeds", "301-302", "--workers", "1")


def test_writes_table_files_and_plots(run_cli, tmp_path):
    out = tmp_path / "run"

    outcome = run_cli(*SMALL, "--methods", "sync-grpo,entr(tau=1.6,eps=0.1)", "--out", str(out))

    assert outcome.code == 0
    assert "staleness 4 = 3 inter + 1 intra" in outcome.out
    assert "entr(tau=1.6,eps=0.1)" in outcome.out
    assert "seeds 301, 302" in outcome.out.replace("\n", " ")
    names = {path.name for path in out.iterdir()}
    assert names == {
        "run.json",
        "updates.parquet",
        "evaluations.parquet",
        "reward.png",
        "entropy_mu.png",
        "masked_frac.png",
        "all_m2.png",
        "kept_ratio_sq.png",
        "plane-entr_tau_1.6_eps_0.1_.png",
    }
    data = json.loads((out / "run.json").read_text())
    assert data["seeds"] == [301, 302]
    assert len(data["runs"]) == 4
    assert data["provenance"]["packages"]["torch"]
    table = pq.read_table(out / "updates.parquet")
    assert table.num_rows == 4 * 12
    assert {"method", "seed", "update", "masked_frac", "all_m2"} <= set(table.column_names)


def test_json_goes_alone_to_stdout(run_cli):
    outcome = run_cli(*SMALL, "--methods", "entr-outward", "--json")

    data = json.loads(outcome.out)
    assert data["comparison"]["rows"][0]["name"] == "entr-outward"
    assert data["scenario"]["lag"]["inter"] == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--staleness", "-1"), "staleness"),
        (("--staleness", "1" + "0" * 30), "staleness"),
        (("--updates", "1" + "0" * 12), "updates"),
        (("--seeds", ""), "--seeds"),
        (("--methods", ""), "--methods"),
        (("--staleness", "x"), "--staleness"),
        (("--inter", "3"), "--intra"),
        (("--inter", "-3", "--intra", "0"), "inter"),
        (("--inter", "3", "--intra", "1", "--staleness", "4"), "one of"),
        (("--seeds", "0"), "--seeds"),
        (("--updates", "0"), "updates"),
        (("--workers", "0"), "--workers"),
        (("--threads", "0"), "--threads"),
        (("--preset", "defualt"), "'default'"),
        (("--surrogate", "ppo"), "'ppo-clip'"),
        (("--methods", "enter"), "'entr'"),
        (("--methods", ","), "--methods"),
        (("--methods", "entr,entr"), "twice"),
        (("--methods", "entr(tau=nan)"), "tau"),
        (("--methods", "entr(taw=1)"), "'tau'"),
        (("--methods", "entr(tau=1"), "cannot read"),
        (("--methods", "entr(tau=big)"), "tau"),
        (("--schedule", "/nowhere/x.json"), "cannot be read"),
        (("--open-loop", "--methods", "entr"), "--methods"),
        (("--open-loop", "--staleness", "0"), "staleness"),
    ],
)
def test_bad_input_exits_2_with_one_sentence_before_any_work(run_cli, monkeypatch, arguments, words):
    monkeypatch.setattr(learning_level, "run_learning", lambda *_, **__: pytest.fail("work was started"))

    outcome = run_cli("sim", *arguments)

    assert outcome.code == 2
    assert words in outcome.err
    assert outcome.out == ""
    assert "Traceback" not in outcome.err


def test_unwritable_out_is_refused_before_any_work(run_cli, monkeypatch, tmp_path):
    monkeypatch.setattr(learning_level, "run_learning", lambda *_, **__: pytest.fail("work was started"))
    (tmp_path / "file").write_text("")

    outcome = run_cli("sim", "--out", str(tmp_path / "file" / "below"))

    assert outcome.code == 2
    assert "cannot be written" in outcome.err
