"""Processes on a platform that compute and exchange messages: SimPy, with flows that share links.

A rank sends its messages one after another (its port is serial): alpha passes, then the bytes flow. Posted
messages do not hold up their sender; the bytes of those from one rank to another flow in order, one message
at a time. A message of more than `eager` bytes starts when its receiver is ready (rendezvous), a smaller one at
once. An exchange is over when all is sent and all has arrived.
"""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from math import inf
from typing import Any, NamedTuple, TypeAlias, cast
from weakref import WeakKeyDictionary

import numpy as np
import simpy
from numpy.typing import ArrayLike
from simpy.events import Event, Timeout

from lib_dlhpc.costs.platform import Platform
from lib_dlhpc.errors import SpecError
from lib_dlhpc.gc_pause import gc_paused
from lib_dlhpc.schedules.rounds import Round
from lib_dlhpc.simulation.flows import Flows
from lib_dlhpc.simulation.watchdog import Cancelled, DeadlockError, Progress, Wait

Process: TypeAlias = Generator[Event, Any, None]
STEPS_BETWEEN_PROGRESS = 4096
KNOWN = 100_000  # messages whose routes are kept: rounds recur


class Message(NamedTuple):
    """On its way from source to target; `tag` is known to both and unique in a simulation."""

    tag: int
    source: int
    target: int
    bytes: float
    links: tuple[int, ...]
    latency: float  # s


class Traffic(NamedTuple):
    """Others' messages on the same links: the first at `start`, then one a while after the last arrived.

    bytes may be infinite: a flow that never ends and takes its fair share for good.
    """

    source: int  # rank
    target: int  # rank
    bytes: float
    start: float = 0.0  # s
    pause: float = inf  # s between two; infinite: there is only one


# record(source, target, start, stop, bytes, round or words): called when a message has arrived.
Record: TypeAlias = Callable[[int, int, float, float, float, int | str], None]


class Simulation:
    """Ranks as processes on a platform; `exchange`, `send`, `compute` and `until` are what a process yields.

    speed: of each rank, 1 is normal, 0.5 takes twice as long to compute. sharing: False for links
    without contention. eager: B up to which a message does not wait for its receiver; by default all
    wait, so that ranks in step stay in step. After `run`: `delivered` messages, `steps` events, `flows.work` rates set.
    """

    def __init__(
        self,
        on: Platform,
        speed: ArrayLike = 1.0,
        sharing: bool = True,
        eager: float = 0.0,
        record: Record | None = None,
    ) -> None:
        self.platform, self.record, self.eager = on, record, eager
        self.env = simpy.Environment()
        self.flows = Flows(self.env, on.capacity.tolist(), sharing)
        self.speed = np.broadcast_to(np.asarray(speed, dtype=np.float64), on.ranks).tolist()
        if not all(value > 0 for value in self.speed):
            raise SpecError(
                f"speed = {min(self.speed):g}: expected a number above 0 for each rank."
            )
        self.stopped: list[int] = []  # ranks that failed
        self.delivered = self.steps = 0
        self._alive = 0  # processes to wait for
        self._moving = 0  # messages and computations in flight
        self._tags = self._known = 0  # _known: messages whose routes are kept
        self._routes: dict[tuple[bytes, bytes], tuple[list[tuple[int, ...]], list[float]]] = {}
        # What a round is to each rank (events.py), by the bytes of an element, while it is stored.
        self.rounds: WeakKeyDictionary[Round, dict[float, Any]] = WeakKeyDictionary()
        self._open: dict[_Exchange, None] = {}
        self._expected: dict[int, _Exchange] = {}  # by the tag of the expected message
        self._arrived: set[int] = set()  # tags that no receive has matched yet
        self._held: dict[int, _Exchange] = {}  # senders whose receiver is not ready yet, by tag
        # Posted messages whose latency has passed, by source and target; the first of each flows.
        self._lines: dict[tuple[int, int], deque[tuple[Message, Callable[[], object]]]] = {}

    def start(self, process: Process) -> Event:
        """Let a process run; `run` waits for its end, and so does a process that yields the event returned."""
        self._alive += 1
        started = self.env.process(process)
        started.callbacks.append(self._ended)
        return started

    def background(self, traffic: Sequence[Traffic]) -> None:
        """Add others' traffic, for which no process waits. Raises SpecError where there is no such rank."""
        for flow in traffic:
            for name, rank in (("source", flow.source), ("target", flow.target)):
                if rank not in range(self.platform.ranks):
                    raise SpecError(
                        f"background: {name} = {rank!r}: expected a rank, 0 to {self.platform.ranks - 1}."
                    )
            self.env.process(self._others(flow))

    def until(self, time: float) -> Event:
        """Wait for a point in time (now, if it has passed)."""
        return self._busy(max(time - self.env.now, 0.0))

    def compute(self, rank: int, seconds: float) -> Event:
        """Compute for that long, longer on a slow rank."""
        return self._busy(seconds / self.speed[rank])

    def exchange(
        self,
        rank: int,
        sends: Sequence[Message],
        receives: Sequence[Message],
        number: int | str = 0,
    ) -> Event:
        """Send and receive, both at once; `number` is the round (or words), for deadlock reports."""
        return _Exchange(self, rank, sends, receives, number).done

    def send(self, message: Message) -> Event:
        """Send at once, to a target that need not expect it; wait until all of it has arrived."""
        done = Event(self.env)
        self._set_out(message, 0, done.succeed)
        return done

    def post(self, message: Message, number: int | str = 0) -> None:
        """Send without waiting; the target receives the message with `exchange`.

        Its bytes flow when those posted before it from the same rank to the same target have arrived.
        """
        since = self.env.now
        line = self._lines.setdefault((message.source, message.target), deque())

        def arrive() -> None:
            line.popleft()
            if line:
                self._flow(*line[0])
            self._moving -= 1
            self._report(message, since, number)
            self._deliver(message)

        def ready(_: Event) -> None:
            line.append((message, arrive))
            if len(line) == 1:
                self._flow(message, arrive)

        self._moving += 1
        Timeout(self.env, message.latency).callbacks.append(ready)

    def messages(self, source: ArrayLike, target: ArrayLike, size: ArrayLike) -> list[Message]:
        """Return new messages of `size` bytes, with their routes."""
        a, b = np.array(source, ndmin=1), np.array(target, ndmin=1)
        sizes = np.broadcast_to(np.asarray(size, np.float64), a.shape)
        key = (a.tobytes(), b.tobytes())
        if key not in self._routes:
            links, latency = self.platform.routes(a, b)
            routes = [tuple(link for link in row if link >= 0) for row in links.tolist()]
            if self._known > KNOWN:
                self._routes, self._known = {}, 0
            self._routes[key] = routes, latency.tolist()
            self._known += len(a)
        tags = range(self._tags, self._tags + len(a))
        self._tags += len(a)
        columns = (a.tolist(), b.tolist(), sizes.tolist(), *self._routes[key])
        return list(map(Message, tags, *columns))

    def anew(self, known: Sequence[Message]) -> list[Message]:
        """Return the same messages with tags of their own."""
        tags = range(self._tags, self._tags + len(known))
        self._tags += len(known)
        return list(map(Message, tags, *[*zip(*known, strict=True)][1:]))

    @gc_paused()
    def run(self, progress: Progress | None = None) -> float:
        """Run until all processes have ended; return the time in s.

        Raises DeadlockError, which names the waiting ranks and their peers, and Cancelled when
        `progress` (called now and then) returns False.
        """
        env, flows, steps = self.env, self.flows, 0
        while self._alive:
            # What all changes at one instant do to the rates is settled once, at its end.
            if (flows.changed or not self._moving) and env.peek() > env.now:
                if flows.changed:
                    flows.settle()
                elif self._open or env.peek() == inf:
                    raise DeadlockError(env.now, self._waits(), self.stopped)
            env.step()
            steps += 1
            if (
                progress is not None
                and steps % STEPS_BETWEEN_PROGRESS == 0
                and progress(env.now, self.delivered) is False
            ):
                raise Cancelled(env.now, self.delivered)
        self.steps += steps
        return float(env.now)

    def _busy(self, seconds: float) -> Event:
        self._moving += 1
        event = Timeout(self.env, seconds)
        event.callbacks.append(self._idle)
        return event

    def _idle(self, _: Event) -> None:
        self._moving -= 1

    def _ended(self, _: Event) -> None:
        self._alive -= 1

    def _set_out(self, message: Message, number: int | str, then: Callable[[], object]) -> None:
        """Send at once, whatever else is in flight; call `then` when all of it has arrived."""
        since = self.env.now

        def arrive() -> None:
            self._moving -= 1
            self._report(message, since, number)
            then()

        self._moving += 1
        self._carry(message, arrive)

    def _carry(self, message: Message, arrived: Callable[[], object]) -> None:
        """Alpha, then the bytes, then the call of `arrived`."""
        latency = Timeout(self.env, message.latency, (message, arrived))
        latency.callbacks.append(self._after_latency)

    def _after_latency(self, latency: Event) -> None:
        self._flow(*cast("tuple[Message, Callable[[], object]]", latency.value))

    def _flow(self, message: Message, arrived: Callable[[], object]) -> None:
        if message.bytes:
            self.flows.start(message.links, message.bytes, arrived)
        else:
            arrived()

    def _report(self, message: Message, since: float, number: int | str = 0) -> None:
        self.delivered += 1
        if self.record is not None:
            ends = (message.source, message.target, since, self.env.now)
            self.record(*ends, message.bytes, number)

    def _expect(self, message: Message, receiver: "_Exchange") -> bool:
        """The receiver is ready; return whether it has to wait."""
        if message.tag in self._arrived:
            self._arrived.remove(message.tag)
            return False
        self._expected[message.tag] = receiver
        sender = self._held.pop(message.tag, None)
        if sender is not None:
            sender.go(message)
        return True

    def _deliver(self, message: Message) -> None:
        receiver = self._expected.pop(message.tag, None)
        if receiver is None:
            self._arrived.add(message.tag)
        else:
            receiver.part_done()

    def _waits(self) -> list[Wait]:
        held = {sender: tag for tag, sender in self._held.items()}
        waits = []
        for exchange in self._open:
            peers = [m.source for m in exchange.receives if m.tag in self._expected]
            peers += [m.target for m in exchange.sends if m.tag == held.get(exchange)]
            waits.append(Wait(exchange.rank, exchange.number, tuple(dict.fromkeys(peers))))
        return waits

    def _others(self, traffic: Traffic) -> Process:
        (message,) = self.messages(traffic.source, traffic.target, traffic.bytes)
        yield Timeout(self.env, traffic.start)
        while True:
            arrived = Event(self.env)
            self._carry(message, arrived.succeed)
            yield arrived
            if traffic.pause == inf:
                return
            yield Timeout(self.env, traffic.pause)


class _Exchange:
    """A rank's part in a round: what it still has to send, and how many messages it still waits for."""

    __slots__ = (
        "done",
        "message",
        "missing",
        "number",
        "rank",
        "receives",
        "sends",
        "sim",
        "since",
        "to_send",
    )

    def __init__(
        self,
        sim: Simulation,
        rank: int,
        sends: Sequence[Message],
        receives: Sequence[Message],
        number: int | str,
    ) -> None:
        self.sim, self.rank, self.number = sim, rank, number
        self.sends, self.receives, self.to_send = sends, receives, iter(sends)
        self.done = Event(sim.env)
        self.missing = 1  # the sends, and the messages that have not arrived
        sim._open[self] = None
        for message in receives:
            self.missing += sim._expect(message, self)
        self.send_next()

    def send_next(self) -> None:
        message = next(self.to_send, None)
        if message is None:
            self.part_done()
        elif message.bytes > self.sim.eager and message.tag not in self.sim._expected:
            self.sim._held[message.tag] = self
        else:
            self.go(message)

    def go(self, message: Message) -> None:
        self.message, self.since = message, self.sim.env.now
        self.sim._moving += 1
        self.sim._carry(message, self.sent)

    def sent(self) -> None:
        sim, message = self.sim, self.message
        sim._moving -= 1
        sim._report(message, self.since, self.number)
        sim._deliver(message)
        self.send_next()

    def part_done(self) -> None:
        self.missing -= 1
        if not self.missing:
            del self.sim._open[self]
            self.done.succeed()
