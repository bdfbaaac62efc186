"""A kernel that ends before its page does: the page ends too, and says so; the next visitor has another kernel."""

import json
import os
import re
import signal
import threading
import urllib.request

import psutil
import pytest
from patience import PATIENCE, eventually

from lib_dlhpc.explore.server import forked
from lib_dlhpc.explore.server.serve import kernels_of, served

pytestmark = pytest.mark.skipif(forked.CONTEXT is None, reason="its kernels are no forks")

SAYS = "import os, signal, time; from pathlib import Path; print('PROCESS', os.getpid())"
DIES = "Path('dies').exists() and os.kill(os.getpid(), signal.SIGKILL)"
WAITS = """
print("waiting", flush=True)
Path('drawing').write_text(str(os.getpid()))
while not Path('goes on').exists(): time.sleep(0.02)
"""
DONE = "print('all of it'); Path('done').write_text(str(os.getpid()))"
# What a shell of Python executes before it answers anything.
BEFORE = """
import os, pathlib, time
pathlib.Path("dies first").exists() and os.kill(os.getpid(), 9)
while pathlib.Path("waits first").exists():
    pathlib.Path("starting").write_text(str(os.getpid()))
    time.sleep(0.02)
"""


@pytest.fixture(scope="module", autouse=True)
def profile(tmp_path_factory):
    """Kernels execute BEFORE as they start."""
    folder = tmp_path_factory.mktemp("ipython")
    startup = folder / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00-before.py").write_text(BEFORE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(folder))
        yield


@pytest.fixture(scope="module")
def room(profile, tmp_path_factory):
    """A server without kernels kept ready: (address, process id, the folder that it shows)."""
    folder = tmp_path_factory.mktemp("pages")
    with served(folder) as (address, pid):
        yield address, pid, folder


def notebook(folder, *cells):
    """Write a page with these cells, and a sentence after each."""
    folder.mkdir(exist_ok=True)
    path = folder / "page.ipynb"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    content = []
    for number, source in enumerate(cells):
        about = {"id": f"c{number}", "metadata": {}, "source": source}
        content.append({**about, "cell_type": "code", "outputs": [], "execution_count": None})
        text = {"id": f"t{number}", "metadata": {}, "source": f"Sentence {number}"}
        content.append({**text, "cell_type": "markdown"})
    body = {"cells": content, "metadata": {"kernelspec": kernel}}
    path.write_text(json.dumps({**body, "nbformat": 4, "nbformat_minor": 5}), encoding="utf-8")
    return path


def page(room, name, *cells):
    """Add a page to a room: its address, and its kernel's folder."""
    address, _, folder = room
    notebook(folder / name, *cells)
    return f"{address}voila/render/{name}/page.ipynb", folder / name


class Visit(threading.Thread):
    """A visitor who reads a page to its end. text: the page, empty until then."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.address, self.text = address, ""
        self.start()

    def run(self):
        with urllib.request.urlopen(self.address, timeout=PATIENCE) as answer:
            self.text = answer.read().decode()

    def whole(self):
        return eventually(lambda: self.text, "the end of the page")


def read(path):
    """Return the process id in a file, once it is there."""
    return int(eventually(lambda: path.exists() and path.read_text(), f"{path.name}"))


def is_lost(text):
    """Whether a page says that its process has ended; it is whole, with the button, in any case."""
    assert text.rstrip().endswith("</html>") and "Start it again" in text
    return "hidden" not in re.search(r'id="dlhpc-lost" role="alert"([^>]*)>', text)[1]


def answers(address, text):
    """Whether the server has the kernel of a page."""
    kernel = re.search(r'"kernelId": "([^"]+)"', text)[1]
    try:
        with urllib.request.urlopen(f"{address}api/kernels/{kernel}", timeout=PATIENCE):
            return True
    except urllib.error.HTTPError:
        return False


def gone(pid):
    """Wait until a process has ended, and its parent knows it."""
    eventually(lambda: not psutil.pid_exists(pid), "the end of a kernel")


def test_a_page_whose_kernel_is_killed_while_it_is_drawn_ends_and_says_so(room):
    cells = [SAYS, WAITS, "print('not any more')", "print('nor this')"]
    address, folder = page(room, "killed", *cells)
    visit = Visit(address)
    os.kill(read(folder / "drawing"), signal.SIGKILL)
    text = visit.whole()
    assert is_lost(text) and not answers(room[0], text)
    assert "PROCESS" in text and "waiting" in text and "Sentence 3" in text
    assert "not any more" not in text and "exception" not in text.lower()
    (folder / "goes on").touch()
    text = Visit(address).whole()
    assert "nor this" in text and not is_lost(text) and answers(room[0], text)


@pytest.mark.parametrize("before", [0, 1, 3])
def test_a_page_whose_kernel_dies_in_any_of_its_cells_ends(room, before):
    address, folder = page(room, f"dies-{before}", *["pass"] * before, f"{SAYS}; {DIES}", "pass")
    (folder / "dies").touch()
    assert is_lost(Visit(address).whole())


def test_a_page_whose_kernel_dies_before_its_first_cell_ends(room):
    address, folder = page(room, "dies-first", SAYS, DONE)
    (folder / "dies first").touch()
    text = Visit(address).whole()
    assert is_lost(text) and "Sentence 1" in text and "PROCESS" not in text
    (folder / "dies first").unlink()
    text = Visit(address).whole()
    assert not is_lost(text) and "all of it" in text


def test_the_kernel_of_a_page_that_was_read_to_its_end_goes_on(room):
    address, _ = page(room, "read", SAYS, DONE)
    first = Visit(address).whole()
    assert answers(room[0], Visit(address).whole()) and answers(room[0], first)


def test_a_kernel_that_dies_after_its_page_was_drawn_is_not_started_again(room):
    """A page asks for its kernel; nobody would execute the page's cells in another one."""
    address, folder = page(room, "later", SAYS, DONE)
    text = Visit(address).whole()
    before = len(kernels_of(psutil.Process(room[1])))
    os.kill(read(folder / "done"), signal.SIGKILL)
    eventually(lambda: not answers(room[0], text), "the news of its end")
    assert len(kernels_of(psutil.Process(room[1]))) == before - 1


def test_the_kernel_of_a_visitor_who_leaves_while_the_page_is_drawn_ends(room):
    address, folder = page(room, "left", SAYS, WAITS, DONE)
    gone(leave(address))
    (folder / "goes on").touch()
    assert "all of it" in Visit(address).whole()


def test_the_kernel_of_a_visitor_who_leaves_before_it_has_started_ends(room):
    address, folder = page(room, "left-first", SAYS, WAITS)
    (folder / "waits first").touch()
    with urllib.request.urlopen(address, timeout=PATIENCE):
        kernel = read(folder / "starting")
    (folder / "waits first").unlink()
    gone(kernel)


def leave(address):
    """Close a page once the first cell is drawn; return its kernel's process id."""
    drawn = b""
    with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
        while not (found := re.search(rb"PROCESS (\d+)", drawn)):
            drawn += answer.read1()
    return int(found[1])


def test_a_kernel_that_was_kept_ready_and_died_is_given_to_nobody(tmp_path):
    with served(notebook(tmp_path, SAYS, DONE), 1) as (address, pid):
        first = read(tmp_path / "done")
        os.kill(first, signal.SIGKILL)
        gone(first)
        text = Visit(address).whole()
        assert not is_lost(text) and answers(address, text)
        assert f"PROCESS {first}" not in text and "all of it" in text
        eventually(lambda: len(kernels_of(psutil.Process(pid))) == 2, "another that is kept ready")


@pytest.mark.parametrize("when", ["dies", "dies first"])
def test_a_kernel_that_dies_while_it_is_made_ready_is_given_to_nobody(tmp_path, when):
    (tmp_path / when).touch()
    with served(notebook(tmp_path, SAYS, WAITS, DIES, DONE), 1) as (address, pid):
        (tmp_path / "goes on").touch()
        eventually(lambda: not kernels_of(psutil.Process(pid)), "its end")
        (tmp_path / when).unlink()
        text = Visit(address).whole()
        assert not is_lost(text) and "all of it" in text and answers(address, text)


def test_one_that_was_kept_ready_ends_with_its_page_and_with_its_visitor(tmp_path):
    with served(notebook(tmp_path, SAYS, WAITS, DONE), 1) as (address, pid):
        first = read(tmp_path / "drawing")
        visit = Visit(address)
        eventually(lambda: read(tmp_path / "drawing") != first, "the next that is made ready")
        second = read(tmp_path / "drawing")
        os.kill(first, signal.SIGKILL)
        text = visit.whole()
        assert is_lost(text) and f"PROCESS {first}" in text and not answers(address, text)
        assert leave(address) == second
        gone(second)
        eventually(lambda: len(kernels_of(psutil.Process(pid))) == 1, "the next that is kept ready")
