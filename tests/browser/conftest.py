"""A real page in a real browser: Voila started the way users start it, Debian's Chromium, no network.

Every page fails its test on a console error and on any request that would leave the machine.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from lesson_page import LessonPage
from patience import PATIENCE, POLLING
from patience import eventually as _eventually

from lib_dlhpc.explore.server.serve import served

# Each window's address bar would have pages of its own, in two processes: more work than opening ours. The last list
# of features wins, so Playwright's is part of it.
DISABLED = """
WebUIOmniboxPopup WebUIOmniboxAimPopup WebUIOmniboxFullPopup AimEnabled
AvoidUnnecessaryBeforeUnloadCheckSync DestroyProfileOnBrowserClose HttpsUpgrades HttpsFirstBalancedModeAutoEnable
LensOverlay MediaRouter PaintHolding ThirdPartyStoragePartitioning AvoidCorsURLLoaderRestartOnRedirect
OptimizationHints NetworkTimeServiceQuerying PreconnectToSearch
"""
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    f"--disable-features={','.join(DISABLED.split())}",
    # A page's script fills the little memory that it has at first again and again, and each time is searched for what
    # is garbage: a quarter of the browser's time.
    "--js-flags=--min-semi-space-size=32,--initial-heap-size=256",  # MB
]
# The first is a browser without windows; it takes a sixth less time, and Debian has it in a package of its own.
BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")


def _notebook(path: Path, *cells: str) -> Path:
    """Write a notebook; a cell that starts as a heading does, # or ## and a space, is text, all others are code."""
    content = [
        {"id": f"c{i}", "cell_type": "markdown", "metadata": {}, "source": cell}
        if cell.startswith(("# ", "## "))
        else {
            "id": f"c{i}",
            "cell_type": "code",
            "metadata": {},
            "source": cell,
            "outputs": [],
            "execution_count": None,
        }
        for i, cell in enumerate(cells)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    body = {
        "cells": content,
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path.write_text(json.dumps(body), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def notebook() -> Callable[..., Path]:
    """A function: notebook(path, *cells) writes one."""
    return _notebook


@pytest.fixture(scope="session")
def eventually() -> Callable[..., Any]:
    """A function: eventually(condition) polls. No other way to assert what a page shows: see tests/repository."""
    return _eventually


@pytest.fixture(scope="session")
def chromium(require: Callable[[object, str], None]) -> Iterator[Any]:
    """One headless Chromium; pages of different tests share nothing, each has a context of its own."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    require(program, "no chromium on this machine")
    playwright = pytest.importorskip("playwright.sync_api").sync_playwright
    with playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=program, args=FLAGS, timeout=PATIENCE * 1000
        )
        yield browser
        browser.close()


@contextmanager
def _pages(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Give a function that opens pages; at the end none may have complained.

    Without motion: a bar that moves while a kernel starts takes time that the kernel lacks.
    """
    complaints: list[str] = []
    contexts = []

    def open_page(address: str, width: int = 1280, **options: Any) -> Any:
        options = {"reduced_motion": "reduce", **options}
        context = chromium.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE * 1000)
        home = "/".join(address.split("/")[:3]) + "/"
        page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda r: (
                complaints.append(f"left the machine: {r.url}")
                if not r.url.startswith((home, "data:", "blob:"))
                else None
            ),
        )
        page.on(
            "response",
            lambda r: complaints.append(f"{r.status} {r.url}") if r.status >= 400 else None,
        )
        page.goto(address)
        return page

    yield open_page
    found = [*complaints]
    for context in contexts:
        # Their kernels end: chromium-headless-shell drops the last words of closed ones.
        for page in context.pages:
            page.goto("about:blank")
        context.close()
    assert found == []


@pytest.fixture
def open_page(chromium: Any) -> Iterator[Callable[..., Any]]:
    """A function: open_page(address, width) gives a page; at the end none may have complained."""
    with _pages(chromium) as open_page:
        yield open_page


@pytest.fixture(scope="module")
def open_lasting_page(chromium: Any) -> Iterator[Callable[..., Any]]:
    """As `open_page`; the page is there for all tests of a file."""
    with _pages(chromium) as open_page:
        yield open_page


@pytest.fixture
def serve() -> Iterator[Callable[..., tuple[str, int]]]:
    """A function: serve(path) gives (address, process id); the server ends with the test."""
    from contextlib import ExitStack

    with ExitStack() as stack:
        yield lambda path, preheat=0: stack.enter_context(served(path, preheat))


@pytest.fixture(scope="session")
def server(repository: Path, chromium: Any) -> Iterator[tuple[str, int]]:
    """One server of the course, without kernels kept ready: (address, process id)."""
    with served(repository / "modules") as of_the_course:
        yield of_the_course


@pytest.fixture(scope="module")
def closed(
    request: Any, server: tuple[str, int], open_lasting_page: Callable[..., Any]
) -> Iterator[Any]:
    """The page of the test file's NOTEBOOK before any guess, with its number of QUESTIONS; `page` goes on with it."""
    file = request.module
    page = LessonPage(open_lasting_page(f"{server[0]}voila/render/{file.NOTEBOOK}"))
    there = "document.querySelectorAll('.dlhpc-question').length"
    try:
        page.wait_for_function(f"{there} === {file.QUESTIONS}", polling=POLLING)
    except Exception:
        end = str(page.inner_text("body"))[-500:]
        pytest.fail(f"{page.evaluate(there)} of {file.QUESTIONS} questions; the page ends: {end}")
    yield page
    page.goto("about:blank")  # its kernel ends: the next file's is the only one


@pytest.fixture(scope="module")
def page(request: Any, closed: Any) -> Any:
    """The page after all of the test file's GUESSES, with its number of PLOTS.

    One for all tests of a file, in their order: opening a page takes seconds. What one test has set, the next finds.
    """
    file = request.module
    for number, guess in file.GUESSES.items():
        card = closed.locator(".dlhpc-question").nth(number)
        if card.get_attribute("data-final") is None:
            closed.commit(number, guess)
    drawn = ".dlhpc-page .dlhpc-plot[data-serial] svg"
    there = f"document.querySelectorAll('{drawn}').length === {file.PLOTS}"
    closed.wait_for_function(there, polling=POLLING)
    return closed


def _answering(log: Path) -> str:
    """Return the address in JupyterLab's log once it answers, else "": it prints it before it listens there."""
    address = re.search(r"http://127.0.0.1:[1-9]\d*/", log.read_text("utf-8"))
    if address is None:
        return ""
    try:
        urllib.request.urlopen(f"{address[0]}api", timeout=PATIENCE).close()
    except urllib.error.URLError:
        return ""
    return address[0]


@pytest.fixture(scope="module")
def jupyterlab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """JupyterLab for a file's tests, with settings and data folders of its own: its address and its folder."""
    folder = tmp_path_factory.mktemp("jupyterlab")
    places = {name: str(folder / name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR")}
    options = [
        "--no-browser",
        "--allow-root",
        "--port=0",
        "--ip=127.0.0.1",
        "--IdentityProvider.token=",
        f"--ServerApp.root_dir={folder}",
        "--LabApp.news_url=",
        "--LabApp.expose_app_in_browser=True",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]
    log = folder / "log"
    with log.open("w") as said:
        command = [sys.executable, "-m", "jupyterlab", *options]
        server = subprocess.Popen(command, env={**os.environ, **places}, stderr=said)
    try:
        yield _eventually(lambda: _answering(log), log.read_text), folder
    finally:
        server.terminate()
        server.wait(PATIENCE)
        shutil.rmtree(folder, ignore_errors=True)
