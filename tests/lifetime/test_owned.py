"""Laws of what a process owns: it ends with that process, however that one ends, and nothing else does."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from patience import PATIENCE, eventually, living

from lib_dlhpc.lifetime import guard, owned
from lib_dlhpc.lifetime.signals import taken

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks processes up in /proc")

# A child that leads a session of its own and has a child that does, too: no group or session has both.
CHILD = """
import os, subprocess, sys, time
if len(sys.argv) > 2:
    subprocess.Popen([sys.executable, "-c", sys.argv[2], sys.argv[1]], start_new_session=True)
open(f"{sys.argv[1]}/{os.getpid()}", "w").close()
time.sleep(600)
"""
# What a page does: a thread that ends before its process does has started the child.
OWNER = f"""
import sys, threading, time
from pathlib import Path
from lib_dlhpc.lifetime import owned
CHILD = {CHILD!r}
words = [sys.executable, "-c", CHILD, sys.argv[1], CHILD]
thread = threading.Thread(target=lambda: owned.start(words, start_new_session=True))
thread.start(); thread.join()
folder = owned.make_folder("owned-", Path(sys.argv[2]))
(folder / "file").touch()
status = Path(sys.argv[2], "status.json")
status.write_text("running")
owned.last_words(status, "lost", Path(sys.argv[2], "result.json"))
{{more}}
print("ready", flush=True)
sys.stdin.readline()
"""


def owner(tmp_path, more=""):
    """Start a process that owns two others, a folder and a status; return it, and its own places."""
    pids, place = tmp_path / "pids", tmp_path / "place"
    pids.mkdir(parents=True)
    place.mkdir()
    words = [sys.executable, "-c", OWNER.replace("{more}", more), str(pids), str(place)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    found = eventually(
        lambda: len(list(pids.iterdir())) == 2 and list(pids.iterdir()), "two processes"
    )
    return process, [int(path.name) for path in found], place


def closed(process):
    process.stdin.close()
    process.stdout.close()


def ended(pids):
    return eventually(lambda: not living(pids), what="the end of all processes")


@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGTERM, "exit"])
def test_all_ends_with_its_owner_and_nothing_else(tmp_path, way):
    other, others, place = owner(tmp_path / "other")
    process, pids, own = owner(tmp_path / "own")
    if way == "exit":
        process.stdin.write("\n")
        process.stdin.flush()
    else:
        process.send_signal(way)
    process.wait(PATIENCE)
    closed(process)
    assert ended(pids)
    eventually(
        lambda: [path.name for path in own.iterdir()] == ["status.json"], what="its folder's end"
    )
    eventually(lambda: (own / "status.json").read_text() == "lost", what="its last words")
    assert living(others) == others and len(list(place.iterdir())) == 2
    other.kill()
    other.wait(PATIENCE)
    closed(other)
    assert ended(others)


def test_a_forked_process_does_not_keep_its_parents_guard_waiting(tmp_path):
    more = "import os\nif os.fork() == 0: print(os.getpid(), file=open(sys.argv[2] + '/fork', 'w')); time.sleep(600)"
    process, pids, place = owner(tmp_path, more)
    process.kill()
    process.wait(PATIENCE)
    closed(process)
    assert ended(pids)
    fork = int(eventually(lambda: (place / "fork").read_text(), what="the forked process"))
    os.kill(fork, signal.SIGKILL)


def test_a_killed_guard_is_replaced_with_all_registrations(tmp_path):
    more = (
        "import os, signal\nos.kill(owned._guard._process.pid, signal.SIGKILL); owned._guard._process.wait()\n"
        "owned.make_folder('second-', Path(sys.argv[2]))"
    )
    process, pids, place = owner(tmp_path, more)
    process.kill()
    process.wait(PATIENCE)
    closed(process)
    assert ended(pids)
    eventually(
        lambda: [path.name for path in place.iterdir()] == ["status.json"], what="both folders' end"
    )


def test_a_result_speaks_for_itself(tmp_path):
    process, pids, place = owner(tmp_path, "Path(sys.argv[2], 'result.json').touch()")
    process.kill()
    process.wait(PATIENCE)
    closed(process)
    assert ended(pids)
    eventually(lambda: len(list(place.iterdir())) == 2, what="the end of its folder")
    assert (place / "status.json").read_text() == "running"


def test_end_also_ends_descendants(tmp_path):
    process = owned.start(
        [sys.executable, "-c", CHILD, str(tmp_path), CHILD], start_new_session=True
    )
    eventually(lambda: len(list(tmp_path.iterdir())) == 2, "two processes")
    pids = [int(path.name) for path in tmp_path.iterdir()]
    owned.end(process)
    assert process.returncode is not None and ended(pids)


def test_a_process_that_is_interrupted_while_it_starts_another_leaves_none(tmp_path, monkeypatch):
    start = subprocess.Popen

    def interrupted(words, **options):
        process = start(words, **options)
        if "-c" in words:
            process.wait = lambda *_: None
            raise KeyboardInterrupt
        return process

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        owned.start([sys.executable, "-c", CHILD, str(tmp_path)])
    assert ended([int(path.name) for path in tmp_path.iterdir()])


def test_what_cannot_be_started_is_not_guarded(tmp_path):
    before = dict(owned._guard.held)
    with pytest.raises(OSError, match="no such"):
        owned.start([str(tmp_path / "no such")])
    with pytest.raises(OSError, match="nowhere"):
        owned.make_folder("x-", tmp_path / "nowhere")
    assert owned._guard.held == before


def test_work_goes_on_where_no_guard_can_be_started(tmp_path, monkeypatch):
    def full(*_args, **_options):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(owned, "_guard", owned._Guard())
    with monkeypatch.context() as without:
        without.setattr(subprocess, "Popen", full)
        folder = owned.make_folder("x-", tmp_path)
    assert folder.is_dir() and owned._guard._process is None
    owned.own_folder(folder)  # now there is room: it is asked again
    assert owned._guard._process is not None and owned._guard._process.poll() is None
    owned.remove_folder(folder)
    assert not folder.exists() and not owned.anything()


def test_own_unused_segments_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(guard, "SEGMENTS", str(tmp_path))
    began = time.time()
    names = ("mpich_shm_1_0", "mpich_shm_2_0", "ucx_shm_posix_3", "mpich_shm_4_0", "other")
    for name in names:
        (tmp_path / name).touch()
    is_mine = guard._is_mine
    old = str(tmp_path / "mpich_shm_4_0")
    monkeypatch.setattr(guard, "_is_mine", lambda path, since: path != old and is_mine(path, since))
    with open(tmp_path / "mpich_shm_1_0"):
        guard.remove_segments(began)
        assert {path.name for path in tmp_path.iterdir()} == {
            "mpich_shm_1_0",
            "mpich_shm_4_0",
            "other",
        }
    guard.remove_segments(time.time() + 2 * guard.COARSE)  # that was before it began
    assert (tmp_path / "mpich_shm_1_0").exists()
    guard.remove_segments(began)
    assert not (tmp_path / "mpich_shm_1_0").exists()


def test_signals_that_are_ignored_stay_ignored(monkeypatch):
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    hup = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    try:
        with taken():
            os.kill(os.getpid(), signal.SIGHUP)
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(PATIENCE)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, hup)
    assert {number: signal.getsignal(number) for number in before} == before


def test_the_guard_reads_lines_written_before_it_started():
    """Its owner may be killed at once: the lines are in the pipe."""
    mark = "0123456789abcdef"
    child = subprocess.Popen(["sleep", "600"], env={**os.environ, guard.MARK: f"other:{mark}"})
    message = json.dumps({"mark": mark, "pid": child.pid}) + "\n"
    subprocess.run(owned.GUARD, input=message.encode(), check=True, timeout=PATIENCE)
    assert child.wait(PATIENCE) == -signal.SIGTERM


def test_a_temporary_folder_lasts_as_long_as_its_block(tmp_path):
    with owned.temporary_folder("x-", tmp_path) as folder:
        assert folder.is_dir() and owned.anything()
        (folder / "deep").mkdir()
        (folder / "deep" / "file").touch()
    assert not list(Path(tmp_path).iterdir())
