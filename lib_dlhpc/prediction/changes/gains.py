"""Choices that do not pay: formats, and cuts into stages, beside which another is faster in the same run.

Each other value is predicted as `what_if` sets it. One that drops a measured rate cannot be compared, and one that does
not fit is no choice.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from lib_dlhpc.costs.roofline import peak_rate
from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction.breakdown import Breakdown
from lib_dlhpc.prediction.step import predict
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import FP8, NARROW, SAME, STAGE_CUTS
from lib_dlhpc.spec.units import format_quantity as show

WORTH = 0.005  # of a step; less is no gain
CASTS = "; casts take more time than the faster matmuls save"
SHORTER = "; casts take more time than the shorter messages save"


def without_gain(p: Breakdown) -> list[str]:
    """Return a sentence for each format, or cut into stages, of a scalar prediction that another value outdoes."""
    found = []
    for key, others, why in _choices(p.experiment):
        faster = [
            (float(there.step_time), other) for other in others if (there := _with(p, key, other))
        ]
        step, best = min(faster, default=(np.inf, ""))
        saved = 1 - step / float(p.step_time)
        if saved < WORTH:
            continue
        now = getattr(p.experiment.strategy, key)
        head = f"strategy.{key} = {now!r} does not pay here: with {best!r}"
        if key == "stage_cut" and best == "work":
            head = f"{_longest(p.experiment)} With strategy.stage_cut = 'work'"
        found.append(f"{head} a step takes {show(step, 's')}, {saved:.1%} less{why}.")
    return found


def _choices(experiment: Experiment) -> Iterator[tuple[str, list[str], str]]:
    """Yield fields of the strategy that may not pay, their other values, and why these may be faster."""
    s, device = experiment.strategy, experiment.machine.device
    if s.precision in NARROW:
        wider = [each for each in ("bf16", FP8) if each != s.precision]
        yield "precision", [each for each in wider if np.isfinite(peak_rate(device, each))], CASTS
    for key in ("wire", "expert_wire"):
        if getattr(s, key) != SAME:
            yield key, [SAME], SHORTER
    if s.pipeline > 1:
        yield "stage_cut", [each for each in STAGE_CUTS if each != s.stage_cut], ""


def _with(p: Breakdown, key: str, value: Any) -> Breakdown | None:
    """Return the prediction with another value; None where it is not legal, does not fit, or cannot be compared."""
    from lib_dlhpc.prediction.what_if import what_if  # not imported where nothing is chosen

    try:
        there = what_if(p.experiment, {f"strategy.{key}": value})
        found = predict(there)
    except SpecError:
        return None
    measured, kept = p.experiment.calibration, there.calibration
    alike = bool(measured.rate) == bool(kept.rate) and measured.compute_scale == kept.compute_scale
    return found if alike and (found.fits or not p.fits) else None


def _longest(experiment: Experiment) -> str:
    from lib_dlhpc.layout import stages_by_rule
    from lib_dlhpc.prediction.pipelines.pipelined import longest_stage

    ends, _ = stages_by_rule(experiment)
    stage, times = longest_stage(experiment.model, ends)
    return f"Stage {stage} of {len(ends)} bounds the pipeline: its layers have {times:.2f} times the mean work."
