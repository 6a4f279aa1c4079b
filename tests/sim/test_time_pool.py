"""The generators as resources: names, accounts, and the reason for being idle."""

from __future__ import annotations

from entr_lab.pipeline import Reason
from entr_lab.sim.time_level import pipeline_config
from entr_lab.sim.time_pool import Pool
from tests.sim.test_time_level import plan


def test_every_generator_is_known_to_the_pipeline_and_has_an_account() -> None:
    case = plan()
    pool = Pool(case, pipeline_config(case), seed=0, timeline=False)
    assert list(pool.pipeline.workers) == pool.names == [account.name for account in pool.accounts]
    assert len(pool.engines) == case.generators == 3


def test_idleness_is_named_after_what_blocks_and_not_while_down() -> None:
    case = plan()
    pool = Pool(case, pipeline_config(case), seed=0, timeline=False)
    pool.blocked = Reason.OLD_GROUPS
    pool.balance.away.add(1)
    pool.mark_all_idle()
    assert [account.state for account in pool.accounts] == ["old-groups", "stragglers", "old-groups"]
    pool.blocked = Reason.STALENESS  # nobody trains, so the bound is reached for want of finished rollouts
    pool.mark_idle(0)
    assert pool.accounts[0].state == "stragglers"
