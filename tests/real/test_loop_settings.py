"""Defaults that switch things off."""

from entr_lab.real.loop_settings import LoopSettings


def test_nothing_but_training_is_on_unless_asked_for():
    settings = LoopSettings(batches=3, slots=2, max_tokens=5)
    assert (settings.clear_cache, settings.probe_every, settings.save_every) == (False, 0, 0)


def test_a_generator_is_given_those_that_it_plays_and_those_that_wait():
    assert LoopSettings(batches=3, slots=2, max_tokens=5).room == 2
    assert LoopSettings(batches=3, slots=2, queued=3, max_tokens=5).room == 5
