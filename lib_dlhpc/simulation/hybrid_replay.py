"""What the ranks of a split network share in a simulation with events: messages, and scripts of collectives."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from simpy.events import Event

from lib_dlhpc.costs import compute, groups
from lib_dlhpc.costs.network import Network
from lib_dlhpc.layout import expert_group, group, parts, place
from lib_dlhpc.schedules import Schedule, messages, within
from lib_dlhpc.schedules.choice import plan
from lib_dlhpc.schedules.pipeline import Pipeline, Receive, Send
from lib_dlhpc.simulation.events import Script, take_part
from lib_dlhpc.simulation.program import Communication, program
from lib_dlhpc.simulation.simulation import Message, Process, Simulation
from lib_dlhpc.simulation.split import offloaded
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import AUTO

Row: TypeAlias = tuple[int, str, str, str, float, float, int]


class Replay:
    """What the ranks share: the simulation, their programs, scripts of exchanges, and the rows so far."""

    def __init__(
        self, experiment: Experiment, sim: Simulation, pipeline: Pipeline, scale: float
    ) -> None:
        self.experiment, self.sim, self.pipeline, self.scale = experiment, sim, pipeline, scale
        ranks = range(sim.platform.ranks)
        self.held = [parts(experiment, rank) for rank in ranks]
        self.programs = [[program(experiment, part, scale) for part in held] for held in self.held]
        self.moving = [[offloaded(experiment, part)[0] for part in held] for held in self.held]
        self.rows: list[Row] = []
        self.waits: list[Row] = []  # those of the pipeline, some of which is bubble
        self._messages: dict[tuple[Any, ...], Message] = {}
        self._scripts: dict[tuple[Any, ...], tuple[Script, set[int]]] = {}
        self._turns: dict[tuple[Any, ...], int] = {}
        self._met = 0
        self._all = Event(sim.env)

    def message(self, step: int, what: Send | Receive, source: int, target: int) -> Message:
        """Return the message that one rank sends and the other receives."""
        key = (step, what.what, what.microbatch, what.stage, source, target)
        if key not in self._messages:
            crossed = what.stage - (what.what == "gradient")
            chunk, at = divmod(crossed, self.pipeline.ranks)
            giver = source if what.what == "activation" else target
            assert place(self.experiment, giver).pipeline == at
            size = self.programs[giver][chunk].sends
            (self._messages[key],) = self.sim.messages(source, target, size)
        return self._messages[key]

    def run(
        self, rank: int, members: tuple[int, ...], name: str, of: Callable[[], Schedule]
    ) -> Process:
        """Take part in what `members` do next under this name."""
        key = (members, name)
        turn = self._turns[rank, key] = self._turns.get((rank, key), -1) + 1
        if (key, turn) not in self._scripts:
            self._scripts[key, turn] = Script(self.sim, of(), 1.0), set(members)
        script, missing = self._scripts[key, turn]
        yield from take_part(self.sim, rank, script)
        missing.remove(rank)
        if not missing:
            del self._scripts[key, turn]

    def communicate(self, rank: int, what: Communication) -> Process:
        """Take part in an exchange of a program."""
        if what.group == "experts":
            members = expert_group(self.experiment, rank)
            size = len(members) * what.bytes  # the blocks of all with all
            net = groups.expert_network(self.experiment)
            yield from self.collective(rank, members, "all_to_all", size, net, "experts")
            return
        members = group(self.experiment, rank, what.group)
        if what.way == "halo":
            yield from self.run(
                rank, members, f"halo {what.pairs}", lambda: self._halo(members, what)
            )
        else:
            net = groups.group_network(self.experiment, what.group)
            goal = groups.GOALS[what.way]
            yield from self.collective(rank, members, goal, what.bytes, net, what.way)

    def collective(
        self,
        rank: int,
        members: tuple[int, ...],
        goal: str,
        size: float,
        net: Network,
        what: str,
        name: str = AUTO,
    ) -> Process:
        """Take part in a collective on `size` bytes, by the algorithm that is named or chosen for it."""
        yield from self.run(
            rank,
            members,
            what,
            lambda: self._within(plan(goal, size, net, len(members), round(size), name), members),
        )

    def meet(self) -> Process:
        """Wait for all ranks."""
        self._met += 1
        if self._met == self.sim.platform.ranks:
            self._met, done, self._all = 0, self._all, Event(self.sim.env)
            done.succeed()
        else:
            yield self._all

    def _within(self, plan: Schedule, members: tuple[int, ...]) -> Schedule:
        """The same schedule for some of all ranks."""
        everyone = self.sim.platform.ranks
        return Schedule(
            plan.name, everyone, plan.elements, lambda: within(plan.rounds(), members), plan.goal
        )

    def _halo(self, members: tuple[int, ...], what: Communication) -> Schedule:
        """One round in which all neighbors swap rows."""
        source, target, size = zip(*what.pairs, strict=True)
        at = np.array(members)
        count = np.rint(np.array(size)).astype(np.int64)
        swap = messages(at[list(source)], at[list(target)], 0, count, False)
        return Schedule("halo", self.sim.platform.ranks, int(count.sum()), lambda: [swap])


def swap_tables(replay: Replay, rank: int) -> Process:
    """Swap the gradients of word tables that another stage has as well."""
    pipeline = group(replay.experiment, rank, "pipeline")
    size = compute.BYTES[replay.experiment.strategy.precision]
    for part in replay.held[rank]:
        for name, stages in part.shared.items():
            table = next(layer for layer in part.model.layers if layer.name == name)
            members = tuple(sorted({pipeline[stage % len(pipeline)] for stage in stages}))
            if len(members) > 1:
                swap = partial(_swap, replay, members, float(table.parameters * size))
                yield from replay.run(rank, members, f"table {name}", swap)


def _swap(replay: Replay, members: tuple[int, ...], size: float) -> Schedule:
    swap = messages(np.array(members), np.array(members[::-1]), 0, round(size), True)
    return Schedule("swap", replay.sim.platform.ranks, round(size), lambda: [swap])
