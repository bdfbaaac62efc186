"""What a batch costs each side of a coupled workflow: the simulation that makes it, the training that takes it.

All ranks of a side are synchronous: the one with most rows, or most samples, determines the time, and what the others
compute less they wait in exchanges. A ring sums the gradients.
"""

from dataclasses import dataclass

from lib_dlhpc.costs.buckets import buckets
from lib_dlhpc.costs.roofline import BYTES
from lib_dlhpc.costs.stragglers import slowest
from lib_dlhpc.spec.workflow import Costs, Workflow, most, share


@dataclass(frozen=True)
class Side:
    """One side of a workflow: its ranks, and the s that a batch takes them."""

    ranks: int
    compute: float  # of the rank with most to do
    mean: float  # of the mean rank
    within: float  # messages between ranks of this side
    between: float  # handing a batch over, or taking it

    @property
    def batch(self) -> float:
        """Seconds from one batch to the next, if no side waits for the other and nothing varies."""
        return self.compute + self.within + self.between

    def paced(self, jitter: float) -> float:
        """Seconds from one batch to the next, where compute time varies and all ranks wait for the slowest."""
        return self.batch + self.compute * (float(slowest(self.ranks, jitter)) - 1)


def sides_of(workflow: Workflow, costs: Costs, ranks: int) -> tuple[Side, Side]:
    """Return (simulation, training) of a workflow on `ranks` ranks. Raises SpecError if a side has too few."""
    simulating, training = (len(side) for side in workflow.sides(ranks))
    simulation, batch = workflow.simulation, workflow.batch
    small_steps = batch * simulation.sampling * simulation.substeps
    # Bytes of a batch: each sample is a field before and after.
    size = 2 * batch * simulation.field_bytes

    def message(bytes_: float) -> float:
        return costs.latency + bytes_ * costs.byte

    def compute(rows: float) -> float:
        return small_steps * (costs.small_step + costs.point * rows * simulation.grid)

    def trained(samples: float) -> float:
        return costs.update + costs.sample * samples

    edges, width = min(simulating - 1, 2), simulation.width(simulating)  # two neighbors at most
    exchanges = batch * simulation.sampling * (-(-simulation.substeps // width) if width else 0)
    halo = exchanges * edges * message(width * simulation.field_bytes / simulation.grid)
    rows = rows_computed(workflow, simulating)
    given = (
        training * costs.latency
        + size * most(simulation.grid, simulating) / simulation.grid * costs.byte
    )
    taken = simulating * costs.latency + size * most(batch, training) / batch * costs.byte
    element = BYTES[workflow.experiment.strategy.precision]
    cut = buckets(workflow.experiment.model, float(workflow.experiment.strategy.bucket), element)
    sizes = cut.sizes.tolist()
    summed = sum(2 * (training - 1) * message(size / training) for size in sizes)
    return (
        Side(simulating, compute(max(rows)), compute(sum(rows) / simulating), halo, given),
        Side(training, trained(most(batch, training)), trained(batch / training), summed, taken),
    )


def rows_computed(workflow: Workflow, simulating: int) -> list[int]:
    """Return the rows that each rank computes: its own, and copies of its neighbors' rows."""
    grid, width = workflow.simulation.grid, workflow.simulation.width(simulating)
    rows = [share(grid, rank, simulating) for rank in range(simulating)]
    taken = [width * ((rank > 0) + (rank < simulating - 1)) for rank in range(simulating)]
    return [part.stop - part.start + more for part, more in zip(rows, taken, strict=True)]
