"""Soak test of a class of thirty: two modules and a lab, while servers and kernels are killed. Linux only.

    python tests/soak/thirty_soak.py       28 WebSocket clients and two browsers through modules 12 and 13 and lab 1
    python tests/soak/thirty_soak.py --clients 2 --browsers 1 --kills 1 --every 20 02_data_parallel      a look

Each learner answers every question of the modules, then checks a step of the lab and sends the result. Prints what was
answered, what arrived, what the board shows of each question, and memory. Exits with 1 if anything was lost or doubled.
"""

import argparse
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))
from class_pupils import Browser, Pupil
from class_room import BASE, class_served, free_port

from lib_dlhpc.classroom import classes, database, learner, record
from lib_dlhpc.classroom.board import board
from lib_dlhpc.classroom.collecting import EVERY
from lib_dlhpc.classroom.entry import Entry
from lib_dlhpc.explore.server.serve import kernels_of

ROOT = Path(__file__).resolve().parents[2]
MODULES = ["12_train_a_language_model", "13_serving"]
LOOK = 2.0  # s between two looks at memory
PATIENCE = 7200.0  # s for all


class Watch(threading.Thread):
    """Looks at the memory of a server and its kernels, and kills a kernel after every `every` answers."""

    def __init__(self, folder: Path, every: int) -> None:
        super().__init__(daemon=True)
        self.folder, self.every, self.pid, self.killed = folder, every, 0, 0
        self.server = self.kernel = self.all = 0.0  # B, the most that was seen
        self.many, self.random = 0, random.Random(1)

    def run(self) -> None:
        while True:
            time.sleep(LOOK)
            with suppress(psutil.Error):
                server = psutil.Process(self.pid)
                kernels = kernels_of(server)
                own = [each.memory_full_info().uss for each in kernels]
                alone = server.memory_full_info().uss
                self.server, self.kernel = max(self.server, alone), max([self.kernel, *own])
                self.all, self.many = max(self.all, alone + sum(own)), max(self.many, len(own))
                if kernels and recorded(self.folder) >= self.every * (self.killed + 1):
                    self.killed += 1
                    self.random.choice(kernels).send_signal(signal.SIGKILL)


def recorded(folder: Path) -> int:
    """Return how many entries the learners of a class have in their folders."""
    files = (folder / classes.LEARNERS).rglob(learner.RECORD)
    return sum(file.read_bytes().count(b"\n") for file in files)


def learners_of(given: argparse.Namespace, work: Path, address: str) -> list[Any]:
    """Return the learners, not started."""
    program = shutil.which("chromium") or shutil.which("google-chrome") or ""
    if given.browsers and not program:
        sys.exit("no chromium on this machine; --browsers 0 does without")
    pupils = [
        Pupil(address, number, given.modules, ROOT, work / f"pupil-{number}")
        for number in range(given.clients)
    ]
    return [*pupils, *(Browser(address, n, given.modules, program) for n in range(given.browsers))]


def taught(given: argparse.Namespace, work: Path, watch: Watch) -> list[Any]:
    """Let a class go through the modules while its server is killed some times; return the learners."""
    port = free_port()
    learners = learners_of(given, work, f"http://127.0.0.1:{port}{BASE}")
    for each in learners:
        each.until = time.monotonic() + PATIENCE
    for number in range(given.kills + 1):
        with class_served(ROOT / "modules", work / "class", port) as (_, watch.pid):
            if number == 0:
                watch.start()
                for each in learners:
                    each.start()
            if number < given.kills:
                while recorded(work / "class") < given.every * (number + 1):
                    time.sleep(LOOK)
                psutil.Process(watch.pid).kill()
                continue
            for each in learners:
                each.join(PATIENCE)
            time.sleep(2 * EVERY)
    return learners


def rows_of(
    given: argparse.Namespace, work: Path, learners: list[Any]
) -> list[tuple[str, int, int]]:
    """Return what was found and what was expected."""
    file, pupils = work / "class" / classes.DATABASE, learners[: given.clients]
    folders = {each.parent for each in work.rglob(learner.RECORD)}
    answered = [entry for folder in folders for entry in record.entries(folder)]
    arrived = database.answers(file)
    sent, known = ({entry.id: entry for entry in some} for some in (answered, arrived))
    missing = Counter((each.learner, text) for each in pupils for text in each.acknowledged)
    missing.subtract((entry.learner, entry.answer) for entry in arrived)
    shown = {(q["module"], q["question"]): q for q in board(file)["questions"]}
    firsts = Counter((e.module, e.question) for e in _firsts(answered))
    counted = {place: sum(b["count"] for b in q["bins"]) for place, q in shown.items()}
    return [
        ("learners on the board", len(board(file)["learners"]), len(learners)),
        ("learners who did not come to the end", sum(each.is_alive() for each in learners), 0),
        (
            "answers acknowledged on pages and lost",
            sum(max(0, count) for count in missing.values()),
            0,
        ),
        ("entries that arrived", len(arrived), len(answered)),
        ("lost or changed", sum(known.get(key) != entry for key, entry in sent.items()), 0),
        ("rows of the board", len(shown), len(firsts)),
        (
            "rows whose bins are not all first answers",
            sum(counted[at] != n for at, n in firsts.items()),
            0,
        ),
        (
            "labs that hold",
            sum(e.right is True for e in arrived if e.kind == "lab"),
            (given.clients + 1) // 2,
        ),
        (
            "labs that do not",
            sum(e.right is False for e in arrived if e.kind == "lab"),
            given.clients // 2,
        ),
    ]


def _firsts(entries: list[Entry]) -> list[Entry]:
    """Return one entry of each learner and question."""
    places = {(e.learner, e.module, e.question): e for e in entries if e.kind != "open"}
    return list(places.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("modules", nargs="*", default=MODULES, help="names of notebooks")
    parser.add_argument("--clients", type=int, default=28, help="WebSocket clients (28)")
    parser.add_argument("--browsers", type=int, default=2, help="real browsers (2)")
    parser.add_argument("--kills", type=int, default=3, help="of the server (3)")
    parser.add_argument("--every", type=int, default=500, help="answers from one to the next (500)")
    parser.add_argument(
        "--kernel", type=int, default=150, help="answers from one kernel's end (150)"
    )
    given = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dlhpc-thirty-") as work:
        watch = Watch(Path(work) / "class", given.kernel)
        learners = taught(given, Path(work), watch)
        rows = rows_of(given, Path(work), learners)
    for what, value, expected in rows:
        print(f"{what:<44} {value:>8,}   expected {expected:,}")
    more = [
        (
            "answers acknowledged on pages",
            sum(len(p.acknowledged) for p in learners[: given.clients]),
        ),
        ("guesses committed in browsers", sum(each.answered for each in learners[given.clients :])),
        ("kills of the server", given.kills),
        ("kills of kernels", watch.killed),
        ("pages and sends that were repeated", sum(each.lost for each in learners)),
        ("kernels at once, at most", watch.many),
        ("own memory of the server, MB", watch.server / 1e6),
        ("of the largest kernel, MB", watch.kernel / 1e6),
        ("of the server and all kernels, MB", watch.all / 1e6),
        ("in all, s", time.monotonic() - start),
    ]
    for what, value in more:
        print(f"{what:<44} {value:>8,.0f}")
    return int(any(value != expected for _, value, expected in rows))


if __name__ == "__main__":
    sys.exit(main())
