"""Coupled runs on real ranks: results do not depend on the placement, and waits are attributed correctly."""

import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from time import monotonic, sleep

import numpy as np
import pytest
from small_workflow import small

from lib_dlhpc.launch import JobError
from lib_dlhpc.launch.coupled import run_coupled
from lib_dlhpc.spec.workflow import dumps
from lib_dlhpc.timeline.analysis import analyze
from lib_dlhpc.timeline.coupled import coupled_terms

WORKER = Path(__file__).with_name("coupled_worker.py")
PATIENCE = 180.0


@cache
def run(placement, simulating, ranks, **coupling):
    return run_coupled(small(placement, simulating, **coupling), ranks, patience=PATIENCE)


@pytest.mark.parametrize("ranks", [1, 2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_blocks_equal_the_whole_and_batches_arrive(run_ranks, ranks):
    assert "all right" in run_ranks(ranks, WORKER)


@pytest.mark.parametrize(
    ("placement", "simulating", "ranks"),
    [
        ("shared", 1, 2),
        ("separate", 1, 2),
        ("separate", 2, 3),
        ("separate", 1, 3),
        pytest.param("separate", 2, 4, marks=pytest.mark.slow),
    ],
)
def test_any_placement_trains_the_same_weights(mpiexec, placement, simulating, ranks):
    one, other = run("shared", 1, 1), run(placement, simulating, ranks)
    assert other.ranks == ranks
    assert other.steps == one.steps == small().batches
    assert np.abs(other.weights - one.weights).max() <= 1e-12
    assert np.abs(np.array(other.losses) - one.losses).max() <= 1e-12 * one.losses[0]
    assert other.errors == pytest.approx(one.errors, rel=1e-9)


def test_each_rank_does_its_part_and_messages_know_their_other_end(mpiexec):
    result = run("separate", 2, 3)
    terms = coupled_terms(result.timeline, result.seconds)
    assert (terms["simulate"] > 0).tolist() == [True, True, False]
    assert (terms["train"] > 0).tolist() == [False, False, True]
    sends, receives = (
        result.timeline.select(result.timeline.where("communication", kind))
        for kind in ("send", "receive")
    )
    batches = small().batches
    assert len(sends) == 2 * 2 * batches  # a batch from each, and room for each, every time
    ends = {
        int(match): (int(rank), int(peer))
        for match, rank, peer in zip(sends.match, sends.rank, sends.peer, strict=True)
    }
    assert len(ends) == len(sends)
    for match, rank, peer in zip(receives.match, receives.rank, receives.peer, strict=True):
        assert ends[int(match)] == (int(peer), int(rank))
    data = sends.select(sends.bytes > 0)
    assert int(data.bytes.sum()) == 2 * small().simulation.samples * small().simulation.field_bytes


def test_with_a_slow_simulation_training_waits_or_repeats_batches(mpiexec):
    slow = {}
    for empty in ("wait", "again"):
        workflow = small("separate", 1, empty=empty)
        costly = replace(workflow.simulation, substeps=100, steps=48)
        slow[empty] = run_coupled(replace(workflow, simulation=costly), 2, patience=PATIENCE)
    assert slow["wait"].steps == 6 < slow["again"].steps
    waited = coupled_terms(slow["wait"].timeline)["wait for samples"]
    assert waited[0] == 0 < waited[1]
    # Who is named as late is tested on simulated timelines: a busy machine can hide it in scatter.
    late = analyze(slow["wait"].timeline).waits["late sender"]
    assert 0 < late[1] <= waited[1]


def test_files_are_stored_in_the_folder_and_errors_are_reported(mpiexec, tmp_path):
    run_coupled(small("shared"), 1, tmp_path / "run", PATIENCE)
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"workflow.toml", "result.json", "timeline.npz", "weights.npy"}
    workflow = small("shared")
    for rate in (1e6, 1e30):
        wild = replace(workflow, experiment=workflow.experiment.set({"training.rate": rate}))
        with pytest.raises(JobError, match=r"of predicting no change.* diverged"):
            run_coupled(wild, 2, patience=PATIENCE)


def test_ranks_end_with_whoever_started_them(mpiexec, require, tmp_path):
    require(Path("/proc/self").exists(), "no processes to look at")
    long = small("shared")
    long = replace(long, simulation=replace(long.simulation, steps=10**7))
    code = (
        "import sys; from pathlib import Path; from lib_dlhpc.spec.workflow import load;"
        "from lib_dlhpc.launch.coupled import run_coupled;"
        "run_coupled(load(sys.argv[1]), 2, Path(sys.argv[2]))"
    )
    (tmp_path / "long.toml").write_text(dumps(long), encoding="utf-8")
    words = [sys.executable, "-c", code, str(tmp_path / "long.toml"), str(tmp_path / "run")]
    with subprocess.Popen(words) as starter:
        wait_for(lambda: len(ranks_of(tmp_path)) >= 2)
        starter.kill()
    wait_for(lambda: not ranks_of(tmp_path))


def ranks_of(folder):
    """The processes whose command line names the folder and the worker."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            text = path.read_bytes().decode(errors="replace")
            if "coupled.worker" in text and str(folder) in text:
                found.append(path.parent.name)
    return found


def wait_for(what):
    end = monotonic() + PATIENCE
    while not what():
        assert monotonic() < end
        sleep(0.1)
