"""A tied head after an update: exact with the repair, and caught by the proof without it."""

from __future__ import annotations

import pytest

from entr_lab.errors import EngineError
from entr_lab.real.canary import canary_reference, model_logits
from entr_lab.real.proof import Proof
from entr_lab.real.self_check import check_behaviour, perturbed
from entr_lab.real.weight_transfer import without_ties
from tests.real.engines import PROMPTS, LiveEngine

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("ignore")]


def rehearse(tied: LiveEngine) -> Proof | None:
    """Send perturbed weights, then the true ones, under the version that the engine has."""
    state = {name: tensor.detach() for name, tensor in tied.model.state_dict(keep_vars=True).items()}
    proof = None
    for weights in (perturbed(state), state):
        reference = canary_reference(model_logits(tied.model, without_ties(weights)), PROMPTS)
        manifest = tied.sender.publish(weights, tied.version, reference)
        try:
            proof = tied.run(tied.generator.update_weights(manifest, True))
        finally:
            tied.sender.release(manifest)
    return proof


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
        rehearse(tied)
    tied.run(tied.generator.engine.collective_rpc("stock_reload", args=(False,)))
    proof = rehearse(tied)
    assert proof is not None
    assert proof.worst < 1e-4


def test_weights_that_do_not_cover_the_model_end_the_engine(tied: LiveEngine) -> None:
    tied.push()
    state = tied.model.state_dict()
    state.pop("model.layers.1.self_attn.k_proj.weight")
    tied.version += 1
    manifest = tied.sender.publish(state, tied.version)
    with pytest.raises(EngineError, match=r"do not cover model\.layers\.1\.self_attn\.qkv_proj\.weight"):
        tied.run(tied.generator.update_weights(manifest, True))
    assert tied.generator.dead
