"""Learners who go through whole modules and a lab of a class: over WebSockets as pages do, and in real browsers."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.request import Request

from class_visitors import AWAY, PATIENCE, Visitor

from lib_dlhpc.classroom import learner, sending

LAB, ANSWERS = "01_data_parallel_step", ("solution", "starter")
OWN_LAB = threading.Semaphore(2)  # at once: each is a process of numpy
SETTLE = 10.0  # s without another question, then a page is whole
WAIT = 1.0  # s before a page is opened again
ARRIVE = 2.0  # s from one learner to the next
OPEN = "form:has(button.first:enabled:text-is('Check my guess'))"  # of a question


class Pupil(Visitor):
    """Answers every question of some modules once, then does a lab at home, as the same learner.

    course: the repository. home: a folder for the lab. until: a moment of time.monotonic() at which to give up.
    """

    def __init__(
        self, address: str, number: int, modules: Sequence[str], course: Path, home: Path
    ) -> None:
        super().__init__(address, number, 0, 0.0)
        self.number, self.modules, self.course, self.home = number, modules, course, home
        self.until, self.done, self.lab = float("inf"), set[tuple[str, str]](), ""

    def run(self) -> None:
        time.sleep(ARRIVE * self.number)
        for module in self.modules:
            while time.monotonic() < self.until:
                try:
                    self.token = self.token or self._join()
                    self._answer_all(module)
                    break
                except AWAY:
                    self.lost += 1
                    time.sleep(WAIT)
        self._do_lab()

    def _answer_all(self, module: str) -> None:
        with self._page(f"voila/render/{module}.ipynb") as (socket, states):
            asked = [(number, state) for number, state in states.items() if "given" in state]
            self._set(socket, asked[0][0], visitor=[1, self.token])
            for number, state in asked:
                place = module, state["name"]
                if place in self.done:
                    continue
                text = self._answer(state)
                self._set(socket, number, given=[time.time_ns(), text])
                self.acknowledged.append(text)
                self.done.add(place)
        with self.open(
            Request(f"{self.address}voila/api/shutdown/{self.kernel}", b""), timeout=PATIENCE
        ):
            pass  # as a page that closes

    def _answer(self, state: dict[str, Any]) -> str:
        """Return an answer: the same whenever this learner is asked again."""
        drawn = learner.seed(self.token, state["name"])
        if state["options"]:
            return str(state["options"][drawn % len(state["options"])])
        return str(1 + drawn % 99)

    def _do_lab(self) -> None:
        """Check a step, right or as it was handed out, and send what the record has of it."""
        folder = self.home / LAB
        folder.mkdir(parents=True)
        (folder / "step.py").write_text(step_of(self.course, ANSWERS[self.number % 2]), "utf-8")
        (folder / "checks.py").write_bytes((self.course / "labs" / LAB / "checks.py").read_bytes())
        own = learner.join(self.home / "record", self.name, self.address, self.token)
        with OWN_LAB:
            self.lab = subprocess.run(
                [sys.executable, "checks.py", "step.py", self.name],
                cwd=folder,
                env={**os.environ, learner.HOME: str(own.folder)},
                capture_output=True,
                text=True,
                check=False,
            ).stdout
        while sending.unsent(own) and time.monotonic() < self.until:
            try:
                sending.send(own)
            except sending.AWAY:
                self.lost += 1
                time.sleep(WAIT)


def step_of(course: Path, which: str) -> str:
    """Return the solution of the lab, or one that forgets the exchange."""
    if which == "starter":
        return "def step(network, loss, x, y, comm, rate):\n    return 0.0\n"
    return (course / "instructor_notes" / "solutions" / f"lab_{LAB}.py").read_text("utf-8")


class Browser(threading.Thread):
    """A learner with a real browser: joins on the first page, and commits every guess of some modules."""

    def __init__(self, address: str, number: int, modules: Sequence[str], program: str) -> None:
        super().__init__(daemon=True)
        self.address, self.number, self.modules, self.program = address, number, modules, program
        self.lost, self.answered, self.until = 0, 0, float("inf")
        self.joined, self.failed = False, ""

    def run(self) -> None:
        from playwright.sync_api import Error, sync_playwright

        with sync_playwright() as driver:
            flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
            browser = driver.chromium.launch(executable_path=self.program, args=flags)
            page = browser.new_context().new_page()
            page.set_default_timeout(1000 * PATIENCE)
            for module in self.modules:
                while time.monotonic() < self.until:
                    try:
                        self._go_through(page, module)
                        break
                    except (Error, *AWAY) as error:
                        self.lost, self.failed = self.lost + 1, str(error)
                        time.sleep(WAIT)
            browser.close()

    def _go_through(self, page: Any, module: str) -> None:
        """Open a module, and answer until no guess is left that has not been heard."""
        page.goto(f"{self.address}voila/render/{module}.ipynb")
        if not self.joined:
            page.get_by_role("button", name="Keep my answers").click()
            page.get_by_text("kept for this class").first.wait_for()
            self.joined = True
        page.locator(".dlhpc-question").first.wait_for()
        whole = 0
        while (many := page.locator(".dlhpc-question").count()) != whole:
            whole = many
            time.sleep(SETTLE)
        guesses = page.locator(OPEN)
        while before := guesses.count():
            card = guesses.first
            if card.locator("select").count():
                card.locator("select").select_option(index=1)
            else:
                card.locator("input").fill(str(3 + self.number))
            card.get_by_role("button", name="Check my guess").click()
            until = time.monotonic() + PATIENCE
            while guesses.count() == before:
                if time.monotonic() > until:
                    raise TimeoutError("a guess was not heard")
                time.sleep(0.1)
            self.answered += 1
