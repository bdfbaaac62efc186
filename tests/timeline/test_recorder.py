"""Laws of the recorder: what went on is there once, whoever asks and however it ended; an event is one write."""

import dis
import mmap
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from patience import PATIENCE

from lib_dlhpc.errors import SpecError
from lib_dlhpc.timeline import recorder
from lib_dlhpc.timeline.collecting import Part, assemble, collect, read_part
from lib_dlhpc.timeline.recorder import PIECE, ROW, Recorder, region
from lib_dlhpc.timeline.sizes import size_of


class Alone:
    rank, size = 0, 1

    def gather(self, value):
        return [value]


@pytest.fixture
def clock(monkeypatch):
    """A clock that ticks once, a second, whenever it is read."""
    time = iter(range(0, 10**15, 10**9))
    monkeypatch.setattr(recorder, "perf_counter_ns", lambda: next(time))


def rows(log):
    return [(event.name, event.start, event.stop) for event in collect(Alone(), log)]


def test_blocks_and_functions_are_regions_also_within_each_other_and_themselves(clock):
    log = Recorder()

    @region("fall", log)
    def fall(far):
        """Fall."""
        return far if far == 0 else fall(far - 1)

    outer = region("outer", log)
    with outer, region("inner", log), outer:
        pass
    assert fall(1) == 0 and fall.__doc__ == "Fall."
    with pytest.raises(ValueError, match="bad"), region("failed", log):
        raise ValueError("bad")
    table = collect(Alone(), log)
    assert rows(log) == [
        ("outer", 0, 5),
        ("inner", 1, 4),
        ("outer", 2, 3),
        ("fall", 6, 9),
        ("fall", 7, 8),
        ("failed", 10, 11),
    ]
    assert (table.where("compute", "region")).all() and table.source == "measured"


def test_a_program_says_what_it_stands_still_for(clock):
    """On stream compute by the main thread; by others, even of one decorated function, beside it."""
    log = Recorder()

    @region("save", log, kind="checkpoint")
    def save(what):
        return what

    with region("read", log, kind="input"), region("step", log):
        pass
    assert save(7) == 7
    thread = threading.Thread(target=save, args=(8,))
    thread.start()
    thread.join()
    entries = [(event.stream, event.kind, event.name) for event in collect(Alone(), log)]
    assert entries == [
        ("compute", "input", "read"),
        ("compute", "region", "step"),
        ("compute", "checkpoint", "save"),
        ("checkpoint", "checkpoint", "save"),
    ]
    with pytest.raises(
        SpecError, match=r"kind = 'inptu': .* Expected one of region, input, checkpoint"
    ):
        region("read", log, kind="inptu")


def test_a_recorder_that_is_off_takes_nothing_down_and_forgets_nothing(clock):
    log = Recorder()
    for log.on in (True, False, True):
        with region("step", log):
            pass
    assert len(log.rows()) == 2
    log.clear()
    with region("step", log):
        pass
    assert [name for name, *_ in rows(log)] == ["step"]


def test_an_event_is_one_write_of_one_row_and_no_object_stays():
    """What makes it cheap, and not how cheap it is: one write, no dict, no list."""
    log, written = Recorder(), []
    write, log._write = log._write, lambda row: written.append(row) or write(row)
    step = region("step", log)
    with step:
        pass
    assert [len(row) for row in written] == [ROW.itemsize]
    for function in (Recorder.add, region.__enter__, region.__exit__):
        names = {step.opname for step in dis.get_instructions(function)}
        assert not names & {"BUILD_MAP", "BUILD_LIST", "LIST_APPEND", "STORE_SUBSCR"}
    before = len(log._pieces)
    for _ in range(1000):
        with step:
            pass
    assert len(log._pieces) == before and len(log.rows()) == 1001


def test_rows_go_on_from_piece_to_piece_with_threads_that_share_them(monkeypatch, tmp_path):
    monkeypatch.setattr(recorder, "PIECE", mmap.ALLOCATIONGRANULARITY * 3)
    for log in (Recorder(), Recorder(tmp_path / "rank-0.rows")):

        def work(peer, log=log):
            for number in range(5000):
                log.add(1, number, number + 1, peer=peer)

        threads = [threading.Thread(target=work, args=(peer,)) for peer in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = log.rows()
        assert len(log._pieces) > 1
        for peer in range(4):
            assert (found["start"][found["peer"] == peer] == np.arange(5000)).all()


def test_a_recorder_goes_on_in_a_file_with_what_it_had(clock, tmp_path):
    log = Recorder()
    with region("early", log):
        pass
    log.on = False
    log.keep_in(tmp_path / "rank-0.rows")
    assert not log.on
    log.on = True
    with region("late", log):
        pass
    table = assemble([read_part(tmp_path / "rank-0.rows", 0)], 1)
    assert [event.name for event in table] == ["early", "late"]


KILLED = """
import os, signal, sys
from pathlib import Path
from lib_dlhpc.timeline.recorder import Recorder, region
log = Recorder(Path(sys.argv[1]))
for _ in range(3):
    with region("step", log):
        pass
if os.fork() == 0:
    with region("of a child", log):
        pass
    os._exit(0)
os.wait()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_what_a_killed_process_did_is_in_its_files_and_nothing_of_its_children(tmp_path):
    path = tmp_path / "rank-2.rows"
    ended = subprocess.run([sys.executable, "-c", KILLED, str(path)], timeout=PATIENCE)
    assert ended.returncode == -signal.SIGKILL
    part = read_part(path, 2)
    table = assemble([part], 4)
    assert [event.name for event in table] == ["step"] * 3
    assert (table.ranks, set(table.rank), part.ended) == (4, {2}, None)
    with open(path.with_suffix(".words"), "a", encoding="utf-8") as file:
        file.write('{"words": ["half')  # being written when it died
    assert len(read_part(path, 2).rows) == 3
    with pytest.raises(SpecError, match=r"rank 3 left nothing in .*rank-3\.rows"):
        read_part(tmp_path / "rank-3.rows", 3)


FULL = """
import resource, sys
from pathlib import Path
from lib_dlhpc.timeline.recorder import PIECE, ROW, Recorder, region
log = Recorder(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (PIECE + 4096, PIECE + 4096))
for _ in range(PIECE // ROW.itemsize + 10):
    with region("step", log):
        pass
print("went on", log.on)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="no limit of this kind elsewhere")
def test_a_full_disk_ends_the_record_and_not_the_program(tmp_path):
    path = tmp_path / "rank-0.rows"
    run = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], timeout=PATIENCE, capture_output=True, text=True
    )
    assert (run.returncode, run.stdout) == (0, "went on False\n"), run.stderr
    part = read_part(path, 0)
    assert len(part.rows) == PIECE // ROW.itemsize
    assert part.lost == ["its record ends early: File too large."]


def part(rank, *entries, words=(("communication", "send", "MPI_Send"),), **more):
    table = np.zeros(len(entries), ROW)
    for row, values in zip(table, entries, strict=True):
        row["event"] = 1
        for name, value in values.items():
            row[name] = value
    return Part(rank, table, words, **more)


def test_parts_become_one_timeline_on_one_clock_with_matches_and_sizes_from_the_receiver():
    second = 10**9
    receive = (("communication", "receive", "MPI_Recv"),)
    sender = part(
        0,
        {"start": 5 * second, "stop": 6 * second, "bytes": -1, "peer": 1, "comm": 1},
        comms=["world", "half"],
    )
    receiver = part(
        1,
        {"start": 0, "stop": 7 * second, "bytes": 80, "peer": 0, "comm": 0},
        words=receive,
        comms=["half"],
        clocks=[(0, 2 * second)],
    )
    sent, received = assemble([sender, receiver], 2)
    assert (sent.start, sent.stop, received.start, received.stop) == (3, 4, 0, 7)
    assert sent.bytes == received.bytes == 80 and sent.match == received.match == 0
    assert sent.comm == received.comm == 1
    alone = assemble([sender], 2)
    assert [(e.bytes, e.match) for e in alone] == [(0, -1)], "nobody received it"
    assert len(assemble([], 3)) == 0


class Datatype:
    def Get_size(self):
        return 4


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (np.zeros((3, 5)), 120),
        (b"abc", 3),
        (bytearray(5), 5),
        (memoryview(b"abcd"), 4),
        ([np.zeros(3), Datatype()], 24),
        ([np.zeros(100), 7, Datatype()], 28),
        ([np.zeros(100), (7, 3), Datatype()], 28),
        ([np.zeros(100), ([1, 2], [0, 1]), Datatype()], 12),
        ([np.zeros(100), [1, 2], [0, 1], Datatype()], 12),
        ((np.zeros(2), "d"), 16),
        (None, 0),
        ([[1, 2], 3], 0),
        ([], 0),
    ],
)
def test_a_buffer_is_as_large_as_what_of_it_is_sent(data, size):
    assert size_of(data) == size


def test_pieces_are_of_whole_rows_and_pages():
    assert PIECE % ROW.itemsize == 0 == PIECE % mmap.ALLOCATIONGRANULARITY
