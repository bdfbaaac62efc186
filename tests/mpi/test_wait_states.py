"""Waits planted in real programs are found in their traces, with the times that the programs measure."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lib_dlhpc.launch.network import available, network
from lib_dlhpc.launch.trace_run import gather
from lib_dlhpc.storage import pack
from lib_dlhpc.timeline.analysis import analyze
from lib_dlhpc.timeline.store import load

PATIENCE = 180  # s
PROGRAM = str(Path(__file__).with_name("waiting_program.py"))
LINKED = str(Path(__file__).with_name("linked_program.py"))
READER = Path(__file__).with_name("slow_disk_worker.py")
RANKS = 3
TIMES, QUIET = 4, 0.06  # runs at most; s: a tenth of what is planted


@pytest.fixture(scope="module")
def traced(mpiexec, tmp_path_factory):
    """A function: the analysis of a traced run with that trouble, when ranks called, and what they worked, s.

    A rank that begins later than the first one works until then, as far as the others can tell. A run in which
    this machine let ranks sleep for much longer than they asked for is disturbed, by the program's own clocks:
    there is another one then, a few times.
    """

    def once(trouble, *more):
        out = tmp_path_factory.mktemp("waits") / "trace.npz"
        words = ["trace", "run", "-n", str(RANKS), "--out", str(out), PROGRAM, trouble, *more]
        run = subprocess.run(
            [sys.executable, "-m", "lib_dlhpc.cli", *words],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert run.returncode == 0, run.stdout + run.stderr
        came, worked, first, overslept = zip(*json.loads(run.stdout.splitlines()[0]), strict=True)
        said = analyze(load(out))
        return max(overslept), (said, came, np.array(worked) + np.array(first) - min(first))

    def traced(trouble, *more, times=TIMES):
        for _ in range(times):
            overslept, told = once(trouble, *more)
            if overslept < QUIET:
                break
        return told

    return traced


@pytest.mark.parametrize(
    ("trouble", "late", "waits"), [("late sender", 1, 0), ("late receiver", 0, 1)]
)
def test_who_is_late_for_messages_is_found(traced, trouble, late, waits):
    said, came, _ = traced(trouble)
    expected = np.maximum(np.array(came[late]) - np.array(came[waits]), 0.0).sum()
    (one,) = [finding for finding in said.findings if finding.kind == trouble]
    assert (one.rank, one.peer, one.where.rank) == (late, waits, waits)
    assert one.seconds == pytest.approx(expected, rel=0.1)
    assert said.waits[trouble][waits] == pytest.approx(expected, rel=0.1)


def test_a_rank_that_works_longer_is_found_and_so_is_the_wait_for_it(traced):
    said, came, worked = traced("imbalance")
    found = {finding.kind: finding for finding in said.findings}
    more = found["load imbalance"]
    assert more.rank == RANKS - 1
    assert more.seconds == pytest.approx(worked[-1] - np.median(worked[:-1]), rel=0.1)

    (wait,) = [
        finding
        for finding in said.findings
        if finding.kind == "wait at collective" and finding.where.name == "MPI_Allreduce"
    ]
    assert wait.rank == RANKS - 1 and wait.where.rank != RANKS - 1
    times = np.array(came)
    last = times.argmax(axis=0) == RANKS - 1
    waited = (times[-1] - times[:-1]).mean(axis=0)[last].sum()
    assert wait.seconds == pytest.approx(waited, rel=0.1)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("samples")
    (folder / "tree").mkdir()
    for number in range(8):
        (folder / "tree" / f"{number}.bin").write_bytes(bytes([number]) * 10_000)
    pack(folder / "tree", folder / "packed")
    return str(folder / "packed")


def test_a_slow_disk_is_found(traced, store):
    """Reads of a store, and of what the program says to be one, are slow on rank 1."""
    said, took, _ = traced("slow disk", store)
    (one,) = [finding for finding in said.findings if finding.kind == "slow disk"]
    assert (one.rank, one.where.rank) == (1, 1) and one.where.name in ("read", "read a file")
    own = np.array(took).sum(axis=1)
    assert one.seconds == pytest.approx(own[1] - np.median(np.delete(own, 1)), rel=0.1)
    assert said.stalled[1] == pytest.approx(own[1], rel=0.1)
    assert not [finding for finding in said.findings if finding.kind == "load imbalance"]


def disturbed(came):
    """Seconds that the machine itself held ranks up, by more than the others at the time, all together.

    came: for how long a rank meant to work, when it had worked, had the messages, and had the sum, of every
    rank and step. On a machine with nothing else to do each comes at once when the last rank is there.
    """
    asked, ready, joined, done = np.moveaxis(np.array(came), 2, 0)
    late = ready[:, 1:] - done[:, :-1] - asked[:, 1:]
    late += (joined - ready.max(axis=0))[:, 1:] + (done - joined.max(axis=0))[:, 1:]
    return float((late - late.min(axis=0)).sum())


def test_nothing_is_found_in_a_balanced_run_but_what_the_machine_did(traced):
    """Whatever a finding costs, this machine held ranks up for as long: for each of the others that waited."""
    said, came, _ = traced("none", times=2)
    most = (RANKS - 1) * disturbed(came)
    assert [finding for finding in said.findings if finding.seconds > most] == []


def test_nothing_is_found_where_all_ranks_have_the_same_jitter(traced):
    """Work of 15 ms, and of 7.5 ms more on average; to make any rank stand out takes a tenth of the run."""
    said, came, _ = traced("jitter", times=2)
    assert sum(seconds.sum() for seconds in said.waits.values()) > 0.1 * said.span
    assert said.findings == [] or disturbed(came) > 0.1 * said.span


def test_a_slow_link_is_found(require, tmp_path):
    """Ranks behind links of 100 Mb/s, between ranks 1 and 2 one of 8 Mb/s, both ways."""
    reason = available()
    require(not reason, reason)
    slow = ("8 Mb/s", "1 ms")
    with network(RANKS, "100 Mb/s", "1 ms", links={(1, 2): slow, (2, 1): slow}) as net:
        words = ["-m", "lib_dlhpc.launch.traced", str(tmp_path), LINKED]
        run = net.run(RANKS, *words, patience=PATIENCE)
    assert run.returncode == 0, run.stdout + run.stderr
    traced = gather(tmp_path)
    assert traced.lost == ()
    took = {}
    for pair, seconds in json.loads(run.stdout).items():
        took.setdefault(frozenset(map(int, pair.split())), []).extend(seconds)
    theirs = np.array(took.pop(frozenset({1, 2})))
    one, other = (np.mean(seconds) for seconds in took.values())

    (found,) = [one for one in analyze(traced.timeline).findings if one.kind == "slow link"]
    assert (found.rank, found.peer) == (1, 2) and found.where.rank in (1, 2)
    more = (theirs - max(one, other)).sum()
    # What a usual link takes is known no better than the two usual ones are alike.
    unsure = 0.1 * more + abs(one - other) * len(theirs)
    assert found.seconds == pytest.approx(more, abs=unsure)
    assert theirs.sum() > 0.9 * len(theirs) * 40_000 / 1e6  # what such a link takes at least


def test_a_slow_disk_of_the_trainer_is_found(start_ranks, store, tmp_path):
    """Ranks train on samples that they read from a store as they need them; rank 1 has a slow disk."""
    shown = json.loads(start_ranks(2, READER, store, str(tmp_path / "run.npz")).splitlines()[-1])
    said = analyze(load(tmp_path / "run.npz"))
    (one,) = [finding for finding in said.findings if finding.kind == "slow disk"]
    assert (one.rank, one.where.rank, one.where.name) == (1, 1, "fetch the batch")
    assert one.seconds == pytest.approx(shown[1] - shown[0], rel=0.1)
    assert said.stalled[1] == pytest.approx(shown[1], rel=0.1)
