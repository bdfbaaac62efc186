"""The longest path through a program: when every rank starts and ends each pass of a step.

Two views of one arithmetic. With a float for each stage, one rank stands for all that do the same (a prediction).
With an array of `Program.shape` for each stage, all ranks are simulated, each with a factor on its compute time (a
simulation in rounds). A rank sends its messages to other stages one after another: each occupies its port for
bytes beta, behind those before it, and arrives alpha later. Long messages, which may meet on a link, share it: see
ports.py. There, too, those to the same stage leave in order.

Source of the arithmetic: Baccelli, Cohen, Olsder & Quadrat, "Synchronization and Linearity" (1992).
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from itertools import repeat
from math import prod
from typing import Any, TypeAlias

import numpy as np

from lib_dlhpc.arrays import Floats
from lib_dlhpc.program.calls import FORWARD, PASSES, Call, calls
from lib_dlhpc.program.fold import Post, Run
from lib_dlhpc.program.gradient_contention import GradientExchanges
from lib_dlhpc.program.group import Group
from lib_dlhpc.program.instructions import (
    Barrier,
    Collective,
    Instruction,
    PairAllreduce,
    Transfer,
    Update,
    Wait,
)
from lib_dlhpc.program.intervals import Posted, Record, draw_pass, message_name
from lib_dlhpc.program.ports import Ports, in_turn, line_of
from lib_dlhpc.program.program import Alone, Block, Program
from lib_dlhpc.program.rounds import sections
from lib_dlhpc.program.shared_walk import SharedWalk
from lib_dlhpc.program.walk import Walk

# ranked(place, collective, when each rank of the stage joins) -> when each leaves it
RankedExchange: TypeAlias = Callable[[int, Collective, Floats], Floats]
REPORTED = 64  # calls in a report


class Path:
    """The clocks of all ranks through one step.

    factor: of each stage's compute time, floats or arrays. begin: s, of each stage if ranks begin apart. ranked: when
    each rank leaves a collective that its ranks leave one by one; by default all leave together. free: messages
    between stages take no time. record: see Record.
    """

    def __init__(
        self,
        program: Program,
        factor: Sequence[Any],
        begin: Sequence[Any] | float = 0.0,
        *,
        ranked: RankedExchange | None = None,
        free: bool = False,
        record: Record | None = None,
    ) -> None:
        self.program, self.factor, self.ranked, self.free = program, factor, ranked, free
        self.record = record
        self.one = isinstance(factor[0], float)  # one rank stands for all of a stage
        self.all = not self.one and factor[0].size == prod(program.shape)
        self.maximum: Any = max if self.one else np.maximum
        starts = repeat(begin) if isinstance(begin, float) else begin
        self.clock = [start + 0.0 * each for start, each in zip(starts, factor, strict=False)]
        self.idle = [0.0 * each for each in factor]  # waits for messages of other stages
        self.late: dict[str, Any] = defaultdict(float)  # waits within passes, all stages, by kind
        self.after: dict[str, float] = defaultdict(float)  # s after the passes, by kind
        self._free: list[dict[str, Any]] = [{} for _ in factor]  # when a stream is, by stage
        # When what a first forward pass has posted ends, by stage and key.
        self._ends: list[dict[str, Any]] = [{} for _ in factor]
        self._port: dict[int, Any] = {}  # when a stage's ranks have sent all before
        self.meets = None if free else program.meets
        self._ports = Ports(self.meets, self.one) if self.meets else None
        shares = None if free else program.shares
        self._exchanges = GradientExchanges(shares, self.clock, self.one) if shares else None
        self._runs: dict[tuple[int, int], tuple[Any, Any, Any, Any]] = {}
        self._met = False
        self.flush = 0.0  # when all ranks have met, after their last pass

    @property
    def end(self) -> float:
        """When the last rank finishes."""
        if self.one:
            return float(max(self.clock))
        return max(float(np.max(each)) for each in self.clock)

    def run(self, report: Callable[[float, int], object] | None = None) -> None:
        """Execute all calls; `report` is called now and then with the s of a rank and the calls since the last time."""
        if self.one and self.record is None:
            self._run_one()
            return
        arrives: dict[int, Any] = {}
        for number, call in self._calls():
            place = call.place
            if call.source >= 0:
                self._receive(call, arrives.pop(call.source))
            end = self.clock[place]
            if call.computes:
                block = self.program.stages[place][call.chunk].block(call.phase, call.once)
                last = call.once and call.phase != FORWARD
                passed = self._last if last else self._block
                self.clock[place] = end = passed(place, block, end, self.late, call)
            if call.target >= 0:
                arrives[number] = self._send(call, end)
            if report is not None and number % REPORTED == REPORTED - 1:
                report(float(np.max(end)), REPORTED)
        if self._exchanges is not None:
            self._exchanges.settle(self._free)
        if report is not None:
            report(self.end, len(calls(self.program.schedule)) % REPORTED)

    def _calls(self) -> Iterator[tuple[int, Call]]:
        """Yield all calls, with their numbers."""
        pipe = self.program.schedule
        if self.meets is None and self._exchanges is None:
            return enumerate(calls(pipe))
        own: list[list[tuple[int, Call]]] = [[] for _ in range(pipe.ranks)]
        for each in enumerate(calls(pipe)):
            own[each[1].place].append(each)
        left = [iter(each) for each in own]
        return (next(left[place]) for place in in_turn(pipe))

    def _run_one(self) -> None:
        """The same with one number for each stage: what a repeated pass posts it waits for, so it takes as long."""
        pipeline, many = self.program.schedule, self.program.schedule.each
        hops = [one.sends for stage in self.program.stages for one in stage]
        busy = [0.0 if self.free else float(hop.bandwidth) for hop in hops]
        takes = [0.0 if self.free else float(hop.total) for hop in hops]
        worked, seconds = [0.0] * pipeline.ranks, list[float]()
        known = dict[tuple[Any, ...], tuple[tuple[Block | None, int], ...]]()
        both = list[float]()  # of overlapped passes
        for place, stage in enumerate(self.program.stages):
            for number, chunk in enumerate(stage):
                overlaps = self.program.overlaps(place, number)
                key = id(chunk.last), id(chunk.overlapped), overlaps
                if key not in known:
                    known[key] = chunk.repeated(many, overlaps)
                for block, times in known[key]:
                    seconds.append(self._repeated(place, block, times) if block and times else 0.0)
                    worked[place] += times * seconds[-1]
                both.append(seconds.pop())
        seconds += [0.0, *both]  # of calls that compute nothing
        first = not any(chunk.first for each, _ in self.program.distinct for chunk in each)

        def only(number: int, start: float) -> float:
            if first and not number % len(PASSES):
                return start + seconds[number]
            place, chunk = divmod(number // len(PASSES), pipeline.chunks)
            phase, own = PASSES[number % len(PASSES)], self.program.stages[place][chunk]
            if phase == FORWARD and own.first is None:
                return start + seconds[number]
            block = own.block(phase, True)
            # A first pass may wait for what one of another chunk has posted.
            end = (
                self._block(place, block, start, self.late)
                if phase == FORWARD
                else self._last(place, block, start, self.late)
            )
            worked[place] += end - start
            return end

        begin, how = self.clock, (seconds, only, busy, takes, self.clock, self._exchanges)
        walk = Walk(*how) if self.meets is None else SharedWalk(*how, meets=self.meets)
        self.clock = walk.run(sections(pipeline))
        each = zip(self.clock, begin, worked, strict=True)
        self.idle = [end - start - work for end, start, work in each]
        if self._exchanges is not None:
            self._exchanges.settle(self._free)

    def _last(
        self, place: int, block: Block, start: Any, late: dict[str, Any], call: Call | None = None
    ) -> Any:
        """Return when a pass ends that completes gradients, see `_block`."""
        quick = self.one and self.record is None and self.ranked is None
        usual = partial(self._block, place, block, start, late, call)
        run = partial(self._only, place, block, start) if quick else usual
        if self._exchanges is None:
            return run()
        return self._exchanges.passed(place, block, start, self._free[place], run)

    def _repeated(self, place: int, block: Block, times: int) -> float:
        """Return the seconds of a pass that is not the only one, and count what its repetitions wait for."""
        seconds, late, _ = self._alone(place, block)
        for kind, waited in late.items():
            self.late[kind] += times * waited
        return seconds

    def _only(self, place: int, block: Block, start: float) -> float:
        """Return when a pass ends that is the only one that completes gradients."""
        if any(at > start for at in self._free[place].values()):
            return self._block(place, block, start, self.late)
        seconds, late, free = self._alone(place, block)
        for kind, waited in late.items():
            self.late[kind] += waited
        for stream, at in free.items():
            self._free[place][stream] = start + at
        return start + seconds

    def _alone(self, place: int, block: Block) -> Alone:
        """Return the seconds of a pass that finds all streams free; alike stages have the same."""
        factor = self.factor[place]
        if self.ranked is None:
            return block.alone(factor)
        kept, self._free[place] = self._free[place], {}
        late = defaultdict[str, float](float)
        found = self._block(place, block, 0.0, late), late, self._free[place]
        self._free[place] = kept
        return found

    def finish(self) -> float:
        """Execute what follows after the last call; return when the last rank finishes."""
        quick = self.one and self.record is None and self.ranked is None
        for row, distinct in zip(self.program.end, self.program.ends.distinct, strict=True):
            if quick and all(isinstance(what, Collective | Transfer) for what, *_ in distinct):
                self._post_row(row, [each[:2] for each in distinct])
                continue
            before, kind = self.end, ""
            for place, what in enumerate(row):
                if isinstance(what, Barrier):
                    self._meet()
                    break
                if isinstance(what, PairAllreduce):
                    kind = what.kind
                    self._pair(what)
                    break
                if what is not None:
                    kind = kind or getattr(what, "kind", "")
                    self._after(place, what)
            self.after[kind] += self.end - before
        return self.end

    def _receive(self, call: Call, arrived: Any) -> None:
        place = call.place
        start = self.clock[place]
        self.clock[place] = end = self.maximum(start, arrived)
        self.idle[place] = self.idle[place] + (end - start)
        if self.record is not None:
            name = f"wait for {message_name(call)}"
            self.record(place, "compute", "wait", name, start, end, idle=True)

    def _send(self, call: Call, start: Any) -> Any:
        """Return when the message of a call arrives: it leaves when those before it have left the port."""
        if self.free:
            return start
        before, chunk = call.before
        crossed = self.program.stages[before][chunk]
        pipe, line = self.program.schedule, line_of(call.place, before)
        port = self._port.get(call.place, start)
        leaves = self._ports.begin(line, start) if self._ports else self.maximum(start, port)
        busy, more = crossed.sends.bandwidth, 0.0
        if self._exchanges is not None:
            boundary = before * pipe.chunks + chunk
            more = self._exchanges.meet(call.place, boundary, leaves, busy)
        self._port[call.place] = leaves + busy + more
        late = self._ports.send(line, leaves, busy + more) if self._ports else 0.0
        arrives = leaves + crossed.sends.total + more + late
        if self.record is not None:
            where = (call.place, "communication", "communication", message_name(call))
            self.record(*where, leaves, arrives, bytes=max(crossed.bytes))
        return arrives

    def _block(
        self, place: int, block: Block, start: Any, late: dict[str, Any], call: Call | None = None
    ) -> Any:
        """Return when a pass ends; late: its waits for other streams are added, by kind; call: to record it."""
        ends = self._ends[place]
        if self.one and self.record is None and self.ranked is None:
            end, waited = block.end(self.factor[place], start, self._free[place], ends)
            for kind, seconds in waited.items():
                late[kind] += seconds
            return end
        now, worked = start, 0.0
        posted: list[Posted] = []
        waits: dict[str, Any] = {}  # s, by what is waited for
        sent, word = 0.0, ""
        for each in block.folded:
            if isinstance(each, Run):
                now, work = self._work(each, place, now)
                worked = worked + work
                if each.messages:
                    sent, word = sent + each.bytes, word or self.program.kinds[each.kind]
            elif isinstance(each, Wait):
                until = ends[each.key] if each.key else self._free[place].get(each.stream, now)
                met = self.maximum(now, until)
                if self.record is not None:
                    waits[each.label] = waits.get(each.label, 0.0) + (met - now)
                else:
                    late[each.kind] += _mean(met - now)
                now = met
            else:
                begins, until = self._post(place, each, now)
                ends[each.what.key] = until
                posted.append((each, now, begins, until))
        if self.record is not None and call is not None:
            times = (start, start + worked, now)
            draw_pass(self.record, self.program, call, times, waits, (word, sent), posted)
        return now

    def _work(self, run: Run, place: int, start: Any) -> tuple[Any, Any]:
        """Return when a run ends, and the seconds of work in it."""
        if self.one:
            worked = self.factor[place] * (run.head + run.middle + run.tail)
            return start + worked + run.messages, worked
        key = (place, id(run))
        if key not in self._runs:
            slow = self.factor[place]
            slowed = self._latest(self.program.in_step, slow * run.middle) + run.messages
            worked = slow * (run.head + run.middle + run.tail)
            self._runs[key] = slow * run.head, slowed, slow * run.tail, worked
        head, slowed, tail, worked = self._runs[key]
        if not run.messages:
            return start + worked, worked
        return self._latest(self.program.in_step, start + head) + slowed + tail, worked

    def _post(self, place: int, post: Post, now: Any) -> tuple[Any, Any]:
        """Return when a posted instruction starts and ends."""
        what, free = post.what, self._free[place]
        start = self.maximum(now, free[what.stream]) if what.stream in free else now
        alone = self.one and self.ranked is None
        end = start + post.seconds if alone else self._done(place, post, start)
        free[what.stream] = end
        return start, end

    def _done(self, place: int, post: Post, start: Any) -> Any:
        what = post.what
        if isinstance(what, Transfer):
            return start + post.seconds
        if what.ranked and self.ranked is not None:
            return self.ranked(place, what, start) + post.added
        return self._latest(self.program.groups[what.group], start) + post.seconds

    def _latest(self, group: Group, values: Any) -> Any:
        if self.one:
            return values
        if self.all:
            return group.latest(values)
        return np.full_like(values, values.max())  # one rank of each variant

    def _after(self, place: int, what: Instruction) -> None:
        """Execute an instruction of the end of a step on one stage."""
        start = self.clock[place]
        if isinstance(what, Update):
            self.clock[place] = end = start + self.factor[place] * what.seconds
            self._add(place, "update", "update", start, end)
        elif isinstance(what, Wait):
            self.clock[place] = end = self.maximum(start, self._free[place].get(what.stream, start))
            self._add(place, "wait", f"wait for {what.label}", start, end, idle=not self._met)
        elif isinstance(what, Collective | Transfer):
            prices = self.program.ends.prices[place]
            priced = what if isinstance(what, Transfer) else prices.priced(what)
            size = priced.bytes
            begin, end = self._post(place, Post(what, priced.seconds, size), start)
            if self.record is not None and what.label:
                where = (place, "communication", "communication", what.label)
                self.record(*where, begin, end, bytes=size)

    def _post_row(self, row: Sequence[Any], distinct: Sequence[Any]) -> None:
        """Post an instruction on each stage, as `_after` does; distinct: each of them once, with its prices."""
        seconds = {
            (id(each), id(on)): (each if isinstance(each, Transfer) else on.priced(each)).seconds
            for each, on in distinct
        }
        each_place = zip(self._free, self.clock, row, self.program.ends.prices, strict=True)
        for free, now, what, on in each_place:
            if what is not None:
                stream = what.stream
                free[stream] = max(now, free.get(stream, now)) + seconds[id(what), id(on)]

    def _pair(self, what: PairAllreduce) -> None:
        met = reduce(self.maximum, [self.clock[place] for place in what.places])
        for place in what.places:
            start = self.clock[place]
            self.clock[place] = end = met + float(what.cost.total)
            self._add(place, "wait", f"wait for {what.label}", start, end, idle=not self._met)

    def _meet(self) -> None:
        end = self.end
        for place, start in enumerate(self.clock):
            self.clock[place] = 0.0 * start + end
            self._add(place, "wait", "wait for the others", start, end, idle=not self._met)
        if not self._met:
            self._met, self.flush = True, end

    def _add(self, place: int, kind: str, name: str, start: Any, end: Any, **more: Any) -> None:
        if self.record is not None:
            self.record(place, "compute", kind, name, start, end, **more)


def _mean(values: Any) -> Any:
    if isinstance(values, float):
        return values
    return float(np.add.reduce(values, axis=None) / values.size)  # np.mean without its checks
