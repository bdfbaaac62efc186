"""The longest path with an array for each stage: all ranks, pass by pass, each with a factor on its compute time.

A rank sends its messages to other stages one after another: each occupies its port for bytes beta, behind those before
it, and arrives alpha later. Long messages, which may meet on a link, share it: see ports.py. There, too, those to the
same stage leave in order.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from typing import Any, TypeAlias

import numpy as np

from lib_dlhpc.arrays import Floats
from lib_dlhpc.program.calls import FORWARD, Call, calls
from lib_dlhpc.program.fold import Post, Run
from lib_dlhpc.program.group import Group
from lib_dlhpc.program.instructions import Collective, Transfer, Wait
from lib_dlhpc.program.intervals import Posted, Record, draw_pass, message_name
from lib_dlhpc.program.path import Path
from lib_dlhpc.program.ports import Ports, in_turn, line_of
from lib_dlhpc.program.program import Block, Program

# ranked(place, collective, when each rank of the stage joins) -> when each leaves it
RankedExchange: TypeAlias = Callable[[int, Collective, Floats], Floats]
REPORTED = 64  # calls in a report


class RankPath(Path):
    """The clocks of all ranks through one step.

    factor: of each stage's compute time, arrays. begin: s, of each stage; default: 0. ranked: when each rank leaves a
    collective that its ranks leave one by one; by default all leave together. free: messages between stages take no
    time. record: see Record.
    """

    maximum, last = np.maximum, staticmethod(np.max)

    def __init__(
        self,
        program: Program,
        factor: Sequence[Floats],
        begin: Sequence[Any] | None = None,
        *,
        ranked: RankedExchange | None = None,
        free: bool = False,
        record: Record | None = None,
    ) -> None:
        super().__init__(program, factor, begin or [0.0] * len(factor), free)
        self.ranked, self.record, self.drawn = ranked, record or self.record, record is not None
        self.all = factor[0].size == prod(program.shape)
        self._port: dict[int, Any] = {}  # when a stage's ranks have sent all before
        self._ports = Ports(self.meets, False) if self.meets else None
        self._runs: dict[tuple[int, int], tuple[Any, Any, Any, Any]] = {}

    def run(self, report: Callable[[float, int], object] | None = None) -> None:
        """Execute all calls; `report` is called now and then with the s of a rank and the calls since the last time."""
        arrives: dict[int, Any] = {}
        for number, call in self._calls():
            place = call.place
            if call.source >= 0:
                self._receive(call, arrives.pop(call.source))
            if call.computes:
                self.clock[place] = self._computed(call, self.clock[place])
            if call.target >= 0:
                arrives[number] = self._send(call, self.clock[place])
            if report is not None and number % REPORTED == REPORTED - 1:
                report(float(np.max(self.clock[place])), REPORTED)
        if report is not None:
            report(self.end, len(calls(self.program.schedule)) % REPORTED)

    def _calls(self) -> Iterator[tuple[int, Call]]:
        """Yield all calls, with their numbers."""
        pipe = self.program.schedule
        if self.meets is None and self.exchanges is None:
            return enumerate(calls(pipe))
        left = defaultdict[int, deque[tuple[int, Call]]](deque)
        for each in enumerate(calls(pipe)):
            left[each[1].place].append(each)
        return (left[place].popleft() for place in in_turn(pipe))

    def _receive(self, call: Call, arrived: Any) -> None:
        place, start = call.place, self.clock[call.place]
        self.clock[place] = end = self.maximum(start, arrived)
        self.idle[place] = self.idle[place] + (end - start)
        what = f"wait for {message_name(call)}"
        self.record(place, "compute", "wait", what, start, end, idle=True)

    def _send(self, call: Call, start: Any) -> Any:
        """Return when the message of a call arrives: it leaves when those before it have left the port."""
        if self.free:
            return start
        before, chunk = call.before
        crossed = self.program.stages[before][chunk]
        line, busy, more = line_of(call.place, before), crossed.sends.bandwidth, 0.0
        port = self._port.get(call.place, start)
        leaves = self._ports.begin(line, start) if self._ports else self.maximum(start, port)
        if self.exchanges is not None:
            boundary = before * self.program.schedule.chunks + chunk
            more = self.exchanges.meet(call.place, boundary, leaves, busy)
        self._port[call.place] = leaves + busy + more
        late = self._ports.send(line, leaves, busy + more) if self._ports else 0.0
        arrives = leaves + crossed.sends.total + more + late
        where = (call.place, "communication", "communication", message_name(call))
        self.record(*where, leaves, arrives, bytes=max(crossed.bytes))
        return arrives

    def _computed(self, call: Call, start: Any) -> Any:
        """Return when the pass of a call ends; messages may meet the gradients that it completes."""
        place, last = call.place, call.once and call.phase != FORWARD
        block = self.program.stages[place][call.chunk].block(call.phase, call.once)
        run = partial(self._pass, call, block, start)
        if self.exchanges is None or not last:
            return run()
        return self.exchanges.passed(place, block, start, self.streams[place], run)

    def _pass(self, call: Call, block: Block, start: Any) -> Any:
        """Return when a pass ends."""
        place, ends = call.place, self.posted[call.place]
        now, worked, posted = start, 0.0, list[Posted]()
        waits, sent, word = dict[str, Any](), 0.0, ""  # waits: s, by what is waited for
        for each in block.folded:
            if isinstance(each, Run):
                now, work = self._work(each, place, now)
                worked = worked + work
                if each.messages:
                    sent, word = sent + each.bytes, word or self.program.kinds[each.kind]
            elif isinstance(each, Wait):
                until = ends[each.key] if each.key else self.streams[place].get(each.stream, now)
                met = self.maximum(now, until)
                if self.drawn:
                    waits[each.label] = waits.get(each.label, 0.0) + (met - now)
                else:
                    # np.mean without its checks
                    self.late[each.kind] += float(np.add.reduce(met - now, axis=None) / met.size)
                now = met
            else:
                begins, until = self.post(place, each, now)
                ends[each.what.key] = until
                posted.append((each, now, begins, until))
        if self.drawn:
            times = (start, start + worked, now)
            draw_pass(self.record, self.program, call, times, waits, (word, sent), posted)
        return now

    def _work(self, run: Run, place: int, start: Any) -> tuple[Any, Any]:
        """Return when a run ends, and the seconds of work in it."""
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

    def takes(self, place: int, post: Post, start: Any) -> Any:
        """Return when an instruction of another stream ends; collectives wait for the last rank of the group."""
        what = post.what
        if isinstance(what, Transfer):
            return start + post.seconds
        if what.ranked and self.ranked is not None:
            return self.ranked(place, what, start) + post.added
        return self._latest(self.program.groups[what.group], start) + post.seconds

    def _latest(self, group: Group, values: Any) -> Any:
        if self.all:
            return group.latest(values)
        return np.full_like(values, values.max())  # one rank of each variant
