"""Waits planted in real programs are found in their traces, with what the programs say by their own clocks."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lib_dlhpc.timeline.analysis import analyse
from lib_dlhpc.timeline.store import load

PATIENCE = 180  # s
PROGRAM = str(Path(__file__).with_name("waiting_program.py"))
RANKS = 3


@pytest.fixture(scope="module")
def traced(mpiexec, tmp_path_factory):
    """A function: the analysis of a traced run with that trouble, when ranks called, and what they worked, s."""

    def traced(trouble):
        out = tmp_path_factory.mktemp("waits") / "trace.npz"
        words = ["trace", "run", "-n", str(RANKS), "--out", str(out), PROGRAM, trouble]
        run = subprocess.run(
            [sys.executable, "-m", "lib_dlhpc.cli", *words],
            capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip
        assert run.returncode == 0, run.stdout + run.stderr
        told = json.loads(run.stdout.splitlines()[0])
        came, worked = zip(*told, strict=True)
        return analyse(load(out)), came, np.array(worked)

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
