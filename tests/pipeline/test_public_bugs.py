"""Scenarios of bugs reported against public asynchronous trainers, each handled here.

Every test's docstring says what went wrong there; the numbers are issues and pull requests on GitHub.
"""

from __future__ import annotations

import json
import random

import pytest

from entr_lab.errors import ConfigError, ProtocolError
from entr_lab.pipeline import (
    Admission,
    Batch,
    Done,
    DropBias,
    DropReason,
    Event,
    OnUpdate,
    Outcome,
    Pipeline,
    Policy,
    Prompt,
    Reason,
    Wait,
    encode,
    read_log,
    replay,
)
from tests.pipeline.helpers import finish, ids, load, make, start, step, take

DROP = Admission.asynchronous(1, 1, policy=Policy.DROP)


def reason(answer: object) -> Reason:
    assert isinstance(answer, Wait), answer
    return answer.reason


def through_json(pipeline: Pipeline) -> Pipeline:
    return Pipeline.restore(json.loads(json.dumps(pipeline.snapshot())))


def test_verl_6780_on_policy_settings_equal_sync() -> None:
    """Asynchronous training with staleness 0 should be on-policy, and was not: here it is refused, sync is exact."""
    with pytest.raises(ConfigError, match="use mode sync"):
        Admission.asynchronous(0, 0)
    pipeline = make(prompts=8, batch_groups=2)
    for version in range(4):
        for rollout in start(pipeline, 2):
            finish(pipeline, rollout)
        assert step(pipeline).staleness() == {0: 2}, version


def test_verl_4449_sync_does_not_generate_ahead_while_training() -> None:
    """The "on-policy" mode began the next batch before the update, so it was one step off."""
    pipeline = make(prompts=4)
    finish(pipeline, start(pipeline)[0])
    take(pipeline)
    assert reason(pipeline.dispatch("w", 1, 0.0)) is Reason.STALENESS
    pipeline.publish(1, 0.0)
    assert reason(pipeline.dispatch("w", 1, 0.0)) is Reason.WORKER_VERSION
    pipeline.update("w", 1, 0.0)
    assert start(pipeline)[0].version == 1


def test_tinker_cookbook_822_waiting_trains_on_long_rollouts_too() -> None:
    """Stale groups were discarded, which biases to short rollouts: policy wait holds the trainer back instead."""
    pipeline = make(Admission.asynchronous(1, 1), prompts=9)
    long, short = start(pipeline, 2)
    finish(pipeline, short)
    step(pipeline)
    finish(pipeline, start(pipeline)[0])
    step(pipeline)
    assert pipeline.plan_update("w").held_by == (long.ticket,)
    assert reason(pipeline.dispatch("w", 1, 0.0)) is Reason.STALENESS
    assert reason(pipeline.take()) is Reason.GENERATION
    assert finish(pipeline, long, 0, 1, each=1000) is Outcome.READY
    assert step(pipeline).staleness() == {1: 1000, 2: 1000}
    assert pipeline.counts.dropped.total() == 0


def test_tinker_cookbook_822_the_report_names_the_bias() -> None:
    """The same in numbers: long groups are dropped, the length row says lower, difficulty and source do not."""
    bias, rng = DropBias(), random.Random(1)
    pipeline = make(DROP, closed=bias.add)
    pipeline.add_prompts(Prompt(str(i), rng.choice("ab"), rng.random()) for i in range(300))
    for _ in range(100):
        long, *short = start(pipeline, 3)
        for rollout in short:
            finish(pipeline, rollout, each=rng.randrange(90, 110))
            step(pipeline)
        # Two versions on, tokens of the first one are past the bound.
        assert finish(pipeline, long, each=rng.randrange(900, 1100)) is Outcome.DROPPED
        load(pipeline)
    rows = {row.name: row for row in bias.report()}
    assert pipeline.counts.dropped == {DropReason.STALE: 100}
    assert rows["length"].verdict == "lower"
    assert rows["length"].trained == pytest.approx(100, abs=2)
    assert rows["length"].dispatched == pytest.approx(400, abs=10)
    assert rows["difficulty"].verdict == rows["source=a"].verdict == "not distinguishable"


def test_miles_1697_more_updates_per_batch_count_as_staleness() -> None:
    """Several optimiser steps per rollout silently stacked on the bound: here versions are optimiser steps."""
    with pytest.raises(ConfigError, match="raise max_inter to 3"):
        Admission.asynchronous(2, 2, updates_per_batch=4)
    for bound, groups in ((2, 1), (3, 2)):
        pipeline = make(Admission.asynchronous(bound, 0, policy=Policy.DROP, updates_per_batch=2), prompts=9)
        # The second batch starts from version 2 and its last update from 3: a bound of 2 has no room for it.
        for rollout in start(pipeline, 9):
            finish(pipeline, rollout)
        assert pipeline.ready_groups == groups
        assert [step(pipeline, worker=None).target_version for _ in range(groups)] == [0, 2][:groups]
        assert pipeline.counts.dropped.total() == 0


def test_slime_1800_every_token_has_a_version() -> None:
    """No version control and no bound: here a batch says for every token how stale it is."""
    pipeline = make(DROP, prompts=3)
    slow, quick = start(pipeline, 2)
    finish(pipeline, quick)
    step(pipeline)
    finish(pipeline, slow, 0, 1, each=5)
    batch = take(pipeline)
    assert batch.target_version == 1
    assert batch.staleness() == {0: 5, 1: 5}


@pytest.mark.parametrize(("lag", "outcome"), [(1, Outcome.READY), (2, Outcome.DROPPED)])
def test_prime_rl_1901_the_bound_is_strict_and_not_off_by_one(lag: int, outcome: Outcome) -> None:
    """The bound was not enforced strictly, and off by one: at max_inter a group is used, one version on it is not."""
    pipeline = make(Admission.asynchronous(1, 3, policy=Policy.DROP), prompts=9)
    old, *others = start(pipeline, 4)
    for rollout in others[:lag]:
        finish(pipeline, rollout)
        step(pipeline, worker=None)
    assert finish(pipeline, old) is outcome
    assert pipeline.ready_groups == (outcome is Outcome.READY)


def test_prime_rl_1764_an_update_counts_once() -> None:
    """The off-policy counter went up twice per update: a second publication of one batch is refused."""
    pipeline = make(Admission.asynchronous(4, 0), prompts=9)
    finish(pipeline, start(pipeline)[0])
    take(pipeline)
    with pytest.raises(ProtocolError, match="publishes 1, not 2"):
        pipeline.publish(2, 0.0)
    pipeline.publish(1, 0.0)
    with pytest.raises(ProtocolError, match="without a batch"):
        pipeline.publish(2, 0.0)
    assert pipeline.version == 1


def test_prime_rl_2960_one_long_rollout_does_not_cancel_its_group() -> None:
    """Whole groups of long rollouts were cancelled; here the stale member goes, the others keep their group."""
    admission = Admission.asynchronous(2, 0, policy=Policy.DROP, on_update=OnUpdate.ABORT)
    pipeline = make(admission, prompts=4, group_size=3, min_rollouts=2)
    rollouts = start(pipeline, 6)
    for rollout in rollouts[3:]:
        finish(pipeline, rollout)
    for rollout in rollouts[:2]:
        finish(pipeline, rollout)
    take(pipeline)
    pipeline.publish(1, 0.0)
    pipeline.update("w", 1, 0.0)
    assert [r.ticket for r in pipeline.drain_aborts()] == [rollouts[2].ticket]
    batch = take(pipeline)
    assert [[r.index for r in group.done] for group in batch.groups] == [[0, 1]]


def test_verl_6387_a_failed_rollout_is_no_success() -> None:
    """A rollout failure was reported as successful completion."""
    pipeline = make(prompts=1, max_attempts=2)
    pipeline.exhaust()
    assert pipeline.fail(start(pipeline)[0].ticket, 0.0) is Outcome.RESTARTED
    assert pipeline.fail(start(pipeline)[0].ticket, 0.0) is Outcome.DROPPED
    assert isinstance(pipeline.take(), Done)
    assert (pipeline.counts.finished, pipeline.counts.trained) == (0, 0)
    assert pipeline.counts.dropped == {DropReason.TOO_FEW: 1}


def test_verl_omni_433_a_dead_engine_is_named() -> None:
    """A dead engine was swallowed and the trainer polled the buffer for ever: the wait says that nobody works."""
    pipeline = make(prompts=2)
    start(pipeline)
    assert reason(pipeline.take()) is Reason.GENERATION
    pipeline.lose("w", 0.0)
    assert reason(pipeline.take()) is Reason.NO_WORKERS


def test_nemo_rl_3488_work_of_a_dead_worker_is_done_by_another() -> None:
    """A dead collector left the trainer waiting for hours: its rollouts are started again, before anything new."""
    pipeline = make(prompts=3, group_size=2)
    lost = start(pipeline, 2)
    pipeline.lose("w", 0.0)
    pipeline.join("v", 0)
    again = start(pipeline, 4, worker="v")
    assert {(r.group, r.index) for r in again} == {(r.group, r.index) for r in lost}
    assert finish(pipeline, lost[0]) is Outcome.LATE
    assert [finish(pipeline, r) for r in again] == [Outcome.OPEN, Outcome.READY]


@pytest.mark.parametrize("train_last", [True, False])
def test_nemo_rl_2899_the_end_of_the_data_ends_the_run(train_last: bool) -> None:
    """The end of an epoch dead-locked when what was left did not fill a batch."""
    pipeline = make(Admission.asynchronous(2, 1), prompts=3, batch_groups=2, train_last_partial=train_last)
    pipeline.exhaust()
    for rollout in start(pipeline, 3):
        finish(pipeline, rollout)
    step(pipeline)
    assert reason(pipeline.dispatch("w", 1, 0.0)) is Reason.EXHAUSTED
    if train_last:
        batch = step(pipeline)
        assert (ids(batch), batch.last) == (["p2"], True)
    assert isinstance(pipeline.take(), Done)
    assert pipeline.counts.trained + pipeline.counts.dropped[DropReason.END_OF_DATA] == 3


def test_nemo_rl_3238_a_straggler_does_not_wedge_the_step_again_after_resume() -> None:
    """One straggler wedged a step, and wedged it again after every resume: a deadline settles its group."""
    pipeline = make(prompts=2, group_size=2, min_rollouts=1, deadline=10.0)
    quick, _straggler = start(pipeline, 2)
    finish(pipeline, quick)
    pipeline = through_json(pipeline)
    pipeline.recover(100.0)
    pipeline.join("v", 0)
    straggler = start(pipeline, 1, worker="v", now=100.0)[0]
    assert pipeline.next_deadline == 110.0
    pipeline.expire(109.9)
    assert reason(pipeline.take()) is Reason.GENERATION
    pipeline.expire(110.0)
    assert [r.ticket for r in pipeline.drain_aborts()] == [straggler.ticket]
    assert ids(take(pipeline)) == ["p0"]
    assert finish(pipeline, straggler) is Outcome.LATE


def test_slime_2238_a_slow_trainer_neither_loses_groups_nor_freezes() -> None:
    """Almost every completed group was dropped and the queue could freeze: the bound holds dispatch back instead."""
    pipeline = make(Admission.asynchronous(1, 0), prompts=50, batch_groups=2, buffer_groups=3)
    for _ in range(10):
        while isinstance(got := pipeline.dispatch("w", 1, 0.0), list):
            finish(pipeline, got[0])
        assert pipeline.ready_groups + pipeline.open_groups <= 3
        step(pipeline)
    assert pipeline.counts.trained == 20
    assert pipeline.counts.dropped.total() == 0


def test_openrlhf_1322_a_checkpoint_keeps_buffered_rollouts() -> None:
    """Buffered rollouts of an asynchronous run were lost at a checkpoint."""
    pipeline = make(Admission.asynchronous(2, 0), prompts=5)
    for rollout in start(pipeline, 3):
        finish(pipeline, rollout)
    again = through_json(pipeline)
    again.recover(0.0)
    again.join("v", 0)
    batches = [ids(step(again, worker="v")) for _ in range(3)]
    assert batches == [["p0"], ["p1"], ["p2"]]


def test_nemo_rl_3599_no_prompt_is_skipped_or_repeated_across_restore() -> None:
    """In-flight prompts were skipped at checkpoints, the longest ones first; here each is trained exactly once."""
    pipeline = make(Admission.asynchronous(3, 1), prompts=30, batch_groups=2)
    pipeline.exhaust()
    trained: list[str] = []
    for crash in range(100):
        worker = f"v{crash}"
        pipeline.join(worker, pipeline.version)
        rollouts = start(pipeline, 3, worker=worker) if pipeline.prompts_left or pipeline.open_groups else []
        for rollout in rollouts[: 1 + crash % 3]:
            finish(pipeline, rollout)
        answer = pipeline.take()
        if isinstance(answer, Batch) and crash % 4:
            pipeline.publish(pipeline.version + 1, 0.0)
            trained += ids(answer)
        if isinstance(answer, Done):
            break
        pipeline = through_json(pipeline)
        pipeline.recover(0.0)
    assert sorted(trained) == sorted(f"p{i}" for i in range(30))


def test_trl_5911_resume_goes_on_at_the_next_prompt() -> None:
    """Resume began at prompt 0 again, or skipped what was not trained: the snapshot has the cursor and the queue."""
    pipeline = make(prompts=4)
    finish(pipeline, start(pipeline)[0])
    step(pipeline)
    again = through_json(pipeline)
    again.recover(0.0)
    assert again.counts.prompts == 4
    again.add_prompts([Prompt("p4")])
    again.join("v", 1)
    seen = []
    for _ in range(4):
        finish(again, start(again, worker="v")[0])
        seen += ids(step(again, worker="v"))
    assert seen == ["p1", "p2", "p3", "p4"]


def test_nemo_rl_3480_the_batch_about_to_be_trained_survives() -> None:
    """Resume discarded the batch that was about to be consumed: taken and not published is given out again."""
    pipeline = make(Admission.asynchronous(2, 0), prompts=5, batch_groups=2)
    for rollout in start(pipeline, 3):
        finish(pipeline, rollout)
    lost = take(pipeline)
    again = through_json(pipeline)
    again.recover(0.0)
    batch = take(again)
    assert (batch.step, batch.target_version, ids(batch)) == (lost.step, lost.target_version, ids(lost))
    assert reason(again.take()) is Reason.TRAINING
    again.publish(1, 0.0)
    assert again.counts.trained == 2


def test_verl_7579_a_slow_source_that_vanishes_is_reported() -> None:
    """One slow data set silently fell to zero; the report gives the share of every source, trained and dispatched."""
    bias = DropBias()
    pipeline = make(DROP, closed=bias.add)
    for i in range(60):
        pipeline.add_prompts([Prompt(f"s{i}", "slow"), Prompt(f"f{i}", "fast"), Prompt(f"g{i}", "fast")])
        slow, *fast = start(pipeline, 3)
        for rollout in fast:
            finish(pipeline, rollout)
            step(pipeline)
        finish(pipeline, slow)
        load(pipeline)
    rows = {row.name: row for row in bias.report()}
    assert rows["source=slow"].trained == 0
    assert rows["source=slow"].dispatched == pytest.approx(1 / 3)
    assert rows["source=slow"].verdict == "lower"
    assert rows["source=fast"].verdict == "higher"


def test_verl_7569_staleness_is_weighted_by_tokens() -> None:
    """Staleness was counted per trajectory, so one long stale rollout weighed as much as a short fresh one."""
    pipeline = make(DROP, prompts=4, batch_groups=2)
    long, first, second, short = start(pipeline, 4)
    finish(pipeline, first)
    finish(pipeline, second)
    step(pipeline)
    finish(pipeline, long, 0, each=1000)
    finish(pipeline, short, 1, each=10)
    assert take(pipeline).staleness() == {0: 10, 1: 1000}


def test_skyrl_capacity_rule_alone_does_not_bound_a_sample() -> None:
    """SkyRL and AReaL document that capacity is a rule about sums: a single straggler can exceed the bound.

    Here the same rule gates dispatch, and every trajectory is checked again when it is used.
    """
    pipeline = make(DROP, prompts=20)
    straggler = start(pipeline)[0]
    for _ in range(3):
        finish(pipeline, start(pipeline)[0])
        pipeline.take()
        pipeline.publish(pipeline.version + 1, 0.0)
        plan = pipeline.plan_update("w")
        if plan.version is not None:
            pipeline.update("w", plan.version, 0.0)
        if straggler.ticket not in pipeline.running("w"):
            break
    assert pipeline.counts.dropped[DropReason.STALE] == 1
    assert pipeline.version == 3


def test_areal_558_bound_zero_means_sync_and_says_so() -> None:
    """Users did not know that a bound of 0 turns asynchrony off: here it is not accepted under that name."""
    with pytest.raises(ConfigError, match="raise max_inter to 1"):
        Admission.asynchronous(0, 0)


def test_nemo_gym_775_an_interleaving_can_be_reproduced() -> None:
    """Whether asynchronous rollouts can be reproduced had no answer: the log gives the same batches, in order."""
    log: list[Event] = []
    pipeline = make(Admission.asynchronous(3, 2), prompts=40, batch_groups=2, log=log.append)
    rng, running, batches = random.Random(5), [], []
    while len(batches) < 8:
        if isinstance(got := pipeline.dispatch("w", rng.randrange(1, 4), 0.0), list):
            running += got
        rng.shuffle(running)
        while running and rng.random() < 0.8:
            finish(pipeline, running.pop(), now=rng.random())
        if isinstance(answer := pipeline.take(), Batch):
            batches.append(ids(answer))
            pipeline.publish(pipeline.version + 1, 0.0)
            if not running:
                pipeline.update("w", pipeline.version, 0.0)
    again, replayed = replay(read_log(b"".join(map(encode, log))).events)
    assert [ids(batch) for batch in replayed] == batches
    assert again.snapshot() == pipeline.snapshot()
