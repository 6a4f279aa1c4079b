"""The sections one by one: what they refuse, and what becomes of a method."""

import math

import pytest
from pydantic import ValidationError

from entr_lab.errors import ConfigError
from entr_lab.objective import Denominator
from entr_lab.real import config_sections
from entr_lab.real.config_sections import LogConfig, MethodConfig, RolloutConfig, Section, TrainerConfig

SECTIONS = [getattr(config_sections, name) for name in config_sections.__all__ if name.endswith("Config")]


@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_has_defaults_and_refuses_what_it_does_not_know(section):
    """No key is swallowed."""
    assert issubclass(section, Section)
    assert section() == section.model_validate({})
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        section(learning_rat=1.0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 0.0, "fast"])
def test_a_rate_that_is_none_is_refused(value):
    """NaN and infinity would pass a comparison with a bound."""
    with pytest.raises(ValidationError, match="learning_rate"):
        TrainerConfig(learning_rate=value)


def test_an_unknown_method_is_refused_by_name():
    """When it is built, since the names are known to the objective alone."""
    with pytest.raises(ConfigError, match="entr"):
        MethodConfig(name="entrr").build()


def test_a_method_takes_the_shared_setting():
    """Hyper-parameters in the name; surrogate, denominator and advantage beside it."""
    method = MethodConfig(
        name="entr(tau=1.6,eps=0.1)", surrogate="ppo-clip", denominator="token-mean-kept", advantage="dr-grpo"
    ).build()

    assert (method.rule.tau, method.rule.eps) == (1.6, 0.1)
    assert method.surrogate.name == "ppo-clip"
    assert method.reduction.denominator is Denominator.TOKEN_MEAN_KEPT
    assert method.advantage.value == "dr-grpo"


@pytest.mark.parametrize("value", [0, 16385, 1e9])
def test_seats_that_no_engine_has_are_refused(value):
    """An engine makes room for every seat when it starts."""
    with pytest.raises(ValidationError, match="max_sequences"):
        RolloutConfig(max_sequences=value)


def test_rollouts_may_wait_for_a_seat_or_not():
    assert RolloutConfig(queued=0).queued == 0
    with pytest.raises(ValidationError, match="queued"):
        RolloutConfig(queued=-1)


@pytest.mark.parametrize("value", [True, False])
def test_a_truth_value_is_no_number(value):
    """Though Python says so."""
    with pytest.raises(ValidationError, match="a truth value is not what belongs here"):
        RolloutConfig(max_sequences=value)
    assert LogConfig(traces=value).traces is value


@pytest.mark.parametrize("value", [0.0, 1e9, float("nan")])
def test_a_learning_rate_that_only_a_slip_makes_is_refused(value):
    with pytest.raises(ValidationError, match="learning_rate"):
        TrainerConfig(learning_rate=value)
