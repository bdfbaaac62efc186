"""The longest path through a program: when ranks start and end each pass of a step, and what follows the passes.

Two views of one arithmetic. In stage_path.py a float stands for all ranks of a stage (a prediction). In rank_path.py an
array of `Program.shape` has each rank of a stage with its own factor of compute time (a simulation in rounds).

Source of the arithmetic: Baccelli, Cohen, Olsder & Quadrat, "Synchronization and Linearity" (1992).
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import reduce
from typing import Any

from lib_dlhpc.program.fold import Post
from lib_dlhpc.program.gradient_contention import GradientExchanges
from lib_dlhpc.program.instructions import (
    Barrier,
    Collective,
    Instruction,
    PairAllreduce,
    Transfer,
    Update,
    Wait,
)
from lib_dlhpc.program.intervals import Record
from lib_dlhpc.program.program import Program


class Path:
    """The clocks of all stages through one step; `run` of either view executes the passes, `finish` what follows.

    factor: of each stage's compute time. begin: s, of each stage. free: messages between stages take no time.
    """

    maximum: Any  # of two times
    last: Any  # of the times of a stage, a float

    def __init__(
        self, program: Program, factor: Sequence[Any], begin: Sequence[Any], free: bool
    ) -> None:
        self.program, self.factor, self.free = program, factor, free
        self.record: Record = lambda *_, **__: None
        self.clock = [start + 0.0 * each for start, each in zip(begin, factor, strict=True)]
        self.idle = [0.0 * each for each in factor]  # waits for messages of other stages
        self.late: dict[str, Any] = defaultdict(float)  # waits within passes, all stages, by kind
        self.after: dict[str, float] = defaultdict(float)  # s after the passes, by kind
        self.met, self.flush = False, 0.0  # whether, and when, all met after their last pass
        self.streams: list[dict[str, Any]] = [{} for _ in factor]  # when each is free, by stage
        self.posted: list[dict[str, Any]] = [{} for _ in factor]  # when each ends, by stage, key
        self.meets = None if free else program.meets
        shares, one = None if free else program.shares, isinstance(factor[0], float)
        self.exchanges = GradientExchanges(shares, self.clock, one) if shares else None

    @property
    def end(self) -> float:
        """When the last rank finishes."""
        return float(max(map(self.last, self.clock)))

    def takes(self, place: int, post: Post, start: Any) -> Any:
        """Return when an instruction of another stream ends whose ranks start together."""
        return start + post.seconds

    def post(self, place: int, post: Post, now: Any) -> tuple[Any, Any]:
        """Return when an instruction of another stream starts and ends: behind those before it."""
        streams, stream = self.streams[place], post.what.stream
        start = self.maximum(now, streams[stream]) if stream in streams else now
        streams[stream] = end = self.takes(place, post, start)
        return start, end

    def finish(self) -> float:
        """Execute what follows after the last call; return when the last rank finishes."""
        if self.exchanges is not None:
            self.exchanges.settle(self.streams)
        for row, distinct in zip(self.program.end, self.program.ends.distinct, strict=True):
            self.row(row, distinct)
        return self.end

    def row(self, row: Sequence[Any], distinct: Sequence[Any]) -> None:
        """Execute an instruction on each stage; distinct: those that differ, see ends.py."""
        before, kind = self.end, ""
        for place, what in enumerate(row):
            kind = kind or getattr(what, "kind", "")
            if isinstance(what, Barrier):
                self._meet()
                break
            if isinstance(what, PairAllreduce):
                met = reduce(self.maximum, [self.clock[each] for each in what.places])
                for each in what.places:
                    self._wait(each, what.label, met + float(what.cost.total))
                break
            self._after(place, what)
        self.after[kind] += self.end - before

    def _after(self, place: int, what: Instruction | None) -> None:
        start = self.clock[place]
        if isinstance(what, Update):
            self.clock[place] = end = start + self.factor[place] * what.seconds
            self.record(place, "compute", "update", "update", start, end)
        elif isinstance(what, Wait):
            end = self.maximum(start, self.streams[place].get(what.stream, start))
            self._wait(place, what.label, end)
        elif isinstance(what, Collective | Transfer):
            prices = self.program.ends.prices[place]
            priced = what if isinstance(what, Transfer) else prices.priced(what)
            begin, end = self.post(place, Post(what, priced.seconds, priced.bytes), start)
            if what.label:
                where = (place, "communication", "communication", what.label)
                self.record(*where, begin, end, bytes=priced.bytes)

    def _meet(self) -> None:
        end = self.end
        for place, start in enumerate(self.clock):
            self._wait(place, "the others", 0.0 * start + end)
        if not self.met:
            self.met, self.flush = True, end

    def _wait(self, place: int, what: str, end: Any) -> None:
        """Let a stage wait after its passes; until all have met, some of that may be bubble."""
        start, self.clock[place] = self.clock[place], end
        self.record(place, "compute", "wait", f"wait for {what}", start, end, idle=not self.met)
