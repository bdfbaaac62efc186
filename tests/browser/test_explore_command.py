"""dlhpc explore, as `make explore` runs it: one address, the front door behind it, nothing left afterwards; a class."""

import re
import signal
import subprocess
import sys
import urllib.request
from contextlib import ExitStack

import psutil
import pytest
from axe import findings
from class_room import class_served, free_port
from lesson_page import LessonPage, has, tells
from patience import PATIENCE

from lib_dlhpc.classroom import classes, database
from lib_dlhpc.explore.server.serve import kernels_of

pytestmark = pytest.mark.browser


def test_it_prints_an_address_shows_the_front_door_and_ends_cleanly(
    open_page, eventually, tmp_path
):
    command = [sys.executable, "-m", "lib_dlhpc.cli", "explore", "--no-browser"]
    errors = tmp_path / "errors"
    with errors.open("w") as stream:
        server = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stream, text=True, start_new_session=True
        )
    try:
        line = server.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/\S*", line).group(0)
        page = open_page(address)
        eventually(lambda: page.title().startswith("What-if lab"))
        page.get_by_role("link", name="Plan", exact=True).first.click()
        page.wait_for_selector(".dlhpc-plot[data-serial] svg")
        eventually(lambda: page.title().startswith("What-if explorer"))
        page.get_by_role("link", name="What-if lab").click()
        page.get_by_text("Which algorithm, when?").wait_for()
        children = psutil.Process(server.pid).children(recursive=True)
        assert children
        page.close()  # or it asks for its kernel after the server's end, and complains
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=PATIENCE) == 0
        eventually(lambda: not any(child.is_running() for child in children))
        with pytest.raises(OSError):
            urllib.request.urlopen(address, timeout=PATIENCE)
        assert "ping" not in errors.read_text(), "of settings that the reader did not make"
    finally:
        server.kill()
        server.wait()


LESSON = """
from ipywidgets import Label
from lib_dlhpc.explore.blocks.lesson import Lesson

lesson = Lesson(module="toy")
lesson.predict("How many ms?", 8.0, "ms", "So it is.", then=Label("the chart"))
"""


DIES = """
import os, pathlib
pathlib.Path("dies").exists() and os.kill(os.getpid(), 9)
"""


class Room:
    """A class of one page, on one port: its server can be started again."""

    def __init__(self, page, folder):
        self.page, self.folder, self.port, self.running = page, folder, free_port(), ExitStack()

    def start(self):
        served = class_served(self.page, self.folder, self.port)
        self.address, self.pid = self.running.enter_context(served)

    def answers(self):
        entries = database.answers(self.folder / classes.DATABASE)
        return [entry.answer for entry in entries if entry.question]


@pytest.fixture(scope="module")
def room(chromium, notebook, tmp_path_factory):
    """One class for the tests of this file, in their order: to start a server takes seconds."""
    folder = tmp_path_factory.mktemp("room")
    room = Room(notebook(folder / "page.ipynb", LESSON, DIES), folder / "class")
    with room.running:
        room.start()
        yield room


def test_a_learner_joins_goes_on_in_another_browser_and_takes_it_back(open_page, room, eventually):
    folder, address = room.folder, room.address
    page = open_page(address)
    page.get_by_role("button", name="Not now").click()
    tells(page.locator(".dlhpc-class"), "Recording: off")
    page.get_by_role("button", name="Change").click()
    page.get_by_role("button", name="Keep my answers").click()
    tells(page.locator(".dlhpc-class"), "kept for this class, without a name")
    eventually(lambda: findings(page) == [], lambda: str(findings(page)))
    LessonPage(page).commit(0, "16")
    tells(page.locator(".dlhpc-question"), "it is 8 ms")
    cookies = page.context.storage_state()["cookies"]
    other = open_page(address, storage_state={"cookies": cookies, "origins": []})
    tells(other.locator(".dlhpc-question"), "You said 16 ms; it is 8 ms")
    has(other.locator(".dlhpc-stage"))
    has(other.locator(".dlhpc-stage.covered"), 0)
    board = open_page(f"{address}class/board?key={classes.keys(folder).board}")
    tells(board.locator(".question"), "How many ms?", "1 learner answered")
    has(board.get_by_text("It is 8 ms"), 0)
    board.get_by_role("button", name="Reveal").click()
    tells(board.locator(".question"), "It is 8 ms. 0 of 1 learner came within 20%.", "16")
    eventually(lambda: findings(board) == [], lambda: str(findings(board)))
    board.evaluate("location.hash = 'toy/not_yet'")  # as the link of a slide does
    tells(board.locator(".question"), "not yet", "Nobody has answered yet.")
    board.evaluate("location.hash = 'toy/How many ms?'")
    tells(board.locator(".question"), "0 of 1 learner came within 20%.")
    other.get_by_role("button", name="Change").click()
    other.get_by_role("button", name="Forget them").click()
    other.get_by_role("button", name="Delete all my answers here").click()
    tells(other.locator(".dlhpc-class"), "Your answers are deleted")
    assert database.answers(folder / classes.DATABASE) == []
    tells(board.locator("#state"), "0 learners")
    for each in (page, other, board):
        each.close()


# ms after which a page says that an answer was not heard, and between its looks whether its process lives. The tests
# turn its clock by that, and do not wait.
UNHEARD, LOOKS = 8_000, 10_000


def _page_with_a_clock(chromium):
    page = chromium.new_context().new_page()
    page.clock.install()
    return page


def test_an_answer_that_a_restarted_server_did_not_hear_is_recorded(chromium, room, eventually):
    page, before = _page_with_a_clock(chromium), len(room.answers())
    # The page complains of the server that is gone, as it should: nothing listens to that.
    page.goto(room.address)
    page.get_by_role("button", name="Keep my answers").click()
    tells(page.locator(".dlhpc-class"), "kept for this class")
    tells(page.locator(".dlhpc-question"), "How many ms?")
    room.running.close()
    room.start()
    page.locator(".dlhpc-question input").fill("16")
    page.get_by_role("button", name="Check my guess").click()
    page.clock.fast_forward(UNHEARD)
    tells(page.locator(".dlhpc-question"), "not recorded yet")
    page.get_by_role("button", name="Start it again").click()
    tells(page.locator(".dlhpc-question"), "You said 16 ms; it is 8 ms")
    eventually(lambda: room.answers()[before:] == ["16"])
    page.context.close()


def test_a_page_whose_process_dies_while_it_is_drawn_or_later_comes_back_with_its_answers(
    chromium, room, eventually
):
    page, before = _page_with_a_clock(chromium), len(room.answers())
    dies = room.page.parent / "dies"
    again = page.get_by_role("button", name="Start it again")
    # The page complains of the process that is gone, as it should: nothing listens to that.
    page.goto(room.address)
    page.get_by_role("button", name="Keep my answers").click()
    tells(page.locator(".dlhpc-class"), "kept for this class")
    LessonPage(page).commit(0, "16")
    tells(page.locator(".dlhpc-question"), "it is 8 ms")
    dies.touch()
    page.reload()
    tells(page.locator("#dlhpc-lost"), "The Python process of this page has ended")
    eventually(lambda: again.is_visible() and not page.get_by_text("Question(").is_visible())
    dies.unlink()
    again.click()
    tells(page.locator(".dlhpc-question"), "You said 16 ms; it is 8 ms")
    for kernel in kernels_of(psutil.Process(room.pid)):
        kernel.kill()

    def noticed():
        with page.expect_response("**/api/kernels/*"):
            page.clock.fast_forward(LOOKS)
        return again.is_visible()

    eventually(noticed)
    again.click()
    eventually(lambda: not again.is_visible())
    tells(page.locator(".dlhpc-question"), "You said 16 ms; it is 8 ms")
    eventually(lambda: room.answers()[before:] == ["16"])
    page.context.close()
