"""Workflow: a simulation coupled in situ to a training run, in one frozen object and one TOML file.

The simulation is the heat equation on a square, its rows partitioned into blocks. A sample is a field and the same
field `sampling` steps later. Samples form batches of the experiment's batch size, and batches go to the training
ranks in the order in which they are computed.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tomli_w

from lib_dlhpc.errors import SpecError, reason_of
from lib_dlhpc.spec.experiment import Experiment, read_experiment, to_tables
from lib_dlhpc.spec.files import LARGEST_FILE
from lib_dlhpc.spec.schema import check_keys, choice, number, read_table, to_table, whole
from lib_dlhpc.spec.units import count

PLACEMENTS = ("shared", "separate")
WHEN_EMPTY = ("wait", "again")
TABLES = ("simulation", "coupling", "costs")
NUMBER = 8  # B of a field element in a message


@dataclass(frozen=True)
class Simulation:
    """The heat equation u' = diffusivity (u_xx + u_yy) on the unit square, 0 at its edge, with explicit time steps.

    A step is `stability` times the largest stable one, divided into `substeps`: the same physics at a higher
    cost. Every `restart` steps the simulation restarts from a new random field.
    """

    grid: int = whole(default=32, least=4, most=4096)  # interior points in each direction
    steps: int = whole(default=640)
    sampling: int = whole(default=2)  # steps between samples
    restart: int = whole(default=20)  # steps between random initial fields
    substeps: int = whole(default=1)
    halo: int = whole(default=1)  # rows exchanged with a neighbor at once; see `width`
    diffusivity: float = number(default=1.0, positive=True)  # of a square of side 1, in 1/s
    # Fraction of the largest stable step.
    stability: float = number(default=0.8, positive=True, most=1.0)
    seed: int = whole(default=0, least=0)

    @property
    def spacing(self) -> float:
        """Distance between grid points."""
        return 1 / (self.grid + 1)

    @property
    def small_step(self) -> float:
        """Length of a substep in s: h^2 / (4 diffusivity), the stability limit, times stability / substeps."""
        return self.stability * self.spacing**2 / (4 * self.diffusivity) / self.substeps

    def width(self, ranks: int) -> int:
        """Halo width: rows received from each neighbor, 0 without neighbors.

        With w halo rows a rank takes w substeps between exchanges: it recomputes these rows, and sends one
        message in place of w (Demmel et al. 2008, "Avoiding communication in sparse matrix computations").
        The width is limited by the rows of a rank and the substeps of a step.
        """
        return min(self.halo, self.substeps, self.grid // ranks) if ranks > 1 else 0

    @property
    def samples(self) -> int:
        """Number of samples."""
        return self.steps // self.sampling

    @property
    def field_bytes(self) -> int:
        """Bytes of a field."""
        return NUMBER * self.grid**2


@dataclass(frozen=True)
class Coupling:
    """Placement of simulation and training on ranks, and the buffer between them.

    placement: "shared": all ranks simulate until `depth` batches are buffered, then all train on them, in turn;
    "separate": the first `ranks` simulate while the others train. depth: batches the buffer can hold. If the
    buffer is full, the simulation waits. If it is empty, the training waits, or, with empty = "again", reuses
    its last batch, so the number of updates depends on timing.
    """

    placement: str = choice(PLACEMENTS, default="separate")
    ranks: int = whole(default=1)
    depth: int = whole(default=2)
    empty: str = choice(WHEN_EMPTY, default="wait")


@dataclass(frozen=True)
class Costs:
    """Costs of a workflow's operations on a machine, in s; used to predict it.

    jitter: standard deviation over mean of the compute time of a batch, on one rank.
    """

    point: float = number("s", positive=True)  # of a point and a substep
    sample: float = number("s", positive=True)  # of training on a sample
    small_step: float = number("s", default=0.0)  # of a substep, fixed cost
    update: float = number("s", default=0.0)  # of a training step, fixed cost
    latency: float = number("s", default=0.0)  # of a message, fixed cost
    byte: float = number("s", default=0.0)  # of a byte of a message
    jitter: float = number(default=0.0)


@dataclass(frozen=True)
class Workflow:
    """A simulation, a training run and their coupling: the input of all three engines."""

    experiment: Experiment
    simulation: Simulation = field(default_factory=Simulation)
    coupling: Coupling = field(default_factory=Coupling)
    costs: Costs | None = None  # None: measured at run time

    @property
    def batch(self) -> int:
        """Samples of a batch, over all training ranks."""
        return int(self.experiment.global_batch)

    @property
    def batches(self) -> int:
        """Number of batches."""
        return self.simulation.samples // self.batch

    def placed(self, placement: str, ranks: int = 1) -> "Workflow":
        """Return the same workflow with another placement; the training data stay the same."""
        return replace(self, coupling=replace(self.coupling, placement=placement, ranks=ranks))

    def sides(self, ranks: int) -> tuple[range, range]:
        """Return the ranks that simulate and the ranks that train. Raises SpecError for too few ranks."""
        coupling, grid = self.coupling, self.simulation.grid
        if coupling.placement == "shared":
            simulating, training = range(ranks), range(ranks)
        else:
            simulating, training = range(coupling.ranks), range(coupling.ranks, ranks)
            if not training:
                fewer = f"coupling.ranks of at most {ranks - 1}, " if ranks > 1 else ""
                raise SpecError(
                    f"coupling.ranks = {coupling.ranks}: these leave none to train of {count(ranks, 'rank')};"
                    f' legal: {fewer}{coupling.ranks + 1} ranks or more, or placement = "shared".'
                )
        if len(simulating) > grid:
            raise SpecError(
                f"{len(simulating)} ranks simulate: simulation.grid = {grid} has a row for {grid} at most."
            )
        return simulating, training


def share(items: int, rank: int, ranks: int) -> slice:
    """Return the block of `items` consecutive items that a rank owns; blocks differ by at most one item."""
    return slice(rank * items // ranks, (rank + 1) * items // ranks)


def most(items: int, ranks: int) -> int:
    """Return the size of the largest block of a rank."""
    return -(-items // ranks)


def read_workflow(tables: Mapping[str, Any]) -> Workflow:
    """Build a Workflow from nested tables as parsed from TOML; raises SpecError."""
    check_keys(tables, _LEGAL, "workflow")
    tables = dict(tables)
    simulation = read_table(Simulation, tables.pop("simulation", {}), "simulation")
    coupling = read_table(Coupling, tables.pop("coupling", {}), "coupling")
    costs = tables.pop("costs", None)
    if simulation.sampling > simulation.steps:
        raise SpecError(
            f"simulation.sampling = {simulation.sampling}: no sample in simulation.steps = {simulation.steps};"
            f" legal: a whole number from 1 to {simulation.steps}."
        )
    size = 2 * simulation.field_bytes
    shape = [1, simulation.grid, simulation.grid]
    tables["dataset"] = {"samples": simulation.samples, "sample_shape": shape}
    tables["dataset"]["bytes"] = float(size * simulation.samples)
    tables.setdefault("machine", {"name": "laptop"})
    workflow = Workflow(
        read_experiment(tables),
        simulation,
        coupling,
        None if costs is None else read_table(Costs, costs, "costs"),
    )
    _check(workflow)
    return workflow


# No [dataset]: the simulation generates the samples.
_LEGAL = (*TABLES, "model", "machine", "strategy", "run", "training")


def _check(workflow: Workflow) -> None:
    """Raise SpecError where two fields contradict each other."""
    simulation, model = workflow.simulation, workflow.experiment.model
    unit = simulation.sampling * workflow.batch
    if simulation.steps % unit:
        legal = max(round(simulation.steps / unit), 1) * unit
        raise SpecError(
            f"simulation.steps = {simulation.steps}: a batch is simulation.sampling * strategy.batch = {unit}"
            f" steps; legal: a multiple, such as {legal}."
        )
    if simulation.restart % simulation.sampling:
        raise SpecError(
            f"simulation.restart = {simulation.restart}: legal: a multiple of simulation.sampling ="
            f" {simulation.sampling}."
        )
    shape = (1, simulation.grid, simulation.grid)
    if model.input_shape != shape or model.output_shape != shape:
        raise SpecError(
            f"model: reads {model.input_shape} and gives {model.output_shape}; with simulation.grid ="
            f" {simulation.grid} it must read and give fields of {shape}."
        )


def loads(source: str) -> Workflow:
    """Return the workflow that a TOML text describes; raises SpecError, also on broken TOML."""
    if len(source) > LARGEST_FILE:
        raise SpecError(f"The workflow is {len(source):,} characters long; most: {LARGEST_FILE:,}.")
    try:
        return read_workflow(tomllib.loads(source))
    except SpecError:
        raise
    except (ValueError, RecursionError) as error:
        raise SpecError(f"Not valid TOML: {error}.") from None


def load(path: str | Path) -> Workflow:
    """Return the workflow in a TOML file; raises SpecError, also when the file cannot be read."""
    try:
        return loads(Path(path).read_text(encoding="utf-8"))
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None
    except (OSError, ValueError) as error:
        raise SpecError(f"{path}: cannot be read: {reason_of(error)}.") from None


def dumps(workflow: Workflow) -> str:
    """Return the workflow as TOML text that parses to an equal workflow."""
    tables = to_tables(workflow.experiment)
    del tables["dataset"]
    for name in TABLES:
        noun = getattr(workflow, name)
        if noun is not None:
            tables[name] = to_table(noun)
    return tomli_w.dumps(tables)
