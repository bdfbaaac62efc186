"""Visitors of a class's pages: WebSocket clients that speak to their kernels as a page does."""

import json
import re
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from lib_dlhpc.classroom.learner import identity

OPEN = build_opener(ProxyHandler({})).open
PATIENCE = 120.0  # s
AWAY = (OSError, HTTPException, WebSocketException, ValueError, LookupError)
ENDED = ("dead", "restarting")  # states of a kernel
LESSON = """
from lib_dlhpc.explore.blocks.lesson import Lesson

Lesson(module="toy").compute("How many?", 0.5)
"""


def lesson_page(path: Path) -> Path:
    """Write a notebook with one question, which takes any number of wrong answers."""
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    cell = {"id": "c", "cell_type": "code", "metadata": {}, "source": LESSON}
    cells = [{**cell, "outputs": [], "execution_count": None}]
    body = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(body), encoding="utf-8")
    return path


class Visitor(threading.Thread):
    """Joins, and answers on a page; opens it again whenever the server or the kernel is gone.

    page: after the address of the server; the first question on it with an entry is answered.
    acknowledged: the answers that the kernel is done with. lost: how many pages ended too early.
    """

    def __init__(
        self, address: str, number: int, answers: int, pause: float, page: str = ""
    ) -> None:
        super().__init__(daemon=True)
        self.page, self.open = page, OPEN
        self.address, self.name, self.answers, self.pause = (
            *(address, f"visitor {number}"),
            *(answers, pause),
        )
        self.token, self.session, self.kernel = "", uuid.uuid4().hex, ""
        self.acknowledged: list[str] = []
        self.lost = 0

    @property
    def learner(self) -> str:
        return identity(self.token)

    def run(self) -> None:
        until = time.monotonic() + 2 * PATIENCE
        while len(self.acknowledged) < self.answers and time.monotonic() < until:
            try:
                self._visit()
            except AWAY:
                self.lost += 1
                time.sleep(self.pause)

    def _visit(self) -> None:
        if not self.token:
            self.token = self._join()
        with self._page(self.page) as (socket, states):
            question = next(number for number, state in states.items() if "given" in state)
            self._set(socket, question, visitor=[1, self.token])
            while len(self.acknowledged) < self.answers:
                text = str(1000 + len(self.acknowledged))
                self._set(socket, question, given=[time.time_ns(), text])
                self.acknowledged.append(text)
                time.sleep(self.pause)

    @contextmanager
    def _page(self, page: str) -> Iterator[tuple[Any, dict[str, dict[str, Any]]]]:
        """Open a page; yields its connection and the states of its widgets, by model."""
        with self.open(f"{self.address}{page}", timeout=PATIENCE) as said:
            self.kernel = re.search(r'"kernelId": "([^"]+)"', said.read().decode())[1]  # type: ignore[index]
        place = f"ws{self.address.removeprefix('http')}api/kernels/{self.kernel}/channels"
        place = f"{place}?session_id={self.session}"
        with connect(
            place, max_size=None, proxy=None, additional_headers=self._cookies()
        ) as socket:
            comm = {"comm_id": uuid.uuid4().hex}
            opening = {**comm, "target_name": "jupyter.widget.control", "data": {}}
            self._ask(socket, "comm_open", opening)
            asked = {**comm, "data": {"method": "request_states"}}
            said = self._ask(socket, "comm_msg", asked)
            models = [each["data"].get("states", {}).items() for each in said]
            yield socket, {number: model["state"] for every in models for number, model in every}

    def _join(self) -> str:
        headers = {"Content-Type": "application/json"}
        body = json.dumps({"name": self.name}).encode()
        asked = Request(f"{self.address}class/api/join", body, headers)
        with self.open(asked, timeout=PATIENCE) as said:
            found = re.search(r"dlhpc-learner=([\w-]+)", str(said.headers))
        return found[1]  # type: ignore[index]

    def _cookies(self) -> dict[str, str]:
        """Return the headers by which a WebSocket is known."""
        return {}

    def _set(self, socket: Any, model: str, **state: Any) -> None:
        change = {"method": "update", "state": state, "buffer_paths": []}
        self._ask(socket, "comm_msg", {"comm_id": model, "data": change})

    def _ask(self, socket: Any, kind: str, content: dict[str, Any]) -> list[dict[str, Any]]:
        """Send a message; return the contents of the comm messages until the kernel is idle again."""
        number = uuid.uuid4().hex
        about = {"msg_id": number, "msg_type": kind, "session": self.session, "version": "5.3"}
        message = {
            "header": {**about, "username": ""},
            "parent_header": {},
            "metadata": {"version": "1.0.0"},  # of the protocol of widgets' states
            "content": content,
            "channel": "shell",
            "buffers": [],
        }
        socket.send(json.dumps(message))
        answers: list[dict[str, Any]] = []
        until = time.monotonic() + PATIENCE  # of all messages: others go on where this one was lost
        while True:
            data = socket.recv(max(0.0, until - time.monotonic()))
            # With buffers: how many parts, where each begins, the parts.
            if not isinstance(data, str):
                places = [int.from_bytes(data[4 * n : 4 * n + 4]) for n in range(1, data[3] + 1)]
                data = data[places[0] : places[1] if len(places) > 1 else None]
            answer = json.loads(data)
            if answer["content"].get("execution_state") in ENDED:
                raise ConnectionError("the kernel has ended")
            if answer["parent_header"].get("msg_id") != number:
                continue
            if answer["header"]["msg_type"] == "comm_msg":
                answers.append(answer["content"])
            elif answer["content"].get("execution_state") == "idle":
                return answers
