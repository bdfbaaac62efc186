"""What a submitted run has come to, laid beside the prediction for the machine that it ran on."""

import math
from dataclasses import replace
from typing import Any

from lib_dlhpc.comparison import Comparison
from lib_dlhpc.comparison.comparison import beside, estimated
from lib_dlhpc.comparison.placed import Placed, placed
from lib_dlhpc.comparison.short import steps_of_an_epoch
from lib_dlhpc.comparison.steady import steps_of
from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch import BatchJob, Site
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.experiment import load as load_experiment
from lib_dlhpc.spec.machine import Machine
from lib_dlhpc.spec.measured_machine import STAND_IN
from lib_dlhpc.spec.units import count
from lib_dlhpc.timeline.store import load

ELSEWHERE = (
    "the prediction is for the machine of this page, and the run was one of {}: give `machine`, as"
    " `dlhpc calibrate` writes it in a job there."
)
JOINED = "were asked for; what joins them was not measured, and is the catalog's."


def found(job: BatchJob, machine: Machine | None = None) -> Comparison:
    """Return the steps of a job that is done beside their prediction. machine: see `at_site`.

    Raises SpecError for a folder whose timeline cannot be read.
    """
    experiment = load_experiment(job.folder / "experiment.toml")
    here = at_site(experiment, job.ticket.ranks, job.ticket.site, machine)
    together = int(experiment.strategy.local_steps)
    try:
        timeline = load(job.folder / "timeline.npz")
        steps = steps_of(timeline, together, steps_of_an_epoch(experiment))
    except (OSError, ValueError) as error:
        raise SpecError(f"{job.folder}: no step to compare: {error}") from None
    return beside(estimated(here), [steps], job.folder)


def at_site(
    experiment: Experiment, ranks: int, site: Site, machine: Machine | None = None
) -> Placed:
    """Return the experiment on `ranks` ranks of a site.

    machine: a measured one, such as `dlhpc calibrate` wrote in a job there; None: the experiment's own, if it
    names another than this one, or else what was measured here, which is said. Raises SpecError.
    """
    if site.scheduler == "local":
        return placed(experiment, ranks, machine)
    whole = ranks == int(experiment.devices + experiment.servers)
    if machine is None and experiment.machine.name != STAND_IN and whole:
        name = experiment.machine.name or "the machine of the file"
        return Placed(experiment, (f"the prediction is for {name}, as [machine] says.",), ranks)
    here = placed(experiment, ranks, machine)
    notes = [] if machine else [ELSEWHERE.format(site.name)]
    nodes = math.ceil(ranks / (site.ranks_per_node or ranks))
    if nodes > 1 and ranks % nodes == 0 and not experiment.servers:
        here = replace(here, experiment=_on_nodes(here.experiment, nodes))
        notes.append(f"{count(nodes, 'node')} {JOINED}")
    elif nodes > 1:
        notes.append("the prediction is for ranks on one node.")
    # A scheduler gives a core a rank.
    return replace(here, notes=(*here.notes, *notes), cores=ranks)


def _on_nodes(experiment: Experiment, nodes: int) -> Experiment:
    machine, each = experiment.machine, int(experiment.devices) // nodes
    room: dict[str, Any] = {"nodes": max(int(machine.nodes), nodes)}
    strategy = replace(experiment.strategy, nodes=nodes, devices_per_node=each)
    return replace(experiment, machine=replace(machine, **room), strategy=strategy).set({})
