"""The configuration's models: defaults that fit together, and what becomes of them."""

import subprocess
import sys

import pytest
from pydantic import ValidationError

from entr_lab.pipeline import Admission, Mode, Policy
from entr_lab.real.config import RunConfig


def test_the_defaults_are_possible():
    """No argument, and the demo runs."""
    config = RunConfig()

    assert config.pipeline.batch_groups * config.pipeline.group_size == 64
    assert config.pipeline.admission == Admission.asynchronous(4, 2)
    assert config.method.build().name == "entr"


def test_it_never_changes():
    """A loaded configuration is what the run was started with."""
    with pytest.raises(ValidationError, match="frozen"):
        RunConfig().seed = 3


def test_importing_it_is_light():
    """A command that only checks a file waits for neither torch nor ray."""
    code = "import sys, entr_lab.real.config, entr_lab.real.config_io; print({'torch','ray','vllm'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"mode": "sync"}, Admission.sync()),
        ({"mode": "one-step"}, Admission.one_step()),
        ({"mode": "exact", "max_inter": 22, "max_intra": 8}, Admission.exact(22, 8)),
        (
            {"max_inter": 9, "max_intra": 2, "policy": "drop"},
            Admission.asynchronous(9, 2, policy=Policy.DROP),
        ),
    ],
)
def test_every_mode(section, expected):
    """Each mode becomes the pipeline's admission."""
    config = RunConfig.model_validate({"asynchrony": section, "method": {"name": "async-grpo"}})

    assert config.admission == expected


def test_optimiser_steps_raise_the_bound():
    """Two mini-batches and three epochs are six versions a batch."""
    config = RunConfig.model_validate(
        {"trainer": {"mini_batches": 2, "epochs": 3}, "asynchrony": {"mode": Mode.ONE_STEP}}
    )

    assert config.admission.updates_per_batch == 6
    assert config.admission.max_inter == 11
