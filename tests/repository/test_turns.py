"""Tests on ranks have the machine for themselves, tests in a browser share it, and whoever asks first is next."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from patience import PATIENCE, eventually
from turns import ALONE, SHARED, flock, turn, turn_of

locks = pytest.mark.skipif(flock is None, reason="no such locks here")


def test_a_turn_is_its_folders(repository):
    tests = repository / "tests"
    assert turn_of(tests / "mpi" / "test_x.py", tests) == ALONE
    assert turn_of(tests / "browser" / "deep" / "test_x.py", tests) == SHARED
    assert turn_of(tests / "storage" / "mpi" / "test_x.py", tests) == ""
    assert turn_of(Path("/elsewhere/mpi/test_x.py"), tests) == ""


class Player(threading.Thread):
    """Asks for a turn, says so in `told`, and keeps it until it may go."""

    def __init__(self, name, kind, place, told):
        super().__init__(daemon=True)
        self.name, self.kind, self.place, self.told = name, kind, place, told
        self.asks, self.has, self.may_go = (threading.Event() for _ in range(3))
        self.start()
        assert self.asks.wait(PATIENCE)

    def run(self):
        self.asks.set()
        with turn(self.kind, self.place):
            self.told.append(f"{self.name} has it")
            self.has.set()
            self.may_go.wait(PATIENCE)
            self.told.append(f"{self.name} goes")

    def goes(self):
        assert self.has.wait(PATIENCE)
        self.may_go.set()
        self.join(PATIENCE)


def someone_waits(place):
    """Whoever waits for the machine holds the queue."""
    from fcntl import LOCK_EX, LOCK_NB

    with open(place / "queue.lock", "w") as queue:
        try:
            flock(queue, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            return True
    return False


@locks
def test_those_that_share_have_it_at_once(tmp_path):
    players = [Player(str(number), SHARED, tmp_path, []) for number in range(3)]
    assert all(player.has.wait(PATIENCE) for player in players)
    for player in players:
        player.goes()


@locks
def test_nobody_is_beside_one_that_is_alone_and_none_overtakes_it(tmp_path):
    told = []
    first = Player("page", SHARED, tmp_path, told)
    assert first.has.wait(PATIENCE)
    alone = Player("ranks", ALONE, tmp_path, told)
    eventually(lambda: someone_waits(tmp_path), "the ranks wait")
    late = Player("late page", SHARED, tmp_path, told)  # else it would share with the first
    assert not alone.has.is_set()
    for player in (first, alone, late):
        player.goes()
    assert told == [
        "page has it",
        "page goes",
        "ranks has it",
        "ranks goes",
        "late page has it",
        "late page goes",
    ]


@locks
def test_one_that_is_killed_holds_nobody_up(tmp_path, repository):
    program = (
        "import sys; from pathlib import Path; from turns import ALONE, turn\n"
        "with turn(ALONE, Path(sys.argv[1])): print('has it', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=repository / "tests" / "helpers",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "has it\n"
        waiting = Player("next", ALONE, tmp_path, [])
        eventually(lambda: someone_waits(tmp_path), "the next one waits")
        assert not waiting.has.is_set()
    finally:
        holder.kill()
        holder.communicate()
    waiting.goes()
    assert waiting.told == ["next has it", "next goes"]


def test_who_needs_no_turn_takes_none(tmp_path):
    with turn("", tmp_path):
        assert not list(tmp_path.iterdir())
