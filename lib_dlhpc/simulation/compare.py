"""A simulated step beside the predicted one, term by term, and why they differ where they do."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lib_dlhpc.costs.groups import allreduces
from lib_dlhpc.simulation.energy import energy_of
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.plain import plain_tables
from lib_dlhpc.spec.strategy import exchange_in_words
from lib_dlhpc.spec.units import count, format_energy
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.timeline import Measured

NOTABLE = 1e-6  # of a step; less is rounding
DIFFERENCE = "   difference of the step"


def heading(
    experiment: Experiment, fidelity: str, steps: int, predicted: Mapping[str, float]
) -> str:
    """Return what is known before a simulation: what is simulated, and the step that is predicted."""
    e, every = experiment, int(experiment.strategy.local_steps)
    steps = -(-steps // every) * every  # the last one ends with an average
    how = exchange_in_words(e.strategy, e.training)
    return (
        f"{e.model.name or e.model.family} on {e.machine.name or 'a machine'}:"
        f" {count(e.devices, 'rank')}, {how}, fidelity {fidelity}, steps {steps}\n"
        f"  predicted: {show(sum(predicted.values()), 's')} per step"
    )


def as_text(
    experiment: Experiment,
    fidelity: str,
    measured: Measured,
    predicted: Mapping[str, float],
    bands: Mapping[str, tuple[float, float]] | None = None,
    joules: float | None = None,
) -> str:
    """Return what comes after `heading`: the terms, predicted and simulated, and each reason to differ.

    bands: (low, high) s of the simulated "one step" and terms, by name, where it is known what they may be off by.
    joules: predicted, of a step.
    """
    known = bands or {}
    step = sum(predicted.values())
    slowest = measured.slowest_terms
    lines = [
        "",
        f"  {'':<25} {'predicted':>10} {'simulated':>10} {f'rank {measured.slowest}':>10}{DIFFERENCE}"
        + ("   90% band" if known else ""),
        _line("one step", step, measured.step_time, measured.step_time, step, known),
    ]
    lines += [
        _line(f"  {name}", seconds, measured.terms[name], slowest[name], step, known)
        for name, seconds in predicted.items()
        if seconds or measured.terms[name]
    ]
    if joules is not None:
        shown = [
            format_energy(joule)
            for joule in (joules, sum(energy_of(experiment, measured).values()))
        ]
        lines.append(f"  {'energy of a step':<25} {shown[0]:>10} {shown[1]:>10}")
    lines += [
        "",
        f"  simulated: mean of the ranks; rank {measured.slowest} is the one that computes longest",
    ]
    reasons = why(experiment, fidelity, measured.terms, predicted)
    lines += [f"  differs: {reason}" for reason in reasons] or ["  no term differs"]
    return "\n".join(lines)


def as_dict(
    experiment: Experiment, fidelity: str, measured: Measured, predicted: Mapping[str, float]
) -> dict[str, Any]:
    """Return the same as nested plain values in SI units, ready for JSON."""
    return {
        "experiment": plain_tables(experiment),
        "fidelity": fidelity,
        "ranks": int(experiment.devices),
        "steps": measured.steps,
        "step_time": measured.step_time,
        "terms": measured.terms,
        "slowest_rank": measured.slowest,
        "slowest_terms": measured.slowest_terms,
        "energy_of_a_step": energy_of(experiment, measured),
        "predicted_step_time": sum(predicted.values()),
        "predicted_terms": dict(predicted),
        "reasons": why(experiment, fidelity, measured.terms, predicted),
    }


def why(
    experiment: Experiment,
    fidelity: str,
    simulated: Mapping[str, float],
    predicted: Mapping[str, float],
    speed: ArrayLike = 1.0,
    background: Sequence[Any] = (),
) -> list[str]:
    """Return a sentence for each reason why terms differ by more than rounding; none where none does.

    speed, background: as passed to `simulate`.
    """
    notable = NOTABLE * sum(predicted.values())
    different = {name for name in predicted if abs(simulated[name] - predicted[name]) > notable}
    reasons = []
    if "checkpoint" in different:
        reasons.append(
            "the simulation was configured with the steps that write a checkpoint, and its duration; the"
            " prediction spreads one over the steps between two checkpoints."
            if simulated["checkpoint"]
            else "a simulated step writes no checkpoint; the prediction spreads one over the steps between"
            " two checkpoints."
        )
    different -= {"checkpoint"}
    if different:
        reasons += _load_reasons(experiment, fidelity, different, speed, background)
    if experiment.strategy.update == "asynchronous":
        return reasons
    if experiment.strategy.is_split:
        return reasons + (_split_reasons(experiment, fidelity) if different else [])
    uneven = bool(np.any(np.not_equal(speed, 1.0)))
    out_of_step = bool(experiment.machine.jitter) or uneven
    exchange = _exchange_reasons(experiment, fidelity, out_of_step)
    if different - {"waiting for the slowest"} and (
        not out_of_step or "exposed communication" in different
    ):
        reasons += exchange
        if not (exchange or out_of_step or background or _queued(experiment, different)):
            reasons.append(
                "ranks that finish a bucket early begin the next one before the others do; the"
                " prediction sends all buckets one after another, unsplit."
            )
    return reasons


def _load_reasons(
    experiment: Experiment,
    fidelity: str,
    different: set[str],
    speed: ArrayLike,
    background: Sequence[Any],
) -> list[str]:
    """Return what the simulation has and the prediction averages: queues, jitter, speeds, other traffic."""
    reasons = []
    if _queued(experiment, different):
        reasons.append(
            "readers queue for the storage and draw their service times, and the first batch is available from"
            " the start; the prediction uses the rate of the lowest limit. A rank with a late batch delays the others"
            " in the exchange, where it counts as communication."
        )
    if experiment.strategy.update == "asynchronous":
        reasons += _asynchronous_reasons(experiment, fidelity)
    elif experiment.machine.jitter:
        several = int(experiment.devices) > 1
        taken = f"expected slowest of {int(experiment.devices)}" if several else "mean"
        reasons.append(
            "the simulation draws the jitter of every rank once per step; the prediction takes the"
            f" {taken}. More steps reduce the difference."
        )
    if np.any(np.not_equal(speed, 1.0)):
        reasons.append(
            f"ranks were given speeds of {np.min(speed):g} to {np.max(speed):g}; the prediction uses 1 for all."
        )
    if background:
        reasons.append(
            "there is other traffic on the links; the prediction has the machine to itself."
        )
    return reasons


def _queued(experiment: Experiment, different: set[str]) -> bool:
    """Return whether readers queue, and the input stall differs."""
    storage = experiment.storage
    return "input stall" in different and bool(storage.workers or storage.prefetch)


def _asynchronous_reasons(experiment: Experiment, fidelity: str) -> list[str]:
    machine, strategy = experiment.machine, experiment.strategy
    reasons = [
        "ranks begin together and queue for the servers; the prediction is of the steady state, with"
        " queues only where servers or links are saturated. More steps reduce the difference."
    ]
    if machine.jitter:
        bound = " and what a bound costs in the long run" * bool(strategy.staleness)
        reasons.append(
            "the simulation draws the jitter of every rank once per step; the prediction takes the mean"
            f" compute{bound}."
        )
    if fidelity == "rounds" and machine.topology != "single-switch":
        reasons.append(
            f"the prediction includes the links of the {machine.topology}; fidelity rounds includes only the NICs."
            " Try --fidelity events."
        )
    return reasons


def _split_reasons(experiment: Experiment, fidelity: str) -> list[str]:
    strategy, reasons = experiment.strategy, []
    if strategy.pipeline > 1 and experiment.machine.jitter:
        reasons.append(
            "in a simulated pipeline no rank waits for the slowest: a rank that computes less gets its turn later, and"
            " its wait is bubble or, where a message arrives late, exposed communication."
        )
    if fidelity == "events":
        if strategy.spatial * strategy.tensor > 1:
            reasons.append(
                "the ranks of a group have parts that differ by a row or a feature; the prediction takes the"
                " largest part of a group."
            )
        if strategy.pipeline > 1:
            reasons.append(
                "messages between stages share links as they arrive; in the prediction, one that meets a message that"
                " was already received delays the next of its kind instead."
            )
        reasons.append(
            "groups that exchange at the same time share the links of the machine as their messages arrive."
        )
    return reasons


def _exchange_reasons(experiment: Experiment, fidelity: str, out_of_step: bool) -> list[str]:
    used, reasons = set(allreduces(experiment).values()), []
    if (
        "parameter_server" in {algorithm.name for algorithm in used}
        and int(experiment.devices_per_node) > 1
    ):
        reasons.append(
            "in the prediction the host of a node sums the gradients of its devices first; in the schedule"
            " each device is a worker and a server of its own."
        )
    if fidelity == "events":
        reasons.append(
            "messages share the links of the machine as they arrive; the prediction models congestion only as"
            " a factor on whole rounds."
        )
        if out_of_step:
            reasons.append(
                "a sender waits until its receiver has reached the round too (rendezvous), so one late rank"
                " holds up its neighbors on both sides; in fidelity rounds early data waits in a buffer."
            )
    if reasons and experiment.calibration.rate and int(experiment.calibration.devices) > 1:
        reasons.append(
            "the measured rate includes part of the exchange, so what is left for compute differs as well."
        )
    return reasons


def _line(
    name: str,
    predicted: float,
    simulated: float,
    slowest: float,
    step: float,
    bands: Mapping[str, tuple[float, float]],
) -> str:
    shown = [f"{show(value, 's'):>10}" for value in (predicted, simulated, slowest)]
    line = f"  {name:<25} {' '.join(shown)}   {(simulated - predicted) / step:+z.4%}"
    if name.strip() not in bands:
        return line
    low, high = bands[name.strip()]
    wide = 2 + 25 + 3 * 11 + len(DIFFERENCE)
    return f"{line:<{wide}}   {show(low, 's')} to {show(high, 's')}"
