"""The longest path with one number for each stage: one rank stands for all that do the same.

What a repeated pass posts it waits for, so it takes as long each time. walk.py has the order of passes.
"""

from collections.abc import Sequence
from typing import Any

from lib_dlhpc.program.calls import FORWARD, PASSES
from lib_dlhpc.program.instructions import Collective, Transfer
from lib_dlhpc.program.path import Path
from lib_dlhpc.program.program import Block, Program
from lib_dlhpc.program.rounds import sections
from lib_dlhpc.program.shared_walk import SharedWalk
from lib_dlhpc.program.walk import Walk


class StagePath(Path):
    """The clocks of stages through one step, from 0 s; factor: of compute times."""

    maximum, last = staticmethod(max), float

    def __init__(self, program: Program, factor: float, *, free: bool = False) -> None:
        ranks = program.schedule.ranks
        super().__init__(program, [factor] * ranks, [0.0] * ranks, free)
        self.worked = [0.0] * ranks  # s of the passes of each stage
        self.first_alike = not any(chunk.first for each, _ in program.distinct for chunk in each)
        self.seconds = self._repeated()

    def run(self) -> None:
        """Execute all calls."""
        hops = [one.sends for stage in self.program.stages for one in stage]
        busy = [0.0 if self.free else float(hop.bandwidth) for hop in hops]
        takes = [0.0 if self.free else float(hop.total) for hop in hops]
        begin, how = self.clock, (self.seconds, self._only, busy, takes, self.clock, self.exchanges)
        walk = Walk(*how) if self.meets is None else SharedWalk(*how, meets=self.meets)
        self.clock = walk.run(sections(self.program.schedule))
        each = zip(self.clock, begin, self.worked, strict=True)
        self.idle = [end - start - work for end, start, work in each]

    def _repeated(self) -> list[float]:
        """Return the seconds of each pass as Walk numbers them, and count what its repetitions wait for."""
        known = dict[tuple[Any, ...], tuple[tuple[Block | None, int], ...]]()
        seconds, both = list[float](), list[float]()  # both: of overlapped passes
        for place, stage in enumerate(self.program.stages):
            for number, chunk in enumerate(stage):
                overlaps = self.program.overlaps(place, number)
                key = id(chunk.last), id(chunk.overlapped), overlaps
                if key not in known:
                    known[key] = chunk.repeated(self.program.schedule.each, overlaps)
                for block, times in known[key]:
                    found = self._alone(place, block, times)[0] if block and times else 0.0
                    seconds.append(found)
                    self.worked[place] += times * found
                both.append(seconds.pop())
        return [*seconds, 0.0, *both]  # 0: of calls that compute nothing

    def _alone(self, place: int, block: Block, times: int = 1) -> tuple[float, Any]:
        """Return the seconds of passes that find all streams free, and when these are again; count their waits."""
        seconds, late, streams = block.alone(self.factor[place])
        for kind, waited in late.items():
            self.late[kind] += times * waited
        return seconds, streams

    def _only(self, number: int, start: float) -> float:
        """Return when a first pass ends, or one that completes gradients; number: as in rounds.py."""
        if self.first_alike and not number % len(PASSES):
            return start + self.seconds[number]
        place, chunk = divmod(number // len(PASSES), self.program.schedule.chunks)
        phase, own = PASSES[number % len(PASSES)], self.program.stages[place][chunk]
        if phase == FORWARD and own.first is None:
            return start + self.seconds[number]
        # A first pass may wait for what one of another chunk has posted.
        passed = self._pass if phase == FORWARD else self._last
        end = passed(place, own.block(phase, True), start)
        self.worked[place] += end - start
        return end

    def _last(self, place: int, block: Block, start: float) -> float:
        """Return when a pass ends that completes gradients, which messages may meet."""
        streams = self.streams[place]

        def run() -> float:
            if any(at > start for at in streams.values()):
                return self._pass(place, block, start)
            seconds, free = self._alone(place, block)
            for stream, at in free.items():
                streams[stream] = start + at
            return start + seconds

        if self.exchanges is None:
            return run()
        return float(self.exchanges.passed(place, block, start, streams, run))

    def _pass(self, place: int, block: Block, start: float) -> float:
        """Return when a pass ends that may find streams busy."""
        streams, posted = self.streams[place], self.posted[place]
        end, waited = block.end(self.factor[place], start, streams, posted)
        for kind, seconds in waited.items():
            self.late[kind] += seconds
        return end

    def row(self, row: Sequence[Any], distinct: Sequence[Any]) -> None:
        """Execute an instruction on each stage; what all post is priced once for those that are alike."""
        if not all(isinstance(what, Collective | Transfer) for what, *_ in distinct):
            return super().row(row, distinct)
        seconds = {
            (id(each), id(on)): (each if isinstance(each, Transfer) else on.priced(each)).seconds
            for each, on, _ in distinct
        }
        prices = self.program.ends.prices
        for streams, now, what, on in zip(self.streams, self.clock, row, prices, strict=True):
            if what is not None:
                start = max(now, streams.get(what.stream, now))
                streams[what.stream] = start + seconds[id(what), id(on)]
