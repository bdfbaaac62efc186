"""A schedule simulated round by round, all ranks at once: max-plus arithmetic on arrays.

With t the times at which the ranks finish a round, and d the duration of a message s -> r,

    t[s] <- t[s] + d                  the sender's port is busy for d from when the sender is ready
    t[r] <- max(t[s], t[r]) + d       the receiver's port is busy for d from when both are ready

all t on the right being those of the round before: an early sender does not wait for a late receiver
(its data waits in a buffer), a receiver waits for its sender. Where all ranks send and receive messages
of one duration, as on a ring, this is the message-level program "send takes d; put; get".
d = alpha + bytes beta (+ bytes gamma if the target combines), with alpha and beta of the level, within
a node or between nodes. A rank has one port a direction: several messages of one round from or to one
rank go one after another, in the order of the round. The NICs of a node are shared (on rails each by its devices): what
leaves or enters one in a round takes as long as all of those bytes together. Messages that a switch merges have the
port at once.

Not modeled here: any contention beyond the NICs (`events` does). Source of the arithmetic: Baccelli,
Cohen, Olsder & Quadrat, "Synchronization and Linearity" (1992).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lib_dlhpc.arrays import Floats, Ints
from lib_dlhpc.costs.network import Network
from lib_dlhpc.errors import SpecError
from lib_dlhpc.schedules.network import Rails, busiest
from lib_dlhpc.schedules.rounds import MULTICAST, STREAM, Round, Schedule, as_sent

# noise(number of the round, round) -> factors of the durations, (..., messages)
Noise: TypeAlias = Callable[[int, Round], ArrayLike]


class RepeatedRound(NamedTuple):
    """A round that is simulated `repeat` times in a row; only offsets, which take no time, may differ."""

    round: Round
    repeat: int


@dataclass(frozen=True, eq=False)
class Program:
    """A schedule's rounds, equal ones in a row kept once: for many runs of one schedule."""

    ranks: int
    elements: int
    runs: tuple[RepeatedRound, ...]
    # What is known of each run once it has been simulated, by the NICs of the ranks.
    known: dict[Rails, list["tuple[_Routes, _Alike | None]"]] = field(default_factory=dict)


def program(schedule: Schedule) -> Program:
    """Return the rounds of `schedule`, kept. A ring whose blocks are all of one size is two rounds."""
    return Program(schedule.ranks, schedule.elements, tuple(_runs(schedule)))


def finish_times(
    schedule: Schedule | Program,
    network: Network,
    element_bytes: float = 4,
    arrival: ArrayLike = 0.0,
    noise: Noise | None = None,
    speed: ArrayLike = 1.0,
) -> Floats:
    """Return when each rank finishes the schedule, in s, shape (..., ranks).

    network: alpha, beta (s/B) of two levels and gamma (s/B); arrays need a last axis of 1, for the
    ranks, and whatever stands before it is a batch of what-if scenarios. element_bytes: B an element.
    arrival: s at which each rank starts, (..., ranks). noise: see Noise.
    speed: of each rank, (ranks,), 1 is normal: a slow rank takes longer to combine.
    Raises SpecError if the network has not as many ranks as the schedule.
    """
    size = int(network.inner.ranks) * int(network.outer.ranks)
    if size != schedule.ranks:
        raise SpecError(
            f"network: {network.inner.ranks} x {network.outer.ranks} ranks,"
            f" but the schedule is for {schedule.ranks}."
        )
    time = _start(schedule.ranks, network, arrival)
    twice = (*time.shape[:-1], 2 * schedule.ranks)
    room = _Room(np.empty_like(time), np.empty_like(time), np.empty(twice))
    spent_alike: dict[_Alike, list[Floats]] = {}
    number = 0
    uneven = bool(np.any(np.not_equal(speed, 1.0)))
    if uneven:
        network = network._replace(gamma=np.asarray(network.gamma) / np.asarray(speed))
    for (part, repeat), routes, alike in _known(schedule, network.rails):
        if noise is not None:
            for again in range(repeat):
                factor = np.asarray(noise(number + again, part))
                spent = routes.durations(part, network, element_bytes)
                routes.advance(time, room, routes.times(spent, factor), 1)
        elif alike is None or uneven:
            routes.advance(time, room, routes.durations(part, network, element_bytes), repeat)
        else:
            spent = spent_alike.get(alike, [])
            if not spent:
                duration = routes.durations(part, network, element_bytes)[0][..., :1].copy()
                # numpy adds a number in half the time of an array of one
                spent = spent_alike[alike] = [
                    duration.reshape(()) if duration.size == 1 else duration
                ]
            routes.advance(time, room, spent, repeat)
        number += repeat
    return time


def durations(part: Round, network: Network, element_bytes: float = 4) -> Floats:
    """Return the seconds of each message of a round with at most one message a port, (..., messages)."""
    rails = network.rails
    return _durations(part, network, element_bytes, *_far(part, rails), rails)


class _Room(NamedTuple):
    """Memory for three times, the last as long as two: made once for all rounds."""

    sent: Floats
    mine: Floats
    twice: Floats


class _Routes:
    """What follows from the sources and targets of a round alone, cached while they stay the same.

    levels: messages that no port keeps apart, as indices into the round; mostly there is one level.
    shift: k where all ranks send to the rank k on, modulo the number of ranks: then views suffice.
    """

    def __init__(self, part: Round, ranks: int, rails: Rails) -> None:
        self.source, self.target, self.ranks, self.rails = part.source, part.target, ranks, rails
        self.switch = part.switch
        self.levels: list[Any] = [slice(None)] if part.switch else _levels(part)
        self.shift = 0
        self.giver: Ints | None = None
        if len(self.levels) == 1 and len(part) == ranks and not part.switch:
            if (part.source == np.arange(ranks)).all():
                shifts = (part.target - part.source) % ranks
                self.shift = int(shifts[0]) if (shifts == shifts[0]).all() else 0
            else:  # any order of a permutation: use the order of the sources
                self.levels = [np.argsort(part.source)]
            self.giver = np.empty(ranks, np.int64)
            self.giver[part.target] = part.source
        self.level_far = [_far(_take(part, rows), rails) for rows in self.levels]

    def fit(self, part: Round) -> bool:
        alike = _same(part.source, self.source) and _same(part.target, self.target)
        return alike and part.switch == self.switch

    def alike(self, part: Round) -> "_Alike | None":
        """Return what all messages of the round have in common if that decides how long they take."""
        if self.giver is None or self.level_far[0][1] or self.rails.relay:
            return None
        far = self.level_far[0][0]
        columns = (part.count, part.reduce, far)
        if any((column != column[0]).any() for column in columns):
            return None
        return _Alike(int(part.count[0]), bool(part.reduce[0]), bool(far[0]))

    def durations(self, part: Round, network: Network, element_bytes: float) -> list[Floats]:
        return [
            _durations(_take(part, rows), network, element_bytes, *far, self.rails)
            for rows, far in zip(self.levels, self.level_far, strict=True)
        ]

    def times(self, spent: list[Floats], factor: Floats) -> list[Floats]:
        """Return the durations times a factor for each message of the round."""
        if not factor.ndim:
            return [seconds * factor for seconds in spent]
        return [
            seconds * factor[..., rows] for rows, seconds in zip(self.levels, spent, strict=True)
        ]

    def advance(self, time: Floats, room: _Room, spent: list[Floats], repeat: int) -> None:
        """Advance the clocks `time` in place by `repeat` rounds whose messages take `spent`.

        spent: for each level (..., messages), or (..., 1) or () where all take as long. room: to work in.
        """
        if self.giver is not None:
            self._play_permutation(time, room, self.giver, spent[0], repeat)
            return
        if self.switch:
            for _ in range(repeat):
                _merge(time, self.source, self.target, spent[0])
            return
        for _ in range(repeat):
            sends, receives = time.copy(), time.copy()
            for rows, seconds in zip(self.levels, spent, strict=True):
                source, target = self.source[rows], self.target[rows]
                start = sends[..., source]
                sends[..., source] = start + seconds
                receives[..., target] = np.maximum(start, receives[..., target]) + seconds
            np.maximum(sends, receives, out=time)

    def _play_permutation(
        self, time: Floats, room: _Room, giver: Ints, send: Floats, repeat: int
    ) -> None:
        """All ranks send and receive: t <- max(t + the longer of both, when the sender has finished)."""
        sent, mine, twice = room
        start = send if send.shape[-1:] in ((), (1,)) else np.maximum(send, send[..., giver])
        alike = start is send or bool((start == send).all())
        k, add, maximum = self.shift, np.add, np.maximum
        if k:  # the last k ranks stand before the first too: then the givers, k back, are a view
            sent, givers = twice[..., k : self.ranks + k], twice[..., : self.ranks]
            before, last = twice[..., :k], twice[..., self.ranks : self.ranks + k]
        if alike:
            mine = sent
        for _ in range(repeat):
            add(time, send, out=sent)
            if not alike:
                add(time, start, out=mine)
            if k:
                before[...] = last
                maximum(mine, givers, out=time)
            else:
                sent.take(giver, axis=-1, out=time, mode="clip")
                maximum(mine, time, out=time)


class _Alike(NamedTuple):
    """All messages of a round have one size, level and kind: then they take as long."""

    elements: int
    reduce: bool
    far: bool


def _known(
    schedule: Schedule | Program, rails: Rails
) -> Iterator[tuple[RepeatedRound, "_Routes", "_Alike | None"]]:
    """Yield the runs that have messages, with what is known of each."""
    if isinstance(schedule, Program):
        if rails not in schedule.known:
            routes = [_Routes(run.round, schedule.ranks, rails) for run in schedule.runs]
            schedule.known[rails] = [
                (route, route.alike(run.round))
                for route, run in zip(routes, schedule.runs, strict=True)
            ]
        yield from (
            (run, *known) for run, known in zip(schedule.runs, schedule.known[rails], strict=True)
        )
        return
    last: _Routes | None = None
    for run in _runs(schedule):
        if last is None or not last.fit(run.round):
            last = _Routes(run.round, schedule.ranks, rails)
        yield run, last, None


def _runs(rounds: Iterable[Round]) -> Iterator[RepeatedRound]:
    before: Round | None = None
    repeat = 0
    for part in map(as_sent, rounds):
        if before is not None and _repeats(part, before):
            repeat += 1
            continue
        if before is not None:
            yield RepeatedRound(before, repeat)
        before, repeat = part, 1
    if before is not None:
        yield RepeatedRound(before, repeat)


def _repeats(part: Round, before: Round) -> bool:
    """Whether a round takes as long as the one before: all but the offsets are equal."""
    return (
        part.switch == before.switch
        and (part.source is before.source or _same(part.source, before.source))
        and (part.target is before.target or _same(part.target, before.target))
        and (part.reduce is before.reduce or _same(part.reduce, before.reduce))
        and (part.count is before.count or _same(part.count, before.count))
    )


def _same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Whether two columns are equal; a large piece of memory is not compared with itself."""
    if a is b:
        return True
    if len(a) != len(b):
        return False
    if a.size < 4096:
        return a.tobytes() == b.tobytes()
    if a.strides == b.strides and a.ctypes.data == b.ctypes.data:
        return True
    return bool((a == b).all())


def _start(ranks: int, network: Network, arrival: ArrayLike) -> Floats:
    values = (network.inner.alpha, network.inner.beta, network.outer.alpha, network.outer.beta)
    shapes = [np.shape(value) for value in (*values, network.gamma)]
    shape = np.broadcast_shapes(*shapes, np.shape(arrival), (ranks,))
    if shape[-1] != ranks:
        raise SpecError(
            f"network, arrival: the last axis of arrays is for the {ranks} ranks (or 1);"
            f" here it is {shape[-1]} long."
        )
    return np.array(np.broadcast_to(np.asarray(arrival, dtype=np.float64), shape))


def _far(part: Round, rails: Rails) -> tuple[NDArray[np.bool_], bool]:
    """Which messages leave their node, and whether any of them share a NIC."""
    if rails.node == 1:
        return np.ones(len(part), np.bool_), False
    far = rails.far(part.source, part.target)
    alone = _distinct(rails.out(part.source, part.target)[far]) and _distinct(
        rails.into(part.target)[far]
    )
    return far, not alone


def _durations(
    part: Round,
    network: Network,
    element_bytes: float,
    far: NDArray[np.bool_],
    shared: bool,
    rails: Rails,
) -> Floats:
    (_, alpha_in, beta_in), (_, alpha_out, _) = network.inner, network.outer
    beta_out = network.nic_beta
    if rails.relay:
        alpha_out = alpha_out + rails.relayed(part.source, part.target) * alpha_in
    size = part.count * float(element_bytes)
    through = size
    if part.switch:
        through = _merged(part, size, far, rails)
    elif shared:
        by, to = rails.out(part.source, part.target), rails.into(part.target)
        out, into = (busiest(nic, size * far) for nic in (by, to))
        through = np.where(far, np.maximum(out, into), size)
    if rails.node == 1:
        moved = alpha_out + through * beta_out
    elif far.any():
        moved = np.where(far, alpha_out, alpha_in) + through * np.where(far, beta_out, beta_in)
    else:
        moved = alpha_in + through * beta_in
    gamma = network.gamma
    if np.shape(gamma)[-1:] > (1,):  # of each rank: who combines decides
        gamma = gamma[..., part.target]
    combined = 0.0 if part.switch else size * part.reduce * gamma
    return np.asarray(moved + combined, dtype=np.float64)


def _merged(part: Round, size: NDArray[Any], far: NDArray[np.bool_], rails: Rails) -> Floats:
    """Return the bytes that the port of each message carries in a round of a switch, all messages together."""
    if part.switch == STREAM and not part.reduce.any():
        return np.zeros(len(part))
    port = part.target if part.switch == MULTICAST else part.source
    total = np.bincount(port, weights=size)[port]
    together = busiest(rails.into(port), size * far)
    return np.asarray(np.where(far, together, total), dtype=np.float64)


def _merge(time: Floats, source: Ints, target: Ints, seconds: Floats) -> None:
    """Advance the clocks in place by a round of a switch, in which all messages take their way at once."""
    start, there = time[..., source], time[..., target]
    sent, there = start + seconds, np.maximum(start, there) + seconds
    np.maximum.at(time, (..., source), sent)  # type: ignore[arg-type]  # it takes any index
    np.maximum.at(time, (..., target), there)  # type: ignore[arg-type]


def _distinct(numbers: Ints) -> bool:
    return bool(np.bincount(numbers.ravel()).max(initial=0) <= 1)


def _take(part: Round, rows: Any) -> Round:
    if isinstance(rows, slice):
        return part
    source, target, offset, count, reduce = (column[rows] for column in part.arrays)
    return Round(source, target, offset, count, reduce, part.switch)


def _levels(part: Round) -> list[Any]:
    """Split a round by its ports: a level has at most one message from a rank and one to a rank."""
    if _distinct(part.source) and _distinct(part.target):
        return [slice(None)]
    level_of = np.empty(len(part), np.int64)
    sends: dict[int, int] = {}
    receives: dict[int, int] = {}
    for row, (source, target) in enumerate(
        zip(part.source.tolist(), part.target.tolist(), strict=True)
    ):
        level = max(sends.get(source, 0), receives.get(target, 0))
        level_of[row] = level
        sends[source] = receives[target] = level + 1
    return [np.flatnonzero(level_of == level) for level in range(int(level_of.max()) + 1)]
