"""A class as its clients: learners who answer on their own machines while the server is killed and started again."""

import json
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psutil
from class_visitors import Visitor, lesson_page

from lib_dlhpc.classroom import classes, database, learner, record, sending
from lib_dlhpc.classroom.board import board
from lib_dlhpc.classroom.collecting import EVERY
from lib_dlhpc.classroom.entry import Entry
from lib_dlhpc.explore.server.serve import served

PATIENCE = 240.0  # s
BASE = "/some/course/"  # a class behind a proxy has a path before all of its addresses


class Outcome(NamedTuple):
    """What was answered, what arrived, and what the server needed.

    answered: in the records of learners at home, and of those in the room. acknowledged: (learner, answer) that a
    kernel of the room was done with. refused: sends and pages that had to be repeated.
    """

    answered: list[Entry]
    acknowledged: list[tuple[str, str]]
    arrived: list[Entry]
    shown: dict[str, int]  # by question: answers on the board
    restarts: int
    refused: int
    memory: float  # B, the most that a server had of its own
    slowest: float  # s, of an acknowledged send


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def page(path: Path) -> Path:
    """Write a notebook without cells."""
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    empty = {"cells": [], "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(empty), encoding="utf-8")
    return path


@contextmanager
def class_served(notebook: Path, folder: Path, port: int = 0) -> Iterator[tuple[str, int]]:
    """Serve a notebook to a class: (address, process id)."""
    options = (f"--class={folder}", f"--port={port}", f"--base-url={BASE}")
    with served(notebook, 0, *options) as server:
        yield server


class Client(threading.Thread):
    """A learner at home: answers, sends, and sends again what was not acknowledged."""

    def __init__(self, folder: Path, number: int, address: str, answers: int, pause: float) -> None:
        super().__init__(daemon=True)
        self.learner = learner.join(folder / f"home-{number}", f"learner {number}", address)
        self.answers, self.pause, self.random = answers, pause, random.Random(number)
        self.refused, self.slowest = 0, 0.0

    def run(self) -> None:
        for number in range(self.answers):
            value = self.random.randint(1, 9)
            place = (self.learner.folder, self.learner.id, "toy", f"q{number % 4}", "guess")
            record.add(*place, answer=str(value), value=float(value), right=value == 5, final=True)
            self.send()
            time.sleep(self.random.uniform(0, 2 * self.pause))
        until = time.monotonic() + PATIENCE
        while sending.unsent(self.learner) and time.monotonic() < until:
            self.send()
            time.sleep(self.pause)

    def send(self) -> None:
        start = time.monotonic()
        try:
            sending.send(self.learner)
            self.slowest = max(self.slowest, time.monotonic() - start)
        except sending.AWAY:
            self.refused += 1


def soaked(
    work: Path, clients: int, answers: int, pause: float, lives: list[float], visitors: int = 0
) -> Outcome:
    """Let learners answer while a server lives for some seconds at a time, killed after each but the last.

    clients: learners at home, over HTTP; visitors: learners on the server's pages, over WebSockets.
    """
    folder, port, memory = work / "class", free_port(), 0.0
    notebook = lesson_page(work / "page.ipynb")
    address = f"http://127.0.0.1:{port}{BASE}"
    at_home = [Client(work, number, address, answers, pause) for number in range(clients)]
    in_room = [Visitor(address, number, answers, pause) for number in range(visitors)]
    learners = [*at_home, *in_room]
    for number, life in enumerate([*lives, None]):
        with class_served(notebook, folder, port) as (_, pid):
            if number == 0:
                for each in learners:
                    each.start()
            if life is not None:
                time.sleep(life)
                memory = max(memory, own_memory(pid))
                os.kill(pid, signal.SIGKILL)
                continue
            for each in learners:
                each.join(PATIENCE)
            time.sleep(2 * EVERY)
            memory = max(memory, own_memory(pid))
    file = folder / classes.DATABASE
    shown = {q["question"]: sum(b["count"] for b in q["bins"]) for q in board(file)["questions"]}
    folders = [each.learner.folder for each in at_home]
    folders += [each.parent for each in (folder / classes.LEARNERS).rglob(learner.RECORD)]
    return Outcome(
        answered=[entry for each in folders for entry in record.entries(each)],
        acknowledged=[(each.learner, text) for each in in_room for text in each.acknowledged],
        arrived=database.answers(file),
        shown=shown,
        restarts=len(lives),
        refused=sum(each.refused for each in at_home) + sum(each.lost for each in in_room),
        memory=memory,
        slowest=max((each.slowest for each in at_home), default=0.0),
    )


def own_memory(pid: int) -> float:
    """Return the bytes that a process shares with no other; 0 if it has ended."""
    with suppress(psutil.Error):
        return float(psutil.Process(pid).memory_full_info().uss)
    return 0.0
