"""Laws of `dlhpc trace run`: the program is unchanged, every call is recorded, every send matches a receive."""

import ast
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch import trace_run as module
from lib_dlhpc.launch.mpi import run_to_end
from lib_dlhpc.launch.trace_run import gather, trace_run
from lib_dlhpc.timeline.store import load

PATIENCE = 180  # s
HERE = Path(__file__).parent
PROGRAM, MESSAGES, ENDING = (
    str(HERE / f"traced_{name}.py") for name in ("program", "messages", "ending")
)


def traced(tmp_path, *words, ranks=4):
    """Run `dlhpc trace run`; return its result and the trace."""
    out = tmp_path / "trace.npz"
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "lib_dlhpc.cli",
            "trace",
            "run",
            "-n",
            str(ranks),
            "--out",
            out,
            *words,
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert out.exists(), run.stdout + run.stderr
    return run, load(out)


@pytest.fixture(scope="module")
def program(mpiexec, tmp_path_factory):
    return traced(tmp_path_factory.mktemp("program"), PROGRAM, "one", "two words")


def test_the_program_does_what_it_does_untraced(program):
    run, _ = program
    plain = run_to_end(4, PROGRAM, "one", "two words", patience=PATIENCE)
    assert run.returncode == plain.returncode == 0, run.stderr + plain.stderr
    assert run.stdout == plain.stdout and "two words" in run.stdout


def test_every_send_finds_its_receive(program):
    _, table = program
    sends = table.select(table.where("communication", "send") & (table.peer >= 0))
    receives = table.select(table.where("communication", "receive") & (table.peer >= 0))
    assert len(sends) == len(receives) > 80
    assert len(set(sends.match.tolist())) == len(sends) and sends.match.min() >= 0
    sends, receives = (part.select(np.argsort(part.match)) for part in (sends, receives))
    for one, other in (
        ("match", "match"),
        ("bytes", "bytes"),
        ("comm", "comm"),
        ("rank", "peer"),
        ("peer", "rank"),
    ):
        np.testing.assert_array_equal(getattr(sends, one), getattr(receives, other))
    assert (receives.stop >= sends.start).all(), "one machine has one clock"
    assert len(set(sends.comm.tolist())) == 4, "the world, two halves' twins, a ring"


def test_calls_of_one_collective_are_one_of_each_rank_and_root(program):
    _, table = program
    calls = defaultdict(list)
    for event in table.select(table.where("communication", "collective")):
        calls[event.match].append(event)
    assert -1 not in calls
    members = defaultdict(set)
    for event in table:
        members[event.comm].add(event.rank)
    for events in calls.values():
        assert len({(event.name, event.comm, event.peer) for event in events}) == 1
        assert [event.rank for event in events] == sorted(members[events[0].comm])
        one_sided = ("MPI_Reduce", "MPI_Gather", "MPI_Bcast", "MPI_Scatter", "MPI_Scan")
        # a nonblocking one's row is the wait for it, which may begin after another rank's has ended
        if not events[0].name.startswith((*one_sided, "MPI_I")):
            last, first = max(e.start for e in events), min(e.stop for e in events)
            assert last <= first, "nobody leaves before all have come"
    names = {events[0].name: events[0] for events in calls.values()}
    assert {"MPI_Allreduce", "MPI_Iallreduce", "MPI_Ibarrier", "MPI_Comm_split"} <= set(names)
    assert names["MPI_Reduce"].peer == 1 and names["MPI_Reduce"].bytes == 80


def test_rows_of_a_rank_are_calls_one_after_another(program):
    """Calls that take several messages in at once, and both halves of an exchange, are rows of one time."""
    _, table = program
    for rank in range(4):
        mine = table.select(table.where("communication") & (table.rank == rank))
        times = np.unique(np.stack([mine.start, mine.stop]), axis=1)
        assert (times[0, 1:] >= times[1, :-1]).all()


def test_a_receive_matches_the_send_whose_message_it_got(mpiexec, tmp_path):
    """By every means to receive, from anybody, in whatever order what was posted ends."""
    run, table = traced(tmp_path, MESSAGES)
    truth = ast.literal_eval(run.stdout)
    sends = [
        table.select(table.where("", "send") & (table.rank == rank)).sorted() for rank in range(4)
    ]
    for rank, messages in enumerate(truth):
        mine = table.select(table.where("", "receive") & (table.rank == rank))
        mine = mine.select(np.lexsort((mine.stop, mine.start)))
        assert mine.match.tolist() == [sends[source].match[nth] for source, nth in messages]


@pytest.mark.parametrize(
    ("how", "status", "lost"),
    [
        ("returns", 0, []),
        ("finalizes", 0, []),
        ("exits", 3, ["rank 1 ended with exit status 3"]),
        ("raises", 1, ["rank 1 ended with ValueError: no luck today"]),
        ("killed", 9, ["rank 1 was killed"]),
    ],
)
def test_however_it_ends_what_was_done_before_is_there(mpiexec, tmp_path, how, status, lost):
    run, table = traced(tmp_path, ENDING, how, ranks=3)
    assert run.returncode == status, run.stderr
    for rank in range(3):
        mine = [event.name for event in table if event.rank == rank]
        assert mine[:3] == ["first", "MPI_Barrier", "MPI_Allgather"]
    for sentence in lost:
        assert sentence in run.stderr
    assert ("rank 1" in run.stderr) == bool(lost)


@pytest.mark.parametrize(("how", "status"), [("raises", 1), ("interrupted", 130)])
def test_how_mpiexec_ended_the_other_ranks_is_not_how_the_program_ended(
    mpiexec, monkeypatch, how, status
):
    """It tells 9 beside what a rank says, or in its place, if it ended others before it heard of that."""
    monkeypatch.setattr(module, "_run", lambda *given, run=module._run: run(*given) and 9)
    assert trace_run(3, [ENDING, how]).status == status


def test_a_keyboard_interrupt_is_reported_in_one_line(mpiexec, tmp_path):
    """Every rank has the signal, as in a terminal; one that has it first ends the others."""
    run, table = traced(tmp_path, ENDING, "interrupted", ranks=3)
    assert run.returncode == 130, run.stderr
    assert "Traceback" not in run.stderr and "KeyboardInterrupt" not in run.stderr
    assert run.stderr.count("Interrupted: the operations in progress are not recorded.") == 1
    assert "was killed" not in run.stderr and "ended with" not in run.stderr
    assert {event.name for event in table} >= {"first", "MPI_Barrier", "MPI_Allgather"}


LATE = """
import mpi4py, os, sys
mpi4py.rc.initialize = False
from lib_dlhpc.timeline import region
with region("before MPI"):
    pass
if hasattr(os, "fork") and os.fork():
    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
from mpi4py import MPI
assert not MPI.Is_initialized()
MPI.Init_thread(MPI.THREAD_FUNNELED)
assert MPI.Query_thread() == MPI.THREAD_FUNNELED
MPI.COMM_WORLD.Barrier()
MPI.Finalize()  # whoever initializes it ends it: mpiexec may take a rank that has not for a dead one
"""
WITHOUT = """
from lib_dlhpc.timeline import region
with region("no MPI"):
    pass
"""


@pytest.mark.parametrize(
    ("text", "names"), [(LATE, ["before MPI", "MPI_Barrier"]), (WITHOUT, ["no MPI"])]
)
def test_the_program_says_when_mpi_begins(mpiexec, tmp_path, text, names):
    """It may set how, fork first, or do without; a rank is still the rank that its launcher says."""
    (tmp_path / "program.py").write_text(text, encoding="utf-8")
    run, table = traced(tmp_path, str(tmp_path / "program.py"), ranks=2)
    assert run.returncode == 0, run.stderr
    for rank in range(2):
        assert [event.name for event in table if event.rank == rank] == names
    assert "rank" not in run.stderr.replace("2 ranks", "")


def test_a_folder_of_what_ranks_left_is_put_together_by_whoever_has_it(mpiexec, tmp_path):
    run = trace_run(2, ["-m", "timeit", "-n", "1", "pass"], tmp_path / "kept")
    assert run.status == 0 and not run.lost and len(run.timeline) == 0
    again = gather(tmp_path / "kept")
    assert again.timeline.ranks == 2
    (tmp_path / "kept" / "rank-1.rows").unlink()
    assert "rank 1 left nothing" in gather(tmp_path / "kept").lost[0]


def test_a_program_traces_itself(start_ranks):
    start_ranks(4, HERE / "traced_here_worker.py")


@pytest.mark.parametrize(
    ("ranks", "words", "why"),
    [
        (0, [PROGRAM], "ranks = 0"),
        (2, [], "No program"),
        (2, ["-m"], "No program"),
        (2, ["no/such.py"], r"no/such\.py: no such file"),
    ],
)
def test_what_cannot_be_run_is_refused_by_name(ranks, words, why):
    with pytest.raises(SpecError, match=why):
        trace_run(ranks, words)
    with pytest.raises(SpecError, match="no folder of a traced run"):
        gather(HERE)
