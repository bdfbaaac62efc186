"""Derivations of module 06: why the rate grows with the batch, and where the trust ratio comes from."""

from lib_dlhpc.explore.large_batch.rules import lars_step
from lib_dlhpc.explore.slides.derivation import Derivation, Step

SMALL, RATE, MOMENTUM, CURVATURE = 32, 0.02, 0.9, 4.0
TRUST, LARGE_RATE, WEIGHTS, GRADIENT = 0.001, 10, 12.0, 0.8
largest = 2 * (1 + MOMENTUM) / (RATE * CURVATURE)


def fastest(momentum: float, curvature: float) -> float:
    """Return the largest rate at which momentum on a parabola does not grow, by simulating it."""
    low, high = 0.0, 10.0 / curvature
    for _ in range(40):
        rate = (low + high) / 2
        x, v = 1.0, 0.0
        for _ in range(2000):
            v = momentum * v + curvature * x
            x -= rate * v
            if abs(x) > 1e6:
                break
        low, high = (rate, high) if abs(x) < 1e3 else (low, rate)
    return low


DERIVATIONS = [
    Derivation(
        "Derivation: linear scaling, and its end",
        [
            Step(
                r"w_{t+k} = w_t - \eta \sum_{j<k}\, g_j(w_{t+j})",
                "k steps of SGD, one small batch each.",
            ),
            Step(
                r"g_j(w_{t+j}) \approx g_j(w_t)",
                "The assumption: the gradient hardly changes on the way.",
            ),
            Step(
                r"w_{t+k} \approx w_t - k\eta \cdot \frac{1}{k} \sum_{j<k}\, g_j(w_t)",
                "Multiplied and divided by k: the mean gradient of a batch k times as large.",
            ),
            Step(r"\eta' = k\,\eta", "So one large step equals k small ones at k times the rate."),
            Step(
                r"\eta' h < 2\,(1 + m) \;\Rightarrow\; k < \frac{2\,(1 + m)}{\eta\,h}",
                "A step with momentum m is stable only so far at curvature h. There linear scaling ends.",
            ),
        ],
        f"Batch {SMALL} at rate {RATE}, m = {MOMENTUM}, h = {CURVATURE:g}: k < {largest:.1f}, so batch"
        f" {SMALL * largest:,.0f} at most, however long the warm-up.",
        "Ask after the second line: when is the assumption worst? At the start, when weights move fast: that is what"
        " warm-up is for. Ask after the fourth: what if gradients are noise only? Then variances add, and the root of"
        " k would keep the noise; Adam uses it. The last line is the wall that the page shows at 32 times the batch.",
        largest * RATE,
        fastest(MOMENTUM, CURVATURE),
    ),
    Derivation(
        "Derivation: the trust ratio of LARS",
        [
            Step(
                r"\lVert \Delta w_i \rVert / \lVert w_i \rVert = \eta\,\lVert g_i \rVert / \lVert w_i \rVert",
                "How far plain SGD moves layer i, relative to it. Layers differ by orders of magnitude.",
            ),
            Step(
                r"\eta_i\,\frac{\lVert g_i \rVert}{\lVert w_i \rVert} = \eta\,\tau",
                "Let each layer move by the same share: each needs a rate of its own.",
            ),
            Step(
                r"\eta_i = \eta\,\lambda_i, \quad \lambda_i = \tau\,\frac{\lVert w_i \rVert}{\lVert g_i \rVert}",
                "Solve: the trust ratio.",
            ),
            Step(
                r"\lambda_i = \tau\,\frac{\lVert w_i \rVert}{\lVert g_i \rVert + \beta\,\lVert w_i \rVert}",
                "With weight decay β the step is along g + βw, no longer than the sum of both.",
            ),
            Step(
                r"\lVert \Delta w_i \rVert \le \eta\,\tau\,\lVert w_i \rVert",
                "So a first step is bounded, however large the gradient.",
            ),
        ],
        f"Rate {LARGE_RATE}, trust {TRUST}: a layer with |w| = {WEIGHTS:g} moves by"
        f" {LARGE_RATE * TRUST * WEIGHTS:.2g}, {LARGE_RATE * TRUST:.0%} of it, at any gradient.",
        "Ask before the second line: which layer limits the rate of plain SGD? The one with the largest ratio of"
        " gradient to weights; all others crawl. Ask after the last: four ranks add their gradients instead of"
        " averaging them, what does LARS show? Nothing, the length of the gradient cancels. Momentum can make later"
        " steps longer than the bound.",
        LARGE_RATE * TRUST * WEIGHTS,
        lars_step(WEIGHTS, GRADIENT, LARGE_RATE, TRUST),
    ),
]
