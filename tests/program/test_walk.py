"""The walk by rounds ends when the walk of every call does, and the rounds are the calls of the schedule."""

import random

import pytest

from lib_dlhpc.program.calls import OVERLAPPED, calls, pipeline
from lib_dlhpc.program.rounds import Section, sections
from lib_dlhpc.program.walk import Walk

SHAPES = [
    *((schedule, ranks, 1) for schedule in ("gpipe", "1f1b", "zb-h1") for ranks in (1, 2, 5, 8)),
    *(("interleaved", ranks, chunks) for ranks in (1, 2, 4) for chunks in (1, 2, 3)),
    *((each, ranks, 2) for each in ("dualpipe", "overlapped dualpipe") for ranks in (2, 4, 8)),
]
PHASES = ("forward", "backward", "weights")
UNEVEN = ("equal", "ends", "near", "any")


def microbatches(schedule, ranks, many):
    """Return the next number of them that a schedule can have."""
    if "dualpipe" in schedule:
        return 2 * ranks + 2 * many
    return ranks * many if schedule == "interleaved" else many


def unfolded(pipe):
    return [row for rows, times in sections(pipe) for row in rows * times]


def by_place(rows, ranks):
    """Return what each place does, and the place and number there of the call whose message each call receives."""
    found, names = [[] for _ in range(ranks)], []
    for at, (place, made, back, boundary) in enumerate(rows):
        names.append((place, len(found[place])))
        found[place].append((made, names[at - back] if back else None, boundary))
    return found


def by_call(pipe):
    rows, nothing = [], 3 * pipe.ranks * pipe.chunks
    for at, call in enumerate(calls(pipe)):
        number = 3 * (call.place * pipe.chunks + call.chunk) + [*PHASES, OVERLAPPED].index(
            call.phase
        )
        number = number if call.computes else nothing
        if call.phase == OVERLAPPED:
            number = nothing + 1 + call.place * pipe.chunks + call.chunk
        boundary = call.before[0] * pipe.chunks + call.before[1] if call.target >= 0 else -1
        back = at - call.source if call.source >= 0 else 0
        rows.append((call.place, -2 - number if call.once else number, back, boundary))
    return rows


@pytest.mark.parametrize(("schedule", "ranks", "chunks"), SHAPES)
def test_rounds_are_the_calls_of_the_schedule(schedule, ranks, chunks):
    for many in (1, 2, 3, 5, 6, 7, 8, 12, 20):
        pipe = pipeline(schedule, ranks, microbatches(schedule, ranks, many), chunks)
        assert by_place(unfolded(pipe), ranks) == by_place(by_call(pipe), ranks)


@pytest.mark.parametrize(("schedule", "ranks", "chunks"), SHAPES)
def test_messages_are_of_the_round_before_or_of_the_same(schedule, ranks, chunks):
    pipe = pipeline(schedule, ranks, 20 * ranks, chunks)
    before = None
    for rows, times in sections(pipe):
        for each in [before, len(rows) if times > 1 else None]:
            assert each is None or all(row[2] <= at + each for at, row in enumerate(rows))
        before = len(rows) if times > 1 else None
    assert max(times for _, times in sections(pipe)) > 3


@pytest.mark.parametrize("uneven", UNEVEN)
@pytest.mark.parametrize(("schedule", "ranks", "chunks"), SHAPES)
def test_rounds_that_are_skipped_change_nothing(schedule, ranks, chunks, uneven):
    dice = random.Random(f"{schedule} {ranks} {chunks} {uneven}")

    def duration():
        if uneven == "near":
            return 1 + dice.choice((1e-3, 1e-6, 1e-12)) * dice.random()
        return 1.0 if uneven == "equal" else dice.random()

    count = 3 * ranks * chunks
    for hop in (0.0, 1e-3, 0.4, 3.0):
        many = microbatches(schedule, ranks, dice.choice((7, 12, 50)))
        pipe = pipeline(schedule, ranks, many, chunks)
        seconds = [duration() for _ in range(count)]
        if uneven == "ends":
            seconds[3 * chunks : -3 * chunks] = seconds[:3] * max(0, ranks * chunks - 2 * chunks)
        takes = [hop * duration() for _ in range(ranks * chunks)]
        busy = [dice.choice((1.0, dice.random())) * each for each in takes]
        lasts = [2 * duration() for _ in range(count)]
        begin = [dice.random() for _ in range(ranks)]
        seconds.append(0.0)  # of calls that compute nothing; behind it, overlapped passes
        seconds += [duration() for _ in range(ranks * chunks * schedule.startswith("overlapped"))]
        how = (seconds, lambda at, start, lasts=lasts: start + lasts[at], busy, takes, begin)
        whole = Walk(*how).run([Section(unfolded(pipe), 1)])
        assert Walk(*how).run(sections(pipe)) == pytest.approx(whole, rel=1e-12, abs=0)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1", "dualpipe", "overlapped dualpipe"])
def test_the_rounds_walked_do_not_grow_with_the_microbatches(schedule, monkeypatch):
    walked = []
    once = Walk._round
    monkeypatch.setattr(
        Walk, "_round", lambda self, rows: (walked.append(len(rows)), once(self, rows))
    )
    counts = []
    for many in (1000, 100_000):
        walked.clear()
        chunks = 2 if "dualpipe" in schedule else 1
        seconds, hops = [1.0, 2.0, 0.5] * 4 * chunks + [0.0], [0.1] * 4 * chunks
        seconds += [3.5] * 4 * chunks
        Walk(seconds, lambda _, at: at + 3.0, hops, hops, [0.0] * 4).run(
            sections(pipeline(schedule, 4, many, chunks))
        )
        counts.append(sum(walked))
    assert counts[1] <= counts[0] + 4 * 3 * 4
