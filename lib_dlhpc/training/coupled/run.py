"""couple: simulate and train on the ranks that the workflow assigns, and return the result."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.spec.workflow import Costs, Workflow, share
from lib_dlhpc.timeline import Timeline
from lib_dlhpc.training.coupled.buffer import BatchReceiver, BatchSender
from lib_dlhpc.training.coupled.calls import Calls, gathered
from lib_dlhpc.training.coupled.heat import Heat
from lib_dlhpc.training.coupled.learner import Learner, check, learner
from lib_dlhpc.training.coupled.measure import barrier, measure
from lib_dlhpc.training.coupled.samples import Samples
from lib_dlhpc.training.rank import Diverged
from lib_dlhpc.training.record import offset
from lib_dlhpc.training.trainer import FAR


@dataclass(frozen=True, eq=False)
class Coupled:
    """The result of a coupled run, on rank 0, which may only have simulated."""

    timeline: Timeline
    seconds: float
    costs: Costs
    steps: int  # training steps; more than batches where batches are repeated
    losses: list[float]  # of each training step
    errors: tuple[float, float]  # before and after: see Learner.error
    diffusivity: float  # as learned
    weights: NDArray[Any]


def couple(workflow: Workflow, comm: Any) -> Coupled | None:
    """Run a workflow on the ranks of `comm`; all of them call this. Returns the result on rank 0.

    Raises SpecError for what cannot run on this number of ranks, Diverged when the loss is not finite or the
    final test error exceeds FAR.
    """
    simulating, training = workflow.sides(comm.size)
    check(workflow)
    costs = workflow.costs or measure(workflow, comm)
    calls = Calls(comm.rank, comm.size)
    with (
        _sides(comm, simulating, training) as (ours, theirs),
        _learner(workflow, theirs, calls) as trainer,
    ):
        before = trainer.error() if trainer else 0.0
        samples = Samples(Heat(workflow.simulation, ours), calls) if ours else None
        outlet = BatchSender(workflow, comm, training, calls) if ours else None
        mine = share(workflow.batch, theirs.rank, theirs.size) if theirs else slice(0, 0)
        inlet = BatchReceiver(workflow, comm, simulating, mine, calls) if theirs else None
        shift = offset(comm) if comm.size > 1 else 0.0
        barrier(comm)
        begun = calls.now()
        losses = _simulate_and_train(workflow, samples, outlet, inlet, trainer)
        ended = calls.now()
        barrier(comm)
        outcome = None
        if trainer:
            losses = theirs.allreduce(np.array(losses)).tolist()
            after, learned = trainer.error(), trainer.diffusivity(workflow)
            outcome = (losses, (before, after), learned, trainer.network.weights.copy())
    seconds = max(comm.allgather(ended - begun))
    timeline = gathered(calls, comm, shift)
    outcome = comm.bcast(outcome, training[0])
    before, after = outcome[1]
    if not after <= FAR * max(before, 1.0):  # nor a number
        raise Diverged(
            f"training ended with {after:,.3g} times the error of predicting no change, which counts as diverged;"
            f" use a smaller training.rate than {workflow.experiment.training.rate:g}"
        )
    if timeline is None:
        return None
    losses, errors, learned, weights = outcome
    return Coupled(timeline, seconds, costs, len(losses), losses, errors, learned, weights)


def _simulate_and_train(
    workflow: Workflow,
    samples: Samples | None,
    outlet: BatchSender | None,
    inlet: BatchReceiver | None,
    trainer: Learner | None,
) -> list[float]:
    """Run this rank's part of all batches; return its part of the losses."""
    losses: list[float] = []
    left = workflow.batches
    while left:
        many = min(workflow.coupling.depth, left)
        for _ in range(many):
            if samples and outlet:
                made = samples.batch(workflow.batch, outlet.progress)
                outlet.send(made)
        for _ in range(many):
            if inlet and trainer:
                losses += _train(workflow, inlet, trainer)
        left -= many
    if outlet:
        outlet.close()
    if inlet:
        inlet.close()
    return losses


def _train(workflow: Workflow, inlet: BatchReceiver, trainer: Learner) -> list[float]:
    """Train on the next batch; until it arrives, repeat the last one if the workflow asks for it."""
    losses = []
    if workflow.coupling.empty == "again":
        while inlet.taken and not trainer.on_all_ranks(inlet.has_arrived()):
            losses.append(trainer.learn(inlet.taken - 1, workflow.batches, inlet.x, inlet.y))
    inlet.take()
    losses.append(trainer.learn(inlet.taken - 1, workflow.batches, inlet.x, inlet.y))
    return losses


@contextmanager
def _sides(comm: Any, simulating: range, training: range) -> Iterator[tuple[Any, Any]]:
    """Yield the communicators of the simulating and of the training ranks, None where this rank is no member."""
    made = [
        (comm.Split(int(comm.rank in side), comm.rank), side) for side in (simulating, training)
    ]
    ours, theirs = (comm_of_side if comm.rank in side else None for comm_of_side, side in made)
    yield ours, theirs
    for comm_of_side, _ in made:
        comm_of_side.Free()


@contextmanager
def _learner(workflow: Workflow, comm: Any, calls: Calls) -> Iterator[Learner | None]:
    if comm is None:
        yield None
        return
    with learner(workflow, comm, calls) as trainer:
        yield trainer
