"""Derivation of module 09: the interval between checkpoints, from the derivative of what is lost."""

from math import sqrt

from lib_dlhpc.explore.slides.derivation import Derivation, Step
from lib_dlhpc.prediction.intervals import exact, young
from lib_dlhpc.spec.units import format_quantity as show

SAVE, MTBF = 60.0, 6 * 3600.0  # s
best = sqrt(2 * SAVE * MTBF)
lost = sqrt(2 * SAVE / MTBF)


def at(times: float) -> float:
    """Return the share that is lost at a multiple of the best interval."""
    return SAVE / (times * best) + times * best / (2 * MTBF)


DERIVATIONS = [
    Derivation(
        "Derivation: how often to save",
        [
            Step(
                r"L(\tau) = \frac{\delta}{\tau} + \frac{\tau}{2M}",
                "The share lost: δ seconds of saving each τ, and half of an interval at each failure, once in M.",
            ),
            Step(
                r"L'(\tau) = -\frac{\delta}{\tau^2} + \frac{1}{2M}",
                "A longer interval saves less often, but loses more at each failure.",
            ),
            Step(
                r"\frac{\delta}{\tau^2} = \frac{1}{2M} \;\Rightarrow\; \tau^{*} = \sqrt{2\,\delta M}",
                "The minimum, where both change at the same rate: Young's interval.",
            ),
            Step(
                r"L(\tau^{*}) = \sqrt{\frac{\delta}{2M}} + \sqrt{\frac{\delta}{2M}} = \sqrt{\frac{2\,\delta}{M}}",
                "There, half of what is lost is saving, and half is work that is repeated.",
            ),
            Step(
                r"L(2\,\tau^{*}) = \frac{1}{2} \cdot \frac{L}{2} + 2 \cdot \frac{L}{2} = 1.25\,L(\tau^{*})",
                "Twice the interval halves one half and doubles the other: the minimum is flat.",
            ),
        ],
        f"δ = {show(SAVE, 's')}, M = {show(MTBF, 's')}: save every {show(best, 's')} and lose {lost:.1%}; at twice"
        f" that, {at(2):.1%}. Daly's complete model says {show(float(exact(SAVE, MTBF)), 's')}.",
        "Ask for a guess before the first line: checkpoints of one minute, a failure every six hours, how often? Ask"
        " after the third: four times the nodes, so a quarter of M, what happens to the interval? It halves, and the"
        " loss doubles. Restarts are left out, since no interval changes them. The expansion holds for δ much below M;"
        " Daly's model also counts failures during a checkpoint.",
        best,
        float(young(SAVE, MTBF)),
    )
]
