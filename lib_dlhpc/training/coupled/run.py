"""couple: simulate and train, on the ranks that the workflow says, and tell what came of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.spec.workflow import Costs, Workflow, share
from lib_dlhpc.timeline import Timeline
from lib_dlhpc.training.coupled.buffer import Inlet, Outlet
from lib_dlhpc.training.coupled.calls import Calls, gathered
from lib_dlhpc.training.coupled.heat import Heat
from lib_dlhpc.training.coupled.learner import Learner, check, learner
from lib_dlhpc.training.coupled.measure import measure, meet
from lib_dlhpc.training.coupled.samples import Samples
from lib_dlhpc.training.data import precision_of
from lib_dlhpc.training.exchange import exchange_of
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.record import offset
from lib_dlhpc.training.trainer import FAR, Diverged


@dataclass(frozen=True, eq=False)
class Coupled:
    """What came of a coupled run; on rank 0, which may have simulated only."""

    timeline: Timeline
    seconds: float
    costs: Costs
    steps: int  # training steps; more than batches where it trains again
    losses: list[float]  # of each training step
    errors: tuple[float, float]  # before and after: see Learner.error
    diffusivity: float  # as learned
    weights: NDArray[Any]


def couple(workflow: Workflow, comm: Any) -> Coupled | None:
    """Run a workflow on the ranks of `comm`; all of them call this. Returns what came of it on rank 0.

    Raises SpecError for what cannot be run on so many ranks, Diverged when the loss is no number, or
    what was learned ends FAR from the truth.
    """
    simulating, training = workflow.sides(comm.size)
    check(workflow)
    costs = workflow.costs or measure(workflow, comm)
    calls = Calls(comm.rank, comm.size)
    with (
        _sides(comm, simulating, training) as (ours, theirs),
        _learner(workflow, theirs, calls) as own,
    ):
        before = own.error() if own else 0.0
        samples = Samples(Heat(workflow.simulation, ours), calls) if ours else None
        outlet = Outlet(workflow, comm, training, calls) if ours else None
        mine = share(workflow.batch, theirs.rank, theirs.size) if theirs else slice(0, 0)
        inlet = Inlet(workflow, comm, simulating, mine, calls) if theirs else None
        shift = offset(comm) if comm.size > 1 else 0.0
        meet(comm)
        begun = calls.now()
        losses = _play(workflow, samples, outlet, inlet, own)
        ended = calls.now()
        meet(comm)
        told = None
        if own:
            losses = theirs.allreduce(np.array(losses)).tolist()
            after, learned = own.error(), own.diffusivity(workflow)
            told = (losses, (before, after), learned, own.network.weights.copy())
    seconds = max(comm.allgather(ended - begun))
    timeline = gathered(calls, comm, shift)
    told = comm.bcast(told, training[0])
    before, after = told[1]
    if not after <= FAR * max(before, 1.0):  # nor a number
        raise Diverged(
            f"training ended {after:,.3g} times as far off as predicting no change, which counts as diverged;"
            f" take a smaller training.rate than {workflow.experiment.training.rate:g}"
        )
    if timeline is None:
        return None
    losses, errors, learned, weights = told
    return Coupled(timeline, seconds, costs, len(losses), losses, errors, learned, weights)


def _play(
    workflow: Workflow,
    samples: Samples | None,
    outlet: Outlet | None,
    inlet: Inlet | None,
    own: Learner | None,
) -> list[float]:
    """Do what this rank has to do with all batches; return its share of the losses."""
    losses: list[float] = []
    left = workflow.batches
    while left:
        many = min(workflow.coupling.depth, left)
        for _ in range(many):
            if samples and outlet:
                made = samples.batch(workflow.batch, outlet.carry_on)
                outlet.give(made)
        for _ in range(many):
            if inlet and own:
                losses += _train(workflow, inlet, own)
        left -= many
    if outlet:
        outlet.close()
    if inlet:
        inlet.close()
    return losses


def _train(workflow: Workflow, inlet: Inlet, own: Learner) -> list[float]:
    """Train on the next batch; before, on the last once more as long as there is none, if the workflow says so."""
    losses = []
    if workflow.coupling.empty == "again":
        while inlet.taken and not own.everyone_has(inlet.is_there()):
            losses.append(own.learn(inlet.taken - 1, workflow.batches, inlet.x, inlet.y))
    inlet.take()
    losses.append(own.learn(inlet.taken - 1, workflow.batches, inlet.x, inlet.y))
    return losses


@contextmanager
def _sides(comm: Any, simulating: range, training: range) -> Iterator[tuple[Any, Any]]:
    """Give the communicators of the side that simulates and of the side that trains, None where it is not ours."""
    made = [
        (comm.Split(int(comm.rank in side), comm.rank), side) for side in (simulating, training)
    ]
    ours, theirs = (one if comm.rank in side else None for one, side in made)
    yield ours, theirs
    for one, _ in made:
        one.Free()


@contextmanager
def _learner(workflow: Workflow, comm: Any, calls: Calls) -> Iterator[Learner | None]:
    if comm is None:
        yield None
        return
    experiment = workflow.experiment
    network = Network(experiment.model, precision_of(experiment), experiment.run.seed)
    with exchange_of(experiment, network.gradients, comm, calls) as exchange:
        yield learner(workflow, comm, exchange, network, calls)
