"""The verdict: error of the prediction, the term with the largest error, and its likely cause."""

from typing import TYPE_CHECKING

from lib_dlhpc.comparison.load import RESTLESS
from lib_dlhpc.spec.run_only import unpriced
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show

if TYPE_CHECKING:
    from lib_dlhpc.comparison.comparison import Comparison

ALL, MEASURED = "one step", "measured"
NOTABLE = 0.05  # of the measured step; less is not worth a search
# Likely cause if a term was measured longer than predicted, or shorter.
MORE = {
    "forward": "layers run more slowly than their rate predicts, because kernels are small or other processes are"
    " using the cores",
    "backward": "layers run more slowly than their rate predicts, because kernels are small, other processes are"
    " using the cores, or MPI progress takes CPU time from the rank",
    "update": "the update reaches less than memory_bandwidth",
    "waiting for the slowest": "ranks differ by more than the jitter of the machine predicts, or other processes are"
    " using the cores",
    "exposed communication": "messages take longer, or less of their time is hidden, because the link is slower than"
    " in the machine's description, calls cost more than bytes, or ranks wait for a core",
    "pipeline bubble": "stages are unbalanced; try another split, or more microbatches",
    "input stall": "this disk or Python reads samples more slowly than the storage tier predicts, and batches are"
    " assembled while all ranks wait",
    "checkpoint": "writing takes longer than the storage tier predicts",
    "other": "Python takes time between the layers, and a large share of the step if it has few samples",
}
LESS = {
    "forward": "layers are faster than their rate predicts",
    "backward": "layers are faster than their rate predicts",
    "update": "the update runs faster than memory_bandwidth allows, because the weights stay in cache",
    "waiting for the slowest": "ranks differ by less than the jitter of the machine predicts",
    "exposed communication": "messages are faster than the link's latency and bandwidth predict, or more of their"
    " time is hidden",
    "pipeline bubble": "stages wait less than predicted, or their wait was counted as communication",
    "input stall": "batches arrive sooner than the storage tier predicts, because the first ones are read ahead",
    "checkpoint": "a short run writes fewer checkpoints than the prediction assumes on average",
    "other": "there is less time between the layers than predicted",
}


def verdict(of: "Comparison") -> list[str]:
    """Return sentences: the whole step first, then the term with the largest error; or why there is no verdict."""
    if of.no_verdict:
        return [f"No verdict: {of.no_verdict}", *_slowdown(of)]
    sentences = [_whole(of), *_without_core(of), *_slowdown(of), *_spread(of)]
    name, off = worst(of)
    if abs(off) < NOTABLE * of.step[MEASURED]:
        return [*sentences, f"No term is off by more than {NOTABLE:.0%} of the step."]
    sentences.append(_term(of, name, off))
    if of.placed.experiment.machine.measured is None:
        sentences.append("Measure this machine first: `dlhpc calibrate`.")
    return sentences


def worst(of: "Comparison") -> tuple[str, float]:
    """Return the term with the largest error of its prediction, and that error in s (measured - predicted)."""
    off = {
        name: ways.get(MEASURED, 0.0) - ways.get("predicted", 0.0)
        for name, ways in of.terms.items()
    }
    name = max(off, key=lambda each: abs(off[each]))
    return name, off[name]


def _whole(of: "Comparison") -> str:
    errors = {way: of.error(way) for way in of.step if way != MEASURED}
    errors_text = [f"{way} {error:+z.0%}" for way, error in errors.items() if error is not None]
    words = f"Measured {show(of.step[MEASURED], 's')} per step; off by: {', '.join(errors_text)}."
    inside = of.inside()
    if inside is None:
        return words
    low, high = of.bands["predicted"][ALL]
    place = "inside" if inside else "outside"
    return f"{words} It is {place} the 90% band of {show(low, 's')} to {show(high, 's')}."


def _without_core(of: "Comparison") -> list[str]:
    """Report what was excluded from the measured step because other processes had the cores."""
    share, left_out = of.load.core_wait or 0.0, of.load.left_out
    if share < NOTABLE:
        return []
    kept = (
        f"only the {count(of.steps, 'step')} without such waits are compared; {left_out} are excluded"
        if of.placed.ranks > 1
        else "that time is excluded from the measured step"
    )
    return [
        f"Other processes are using this machine: ranks had no core for {share:.0%} of the time; {kept}."
    ]


def _slowdown(of: "Comparison") -> list[str]:
    """Report the slowdown factors of the machine, where probe runs before and after this one measured them."""
    if of.slowdown is None:
        return []
    work, calls = of.slowdown
    return [
        f"Right before and after this run, compute was {work:.2f} times and each call {calls:.2f} times as slow as in"
        " the calibration. Predictions and simulations use these slowdown factors."
    ]


def _spread(of: "Comparison") -> list[str]:
    """Report a large spread of the steps."""
    low, high = of.spread
    if high < RESTLESS * low:
        return []
    return [f"Steps varied from {show(low, 's')} to {show(high, 's')} (10th to 90th percentile)."]


def _term(of: "Comparison", name: str, off: float) -> str:
    ways = of.terms[name]
    measured, predicted = ways.get(MEASURED, 0.0), ways.get("predicted", 0.0)
    share = f"{abs(off) / of.step[MEASURED]:.0%} of the step"
    both = predicted > 0 and measured > 0
    factor = f"{_times(measured / predicted)} times the predicted" if both else "predicted"
    text = f"Largest error: {name}, {show(measured, 's')} measured, {factor} {show(predicted, 's')} ({share})"
    why = (MORE if off > 0 else LESS).get(name)
    if unknown := unpriced(of.placed.experiment):
        why = f"the prediction does not model {', '.join(unknown)}"
    return f"{text}: {why}." if why else f"{text}."


def _times(factor: float) -> str:
    return f"{factor:.1f}" if factor < 100 else f"{factor:,.0f}"
