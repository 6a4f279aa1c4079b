"""A tied head after an update: exact with the repair, and caught by the proof without it."""

from __future__ import annotations

import pytest

from entr_lab.errors import EngineError
from entr_lab.real.canary import model_logits
from entr_lab.real.self_check import check_behaviour, rehearse_update
from tests.real.engines import PROMPTS, LiveEngine

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("ignore")]


def test_a_tied_head_follows_every_update(tied: LiveEngine) -> None:
    for _ in range(3):
        tied.perturb()
        proof = tied.push()
        assert proof is not None
        assert proof.worst < 1e-4
    found = tied.run(check_behaviour(tied.generator, model_logits(tied.model), PROMPTS))
    assert found.worst < 1e-4


def test_the_proof_catches_vllms_stale_head(tied: LiveEngine) -> None:
    tied.push()
    tied.run(tied.generator.engine.collective_rpc("stock_reload", args=(True,)))
    tied.perturb()
    with pytest.raises(EngineError, match=r"canary \d .*does not use the weights"):
        tied.push()
    # The rehearsal sees it even where the true weights have not moved: the perturbed ones have.
    with pytest.raises(EngineError, match="does not use the weights"):
        tied.run(rehearse_update(tied.generator, tied.sender, tied.model, PROMPTS, tied.version))
    tied.run(tied.generator.engine.collective_rpc("stock_reload", args=(False,)))
    assert tied.run(rehearse_update(tied.generator, tied.sender, tied.model, PROMPTS, tied.version)).worst < 1e-4


def test_weights_that_do_not_cover_the_model_end_the_engine(tied: LiveEngine) -> None:
    tied.push()
    state = tied.model.state_dict()
    state.pop("model.layers.1.self_attn.k_proj.weight")
    tied.version += 1
    manifest = tied.sender.publish(state, tied.version)
    with pytest.raises(EngineError, match=r"do not cover model\.layers\.1\.self_attn\.qkv_proj\.weight"):
        tied.run(tied.generator.update_weights(manifest, True))
    assert tied.generator.dead
