"""A real job beside its prediction: the terms of its trace's steps, and the [calibration] that follows from them.

calibrate(experiment, step_terms(trace)).experiment starts from the rate at which the job's own ranks compute;
what remains of the error is communication and input.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from lib_dlhpc.costs.roofline import BYTES
from lib_dlhpc.costs.wire_format import on_wire
from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction.breakdown import Breakdown
from lib_dlhpc.prediction.measured.calibrated import link_efficiency
from lib_dlhpc.prediction.step import predict
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import count, format_quantity
from lib_dlhpc.timeline.steps import StepTerms

# Terms that a trace and a prediction both have, and those of each that they are made of. A device's rate has the
# gaps between its kernels too; who waits for the slowest is in a collective meanwhile.
COMPUTE = "compute, with its gaps"
SAME = {
    COMPUTE: (("compute", "idle"), ("forward", "backward", "update", "pipeline bubble")),
    "exposed communication": (
        ("exposed communication",),
        ("exposed communication", "waiting for the slowest"),
    ),
    "input wait": (("input wait",), ("input stall",)),
    "checkpoint": (("checkpoint",), ("checkpoint",)),
}
CLOSE = 0.01  # of the bytes of all gradients
MUCH = 0.1  # of a step, idle


@dataclass(frozen=True, eq=False)
class Traced:
    """Terms of the mean step in s, by SAME: traced, predicted, predicted with the calibration."""

    trace: StepTerms
    experiment: Experiment  # with [calibration]
    batch: int  # samples of a rank in a step
    traced: dict[str, float]
    before: dict[str, float]
    after: dict[str, float]
    notes: list[str]

    @property
    def rate(self) -> float:
        """Samples per second of one rank that waits for no other rank and no input."""
        return float(self.experiment.calibration.rate)

    @property
    def link_efficiency(self) -> float:
        """Share of the line rate between nodes that collectives reach; 0: not known."""
        return float(self.experiment.calibration.link_efficiency)


def calibrate(experiment: Experiment, trace: StepTerms) -> Traced:
    """Return a job's trace beside the prediction of its experiment, and the experiment with its rate.

    The rate is that of the mean step of a rank, without its waits: [calibration] of one device. Between nodes,
    link_efficiency is the share of the line rate that explains the exposed communication. Raises
    SpecError for an experiment of another number of devices, for a split network, and for a trace without compute.
    """
    devices, ranks = int(experiment.devices), trace.ranks
    if devices != ranks:
        raise SpecError(
            f"The trace has {count(ranks, 'rank')}, the experiment has {count(devices, 'device')}: expected"
            " the experiment of the traced job; change it with --set strategy.nodes=... or"
            " strategy.devices_per_node=..."
        )
    if int(experiment.strategy.replica) != 1:
        raise SpecError(
            f"strategy: a network split over {int(experiment.strategy.replica)} devices: a trace calibrates"
            " data parallelism, where each device computes all of it."
        )
    if not trace.terms["compute"].any():
        raise SpecError("The trace has no compute: no rate can be taken from it.")
    means = {term: float(each.mean()) for term, each in trace.terms.items()}
    traced = {term: sum(means[name] for name in names) for term, (names, _) in SAME.items()}
    batch = int(experiment.strategy.batch)
    measured = {"rate": batch / traced[COMPUTE], "devices": 1, "batch": batch, "compute_scale": 0.0}
    changes = {f"calibration.{field}": value for field, value in measured.items()}
    calibrated, notes = _with_links(experiment.set(changes), traced)
    return Traced(
        trace=trace,
        experiment=calibrated,
        batch=batch,
        traced=traced,
        before=_terms(predict(experiment)),
        after=_terms(predict(calibrated)),
        notes=_notes(experiment, trace) + notes,
    )


def _with_links(
    calibrated: Experiment, traced: Mapping[str, float]
) -> tuple[Experiment, list[str]]:
    """Return the experiment with the share of the line rate that explains a job's exposed communication, and notes.

    Of a job on one node, whose link has no such field, the experiment as it is.
    """
    if int(calibrated.strategy.nodes) == 1:
        return calibrated, []
    seconds = traced[COMPUTE] + traced["exposed communication"]
    try:
        share = link_efficiency(calibrated, float(calibrated.global_batch) / seconds)
    except SpecError as error:
        return calibrated, [f"No link_efficiency explains the exposed communication: {error}"]
    return calibrated.set({"calibration.link_efficiency": share}), []


def _terms(prediction: Breakdown) -> dict[str, float]:
    terms = prediction.terms
    return {term: sum(terms[name] for name in names) for term, (_, names) in SAME.items()}


def _notes(experiment: Experiment, trace: StepTerms) -> list[str]:
    """Return what in the trace does not belong to this experiment, or is not part of a prediction."""
    notes = []
    size = experiment.model.trained * BYTES[experiment.strategy.precision]
    gradients = float(on_wire(experiment.strategy, size))
    reduced = sum(
        exchange.bytes * exchange.calls
        for exchange in trace.exchanges
        if exchange.name == "allreduce"
    )
    if reduced and abs(reduced - gradients) > CLOSE * gradients:
        notes.append(
            f"A rank of the trace allreduces {format_quantity(reduced, 'B')} in a step, the experiment has"
            f" {format_quantity(gradients, 'B')} of gradients: another network, precision or exchange."
        )
    idle = float(trace.terms["idle"].mean())
    step = float(trace.seconds.mean())
    if idle > MUCH * step:
        notes.append(
            f"A rank is idle for {idle / step:.0%} of a step, between kernels or operators, for launches, Python or"
            " the profiler: these gaps are part of the rate."
        )
    return notes
