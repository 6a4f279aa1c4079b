"""TOML in, settings on top, TOML out; errors in one sentence."""

from datetime import date
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from entr_lab.errors import ConfigError, UnknownNameError
from entr_lab.real.config import RunConfig
from entr_lab.real.config_io import dump_config, load_config

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))


def test_file_and_settings(tmp_path):
    """A setting wins over the file, the file over the default."""
    path = tmp_path / "run.toml"
    path.write_text("seed = 3\n[trainer]\nlearning_rate = 1e-4\nbatches = 7\n[environment.options]\ndigits = 4\n")
    config = load_config(path, ["trainer.batches=9", "environment.options.extra=x", "method.name=entr(tau=1.6)"])

    assert (config.seed, config.trainer.batches, config.trainer.learning_rate) == (3, 9, 1e-4)
    assert config.environment.options == {"digits": 4, "extra": "x"}
    assert config.method.name == "entr(tau=1.6)"


@given(
    st.builds(
        dict,
        seed=st.integers(0, 2**32 - 1),
        environment=st.builds(
            dict,
            name=st.just("noted-sum"),
            options=st.dictionaries(
                st.text('abc_é." ', min_size=1, max_size=5),
                st.one_of(
                    st.integers(-5, 5), st.booleans(), st.text(max_size=9), st.lists(st.integers(0, 3), max_size=3)
                ),
                max_size=3,
            ),
        ),
        trainer=st.builds(dict, learning_rate=st.floats(1e-12, 1.0), batches=st.integers(1, 10**9)),
        asynchrony=st.builds(dict, deadline=st.one_of(st.none(), st.floats(0.5, 1e4))),
    )
)
@settings(deadline=None, max_examples=40)
def test_the_dump_reads_back(tmp_path_factory, tree):
    """Whatever is valid survives the round trip."""
    config = RunConfig.model_validate(tree)
    path = tmp_path_factory.mktemp("dump") / "resolved.toml"
    path.write_text(dump_config(config), encoding="utf-8")

    assert load_config(path) == config


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("trainer.learning_rat=1", "did you mean 'learning_rate'"),
        ("trainr.batches=1", "did you mean 'trainer'"),
        ("qqqq=1", "known: asynchrony"),
    ],
)
def test_unknown_keys(setting, message):
    """The nearest name is offered, else the known ones."""
    with pytest.raises(UnknownNameError, match=message):
        load_config(None, [setting])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "trainer.learning_rate=-1",
            "trainer.learning_rate = -1: input should be greater than 0; correct it in the file, or with --set trainer",
        ),
        ("rollout.max_tokens=100000000000000000000000", r"at most 2\*\*53 = 9007199254740992; correct it"),
        ("model.path=''", "at least 1 character"),
        ("environment.name=''", "at least 1 character"),
        ("cluster.ray_address=''", "at least 1 character"),
        ("seed=1\ntrainer.batches=2", "has a second line with a key of its own; give each key a --set"),
        ("rollout.temperature=nan", "finite"),
        ("rollout.group_size=2.5", "integer"),
        ("asynchrony.mode=asink", "'sync', 'one-step', 'async' or 'exact'"),
        ("trainer=3", "trainer = 3"),
        ("trainer", "write section.key=value"),
        ("=1", "write section.key=value"),
        ("seed.x.y=1", None),
    ],
)
def test_wrong_values(setting, message):
    """Key, value and bound, without a traceback of pydantic's."""
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(None, [setting])
    assert caught.value.__suppress_context__ or caught.value.__cause__ is None
    assert "\n" not in str(caught.value)


def test_a_value_is_not_a_section():
    """`--set seed=1 --set seed.x=2` goes nowhere."""
    with pytest.raises(ConfigError, match="is a value"):
        load_config(None, ["seed=1", "seed.x=2"])


def test_several_mistakes_are_counted():
    """The first is explained, the others are announced."""
    with pytest.raises(ConfigError, match="1 more"):
        load_config(None, ["trainer.batches=0", "rollout.top_p=2"])


@pytest.mark.parametrize(
    ("content", "message"), [(b"a = = 1", "not valid TOML"), (b"\xff\xfe", "not valid TOML"), (None, "cannot read")]
)
def test_files_that_cannot_be_read(tmp_path, content, message):
    """Missing, broken, not text."""
    path = tmp_path / "run.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load_config(path)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_valid(path):
    """Every committed example loads."""
    assert load_config(path)


@pytest.mark.parametrize("value", ["nan", "inf", "1979-05-27", '"\ud800"'])
def test_what_does_not_come_back_from_toml_is_not_written(value):
    """Or the run could never be resumed, or with other options."""
    options = {"x": {"nan": float("nan"), "inf": float("inf"), "1979-05-27": date(1979, 5, 27)}.get(value, "\ud800")}
    config = RunConfig.model_validate({"environment": {"options": options}})
    with pytest.raises(ConfigError, match="does not come back from TOML"):
        dump_config(config)


def test_control_characters_are_escaped(tmp_path):
    config = RunConfig.model_validate({"data": {"path": "a\x7fb\n"}})
    (tmp_path / "c.toml").write_text(dump_config(config))
    assert load_config(tmp_path / "c.toml") == config


@pytest.mark.parametrize("text", ["[" * 5000, "seed = " + "9" * 5000, "seed = ["])
def test_a_file_that_the_parser_chokes_on_is_one_sentence(tmp_path, text):
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(ConfigError):
        load_config(tmp_path / "c.toml")
    with pytest.raises(ConfigError):
        load_config(None, ["seed=" + text.removeprefix("seed = ")])
