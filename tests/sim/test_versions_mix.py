"""Version mixture: versions along a trajectory, switch jumps, and the split of δ."""

import math

import pytest
import torch

from entr_lab.errors import RangeError
from entr_lab.sim.logits import BaseLogits, seeded_generator
from entr_lab.sim.versions_mix import VersionMix, attribute, switch_jump

N, VOCAB = 40, 32


def naive_log_softmax(row: list[float]) -> list[float]:
    top = max(row)
    total = math.log(math.fsum(math.exp(x - top) for x in row))
    return [x - top - total for x in row]


@pytest.fixture(scope="module")
def rows():
    generator = seeded_generator(31)
    logits = BaseLogits(vocab=VOCAB).draw(N, generator)
    to_last, to_target = (size * torch.randn(N, VOCAB, generator=generator, dtype=torch.float64) for size in (0.2, 1.5))
    tokens = torch.randint(VOCAB, (N,), generator=generator)
    recorded = -torch.rand(N, generator=generator, dtype=torch.float64) * 5
    return logits, recorded, tokens, to_last, to_target


@pytest.mark.parametrize(("intra", "length"), [(0, 1), (8, 48), (8, 50), (3, 4), (1, 7)])
def test_versions_rise_at_equal_distances(intra, length):
    """⌊(intra + 1) t / length⌋: from 0 to intra, one at a time, segments equal within one token."""
    mix = VersionMix(intra=intra, inter=2)

    versions = mix.token_versions(length).tolist()

    assert versions == [(intra + 1) * t // length for t in range(length)]
    assert (versions[0], versions[-1], mix.target) == (0, intra, intra + 2)
    sizes = [versions.count(version) for version in range(intra + 1)]
    assert max(sizes) - min(sizes) <= 1


def test_impossible_mixtures_are_refused():
    """More versions than tokens, and negative lags."""
    with pytest.raises(RangeError, match="length"):
        VersionMix(intra=8, inter=0).token_versions(8)
    with pytest.raises(RangeError, match="inter"):
        VersionMix(intra=0, inter=-1)


def test_switch_jump_against_a_naive_loop(rows):
    """Σ_y p(y)(log p'(y) − log p(y))², from two log-softmaxes in plain Python."""
    logits, _, _, step, _ = rows

    jump = switch_jump(torch.softmax(logits, -1), step)

    for row, moved, found in zip(logits.tolist(), (logits + step).tolist(), jump.tolist(), strict=True):
        before, after = naive_log_softmax(row), naive_log_softmax(moved)
        expected = math.fsum(math.exp(b) * (a - b) ** 2 for b, a in zip(before, after, strict=True))
        assert found == pytest.approx(expected, rel=1e-9)


def test_parts_are_the_naive_differences_and_telescope(rows):
    """Each part against plain Python, and the sum against δ taken directly, to 1e-12."""
    logits, recorded, tokens, to_last, to_target = rows

    parts = attribute(logits, recorded, tokens, to_last, to_target)

    for i in range(N):
        y = int(tokens[i])
        own = naive_log_softmax(logits[i].tolist())[y]
        last = naive_log_softmax((logits + to_last)[i].tolist())[y]
        target = naive_log_softmax((logits + to_last + to_target)[i].tolist())[y]
        assert parts.mismatch[i].item() == pytest.approx(own - recorded[i].item(), abs=1e-12)
        assert parts.intra[i].item() == pytest.approx(last - own, abs=1e-12)
        assert parts.inter[i].item() == pytest.approx(target - last, abs=1e-12)
        assert parts.total[i].item() == pytest.approx(target - recorded[i].item(), abs=1e-12)


def test_no_drift_leaves_mismatch_alone(rows):
    """Tokens of the last version have no intra part, and without later updates no inter part."""
    logits, recorded, tokens, to_last, _ = rows

    parts = attribute(logits, recorded, tokens, torch.zeros_like(to_last), torch.zeros_like(to_last))

    assert (parts.intra == 0).all()
    assert (parts.inter == 0).all()
    assert torch.equal(parts.total, parts.mismatch)
