"""What the proof of an update can tell apart in bfloat16: sound engines, and engines that missed one tensor.

    python bench/real/canary_power.py [--draws 120] [--seed 0]

The engine is the tiny model in bfloat16 under transformers, the trainer the same weights in float32. Sound: both hold
the same weights, perturbed by 0 to 8 % an element. Unsound: the engine kept one tensor of the weights before the
rehearsal's perturbation of 20 %. For four canaries (an update in flight) and sixteen (the rehearsal): the largest
difference of any canary, and the mean without the worst, which is what the proof holds against its tolerance.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from train_runs import write_result

from entr_lab.errors import EngineError
from entr_lab.real.canary import CanaryReference, canary_prompts, canary_reference, model_logits
from entr_lab.real.config_io import load_config
from entr_lab.real.engine_settings import CANARY_TOLERANCE
from entr_lab.real.proof import prove
from entr_lab.real.records import Completion
from entr_lab.real.run import prepare_model
from entr_lab.real.self_check import perturbed

COUNTS = (4, 16)


def answers(reference: CanaryReference) -> list[Completion]:
    """Return what an engine with this distribution answers: its likeliest token and three numbers."""
    return [
        Completion(
            reference.top_ids[place, :1].astype(np.int32),
            reference.top_logp[place, :1],
            reference.entropy[place : place + 1],
            reference.collision[place : place + 1],
            np.array([0]),
            "length",
        )
        for place in range(len(reference.prompts))
    ]


def compare(engine: CanaryReference, trainer: CanaryReference) -> tuple[float, float]:
    """Return the largest difference and the mean without the worst; infinite where the greedy token is unlikely."""
    try:
        proof = prove(trainer, answers(engine), 0, float("inf"))
    except EngineError:
        return float("inf"), float("inf")
    return proof.worst, proof.typical


def summary(found: list[tuple[float, float]]) -> dict[str, Any]:
    """Return quantiles of both statistics."""
    columns: NDArray[np.float64] = np.array(found)
    names = ("largest", "mean_without_worst")
    return {
        name: {
            "least": float(c.min()),
            "median": float(np.median(c)),
            "99 %": float(np.quantile(c, 0.99)),
            "most": float(c.max()),
        }
        for name, c in zip(names, columns.T, strict=True)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    path, facts = prepare_model(load_config(None, []))
    exact = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    rounded = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)
    base = {name: tensor.clone() for name, tensor in exact.state_dict().items()}
    moved = perturbed(base, seed=options.seed)
    tolerance = CANARY_TOLERANCE["bfloat16"]
    result: dict[str, Any] = {"tolerance": tolerance, "draws": options.draws, "tensors": len(base)}
    for count in COUNTS:
        prompts = canary_prompts(facts.vocabulary, count=count)

        def engine(state: dict[str, torch.Tensor], prompts: Any = prompts) -> CanaryReference:
            rounded.load_state_dict({name: tensor.bfloat16() for name, tensor in state.items()})
            return canary_reference(model_logits(rounded), prompts)

        def trainer(state: dict[str, torch.Tensor], prompts: Any = prompts) -> CanaryReference:
            return canary_reference(model_logits(exact, state), prompts)

        sound = []
        for draw in range(options.draws):
            state = perturbed(base, scale=0.02 * (draw % 5), seed=options.seed + draw + 1)
            sound.append(compare(engine(state), trainer(state)))
        reference = trainer(moved)
        unsound = {name: compare(engine({**moved, name: base[name]}), reference) for name in base}
        refused = sum(typical > tolerance or worst > 10 * tolerance for worst, typical in unsound.values())
        wrongly = sum(typical > tolerance or worst > 10 * tolerance for worst, typical in sound)
        result[str(count)] = {
            "sound": summary(sound),
            "one_tensor_missed": summary(list(unsound.values())),
            "refused_of_unsound": refused,
            "refused_of_sound": wrongly,
        }
        print(
            f"{count} canaries: refused {wrongly} of {len(sound)} sound engines, {refused} of {len(base)} that missed"
        )
    print(write_result(__file__, result, options.seed))


if __name__ == "__main__":
    main()
