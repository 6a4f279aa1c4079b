"""Section B: why entropy is the scale."""

from __future__ import annotations

import numpy as np

from entr_lab.theory import dispersion as dp
from entr_lab.theory import envelope as ev
from entr_lab.theory import extremes as ex
from entr_lab.theory.adversary import Position
from entr_lab.theory.divergence import normalise, second_moment, tilt, variance
from entr_lab.theory.laws import lag_exponent, llm_like_positions, scaling_law
from entr_lab.theory.scalars import Array
from entr_lab.theory.statements.base import Finding, Part, Search, Statement, check_parts, measured, ratio_of

__all__ = ["STATEMENTS"]

_TINY = 1e-290


def _noise_means(seed: int, sigma: float) -> tuple[float, float, float, float]:
    """Mean over i.i.d. noise of Var_μ(η) and of E_μ[δ²], each over σ² G, with standard errors."""
    rng = np.random.default_rng(seed)
    logp = normalise(2 * rng.standard_normal(20))
    noise = sigma * rng.standard_normal((20_000, 20))
    scale = dp.noise_dispersion(logp, sigma)
    dispersion = variance(logp, noise) / scale
    moment = second_moment(logp, tilt(logp, noise)[0]) / scale
    root = np.sqrt(len(noise))
    return dispersion.mean(), dispersion.std() / root, moment.mean(), moment.std() / root


def _b1(how: Search) -> list[Finding]:
    _, _, moment, error = _noise_means(how.seed, 0.01)
    _, _, large, _ = _noise_means(how.seed, 2.0)
    rng = np.random.default_rng(how.seed)
    logp = llm_like_positions(rng, 2000, 256)
    ratio = dp.gini_simpson(logp) / dp.entropy(logp)
    low, high = np.quantile(ratio, [0.05, 0.95])
    law = scaling_law(seed=how.seed)
    return [
        measured("E δ²/(σ² G), σ = 0.01", moment, 1.0, 4 * error, tried=20_000, note=f"at σ = 2 it is {large:.3f}"),
        measured(
            "RMS δ ∝ H^s",
            law.rms,
            0.5,
            0.12,
            tried=8,
            note=f"± {law.rms_half:.3f}; E|δ| ∝ H^{law.mean_abs:.3f} ± {law.mean_abs_half:.3f}; "
            f"G/H is between {low:.2f} and {high:.2f} (5–95 %), so ∝ H is a scale, not an identity",
        ),
    ]


def _b2(how: Search) -> list[Finding]:
    mean, error, _, _ = _noise_means(how.seed, 1.0)
    found = check_parts(
        Part(
            "G ≤ H/(2 ln 2)", lambda p: ratio_of(dp.gini_simpson(p.logp_mu), dp.gini_bound(dp.entropy(p.logp_mu))), True
        )
    )(how)
    return [measured("E Var_μ(η) = σ² G", mean, 1.0, 4 * error, tried=20_000), *found]


def _spread(p: Position) -> tuple[Array, Array, Array]:
    return dp.drift_range(p.drift), dp.entropy(p.logp_mu), variance(p.logp_mu, p.drift)


def _b3_sharp(p: Position) -> Array:
    R, H, var = _spread(p)
    return ratio_of(var, ev.dispersion_bound(R, H), _TINY)


def _b3_simple(p: Position) -> Array:
    R, H, var = _spread(p)
    return ratio_of(var, R**2 * ev.simple_envelope(H), _TINY)


def _b4(which: str) -> Part:
    def ratio(p: Position) -> Array:
        R, H, var = _spread(p)
        delta, kl = tilt(p.logp_mu, p.drift)
        if which == "E δ² ≤ sharp envelope":
            return ratio_of(second_moment(p.logp_mu, delta), ex.second_moment_envelope(R, H), _TINY)
        if which == "E δ² ≤ B3 + B4 + A4":
            return ratio_of(second_moment(p.logp_mu, delta), ex.assembled_moment_bound(R, H), _TINY)
        if which == "KL ≤ R²/8":
            return ratio_of(kl, ex.hoeffding_kl_bound(R), _TINY)
        if which == "KL ≤ log(1 + φ(R) Var)":
            return ratio_of(kl, ex.bennett_kl_bound(R, var), _TINY)
        return ratio_of(kl, ex.kl_envelope(R, H), _TINY)

    return Part(which, ratio, sharp=True)


_B4 = check_parts(
    *(
        _b4(name)
        for name in (
            "KL ≤ R²/8",
            "KL ≤ log(1 + φ(R) Var)",
            "KL ≤ κ(min(h_b⁻¹(H), p*), R)",
            "E δ² ≤ B3 + B4 + A4",
            "E δ² ≤ sharp envelope",
        )
    )
)


def _b5(how: Search) -> list[Finding]:
    found = check_parts(
        Part(
            "R(ΣΔ) ≤ Σ R",
            lambda p: ratio_of(dp.drift_range(p.drift + p.aux), dp.drift_range(p.drift) + dp.drift_range(p.aux)),
            True,
        )
    )(how)
    rng = np.random.default_rng(how.seed)
    logp = normalise(2 * rng.standard_normal(12))
    whole, parts = dp.lag_dispersion(logp, rng.standard_normal((20_000, 6, 12)))
    ratio, error = np.mean(whole) / np.mean(parts), np.std(whole - parts) / np.mean(parts) / np.sqrt(len(whole))
    walk, ballistic = lag_exponent("walk", seed=how.seed), lag_exponent("ballistic", seed=how.seed)
    return [
        *found,
        measured("E Var(ΣΔ) = Σ E Var(Δ)", float(ratio), 1.0, float(4 * error), tried=20_000, note="independent steps"),
        measured("exponent of RMS, walk", walk[0], 0.5, 0.06, tried=8, note=f"95 % interval ± {walk[1]:.3f}"),
        measured("exponent of RMS, ballistic", ballistic[0], 1.0, 0.06, tried=8, note=f"± {ballistic[1]:.3f}"),
    ]


STATEMENTS = (
    Statement(
        "B1",
        "E δ² ≈ σ² Σμ(1−μ) under i.i.d. logit noise, to first order",
        "paper",
        "E δ² = Var + KL², KL² = O(σ⁴)",
        _b1,
    ),
    Statement(
        "B2",
        "E Var_μ(η) = σ² G exactly, and G ≤ H/(2 ln 2)",
        "ours",
        "second moments; split off one token and induct",
        _b2,
        ("entropy_quadratic",),
    ),
    Statement(
        "B3",
        "Var_μ(δ) ≤ R² v(H) ≤ (R²/4) min(1, H/ln 2)",
        "ours",
        "convexity in Δ, vertices, merging; v is convex",
        check_parts(Part("Var ≤ R² v(H)", _b3_sharp, True), Part("Var ≤ (R²/4) min(1, H/ln 2)", _b3_simple, True)),
        ("envelope_convex", "envelope_inverse", "entropy_quadratic"),
    ),
    Statement(
        "B4",
        "KL and E δ² for a drift of range R: Hoeffding, Bennett, and their sharp forms",
        "textbook; sharp forms ours",
        "KL and E δ² are convex in Δ, so two groups are worst",
        _B4,
        ("bennett",),
    ),
    Statement(
        "B5",
        "lag: R ≤ Σ R_j; independent steps add variances",
        "ours",
        "R is a seminorm; cross terms have mean 0",
        _b5,
    ),
)
