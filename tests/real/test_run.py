"""What the run refuses before any process starts; the run itself is tested with an engine (marker `real`)."""

import pytest

pytest.importorskip("transformers")

from entr_lab.errors import ConfigError
from entr_lab.real.config_io import load_config
from entr_lab.real.run import check_supported


def test_the_default_configuration_is_supported():
    check_supported(load_config(None, []))


@pytest.mark.parametrize("setting", ["trainer.processes=2"])
def test_a_setting_that_the_loop_cannot_carry_out_is_refused_by_name(setting):
    with pytest.raises(ConfigError, match=setting.partition("=")[0]):
        check_supported(load_config(None, [setting]))
