"""Soak test: many visitors, long-open pages, a long run and many short ones; leaks of memory, processes, files.

    python tests/soak/soak.py                                        half an hour; needs 4 GB, Chromium and mpiexec
    python tests/soak/soak.py --visitors 4 --minutes 1 --runs 5      a look

Visitors are WebSocket clients that speak to their kernels as a page does, and real browsers. Every process started
here has a mark in its environment, and temporary files go to a folder of their own, so that what is left is counted
whatever else runs on the machine. Ends what it started when it is interrupted. Linux only.
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import websockets

from lib_dlhpc.explore.server.serve import kernels_of, served

ROOT = Path(__file__).resolve().parents[2]
PAGE = "00_what_if_explorer.ipynb"
RUN = ROOT / "labs" / "experiments" / "digits.toml"
MARK = "DLHPC_SOAK"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DRAWN = "document.querySelectorAll('.dlhpc-plot[data-serial] svg').length === 6"
SERIALS = "[...document.querySelectorAll('.dlhpc-plot')].map(plot => plot.dataset.serial).join()"
MB = 1e6
MOVES = 10.0  # s from one move of a control to the next
PATIENCE = 600.0  # s for a page, on a busy machine
Row = tuple[str, Any, Any, str, bool]  # what, before, after, limit, whether it held


def marked() -> list[psutil.Process]:
    """Return the living processes that were started here, this one left out."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            alive = process.status() != psutil.STATUS_ZOMBIE and process.pid != os.getpid()
            if alive and process.environ().get(MARK) == os.environ[MARK]:
                found.append(process)
    return found


def segments() -> set[str]:
    """Return the files of /dev/shm that no process has mapped."""
    mapped = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            mapped |= set(re.findall(r"/dev/shm/(\S+)", maps.read_text()))
    return {path.name for path in Path("/dev/shm").iterdir() if path.is_file()} - mapped


def memory(processes: list[psutil.Process]) -> float:
    """Return B of processes, shared pages split among who has them."""
    total = 0.0
    for process in processes:
        with suppress(psutil.Error):
            total += process.memory_full_info().pss
    return total


def settled(condition: Any, patience: float = 60) -> Any:
    """Return a condition's value once it is false, or at the timeout."""
    until = time.monotonic() + patience
    while (value := condition()) and time.monotonic() < until:
        time.sleep(1)
    return value


class Visitor:
    """What a page is to the server: it asks for the page, takes its widgets' states and moves a slider."""

    def __init__(self, home: str) -> None:
        self.home, self.session, self.kernel = home, uuid.uuid4().hex, ""
        self.moved = self.answered = 0

    async def stay(self, until: float) -> None:
        """Open the page, move its control until that moment, and leave as a page does."""
        self.kernel = await asyncio.to_thread(self._open)
        try:
            channels = f"ws{self.home.removeprefix('http')}api/kernels/{self.kernel}/channels"
            address = f"{channels}?session_id={self.session}"
            async with websockets.connect(address, max_size=None, open_timeout=PATIENCE) as socket:
                comm = uuid.uuid4().hex
                opening = {"comm_id": comm, "target_name": "jupyter.widget.control", "data": {}}
                await self._ask(socket, "comm_open", opening)
                question = {"comm_id": comm, "data": {"method": "request_states"}}
                states = await self._ask(socket, "comm_msg", question)
                slider, name, low, high = _slider(states)
                while time.monotonic() < until:
                    value = low + self.moved % (high - low + 1)
                    change = {"method": "update", "state": {name: value}, "buffer_paths": []}
                    self.moved += 1
                    answers = await self._ask(
                        socket, "comm_msg", {"comm_id": slider, "data": change}
                    )
                    self.answered += len(answers) > 0
                    await asyncio.sleep(MOVES)
        finally:
            await asyncio.to_thread(self._leave)

    def _open(self) -> str:
        with urllib.request.urlopen(f"{self.home}voila/render/{PAGE}", timeout=PATIENCE) as answer:
            text = answer.read().decode()
        return re.search(r'"kernelId": "([^"]+)"', text)[1]  # type: ignore[index]

    def _leave(self) -> None:
        address = f"{self.home}voila/api/shutdown/{self.kernel}"
        urllib.request.urlopen(urllib.request.Request(address, b""), timeout=PATIENCE).close()

    async def _ask(self, socket: Any, kind: str, content: dict[str, Any]) -> list[dict[str, Any]]:
        """Send a message; return the contents of the comm messages until the kernel is idle again."""
        number = uuid.uuid4().hex
        header = {
            "msg_id": number,
            "msg_type": kind,
            "session": self.session,
            "username": "",
            "version": "5.3",
        }
        message = {
            "header": header,
            "parent_header": {},
            "metadata": {"version": "1.0.0"},  # of the protocol of widgets' states
            "content": content,
            "channel": "shell",
        }
        await socket.send(json.dumps({**message, "buffers": []}))
        answers: list[dict[str, Any]] = []
        while True:
            data = await asyncio.wait_for(socket.recv(), PATIENCE)
            answer = json.loads(data) if isinstance(data, str) else _of_binary(data)
            if answer["parent_header"].get("msg_id") != number:
                continue
            if answer["header"]["msg_type"] == "comm_msg":
                answers.append(answer["content"])
            elif answer["content"].get("execution_state") == "idle":
                return answers


def _of_binary(data: bytes) -> dict[str, Any]:
    """Return the message before the buffers of a frame: how many parts, where each begins, the parts (big endian)."""
    count = int.from_bytes(data[:4], "big")
    places = [int.from_bytes(data[4 * n : 4 * n + 4], "big") for n in range(1, count + 1)]
    end = places[1] if count > 1 else len(data)
    return dict(json.loads(data[places[0] : end]))


def _slider(states: list[dict[str, Any]]) -> tuple[str, str, int, int]:
    """Return of a page's first slider its comm id, the name of its value, and the least and largest one."""
    for content in states:
        for number, model in content["data"].get("states", {}).items():
            state = model["state"]
            if state.get("_model_name") == "IntSliderModel":
                return number, "value", int(state["min"]), int(state["max"])
            if state.get("_model_name") == "SelectionSliderModel":
                return number, "index", 0, len(state["_options_labels"]) - 1
    raise RuntimeError("the page has no slider")


async def browse(home: str, until: float, number: int, browsed: dict[str, Any]) -> None:
    """Keep `number` real pages open and move a slider of each until that moment."""
    from playwright.async_api import async_playwright

    async with async_playwright() as driver:
        program = shutil.which("chromium") or shutil.which("google-chrome")
        browser = await driver.chromium.launch(executable_path=program, args=FLAGS)

        async def one() -> None:
            page = await (await browser.new_context()).new_page()
            page.set_default_timeout(PATIENCE * 1000)
            page.on(
                "console",
                lambda m: browsed["complaints"].append(m.text) if m.type == "error" else None,
            )
            page.on("pageerror", lambda error: browsed["complaints"].append(str(error)))
            page.on(
                "request",
                lambda r: (
                    browsed["complaints"].append(f"left the machine: {r.url}")
                    if not r.url.startswith((home, "data:", "blob:"))
                    else None
                ),
            )
            await page.goto(f"{home}voila/render/{PAGE}")
            await page.wait_for_function(DRAWN)
            keys = 0
            while time.monotonic() < until:
                before = await page.evaluate(SERIALS)
                await page.locator(".noUi-handle").first.press(
                    "ArrowLeft" if keys % 4 < 2 else "ArrowRight"
                )
                keys, browsed["keys"] = keys + 1, browsed["keys"] + 1
                await page.wait_for_function(f"{SERIALS} !== '{before}'")
                browsed["drawn"] += 1
                await asyncio.sleep(MOVES)
            await page.close(run_before_unload=False)

        await asyncio.gather(*(one() for _ in range(number)))
        await browser.close()


def crowd(options: argparse.Namespace) -> Iterator[Row]:
    """Yield the results of the visitors."""
    browsed: dict[str, Any] = {"complaints": [], "keys": 0, "drawn": 0}
    with served(ROOT / "modules", 0) as (home, process):
        server = psutil.Process(process)
        visitors = [Visitor(home) for _ in range(options.visitors)]
        seen: dict[str, Any] = {}

        async def watch(until: float) -> None:
            while len(kernels_of(server)) < options.visitors + options.browsers:
                if time.monotonic() > until - 1:
                    break
                await asyncio.sleep(1)
            await asyncio.sleep(min(2 * MOVES, max(0.0, until - time.monotonic()) / 2))
            kernels = kernels_of(server)
            seen["early"] = memory([server]), memory(kernels) / max(1, len(kernels))
            await asyncio.sleep(max(0.0, until - time.monotonic() - 1))
            kernels = kernels_of(server)
            seen["late"] = memory([server]), memory(kernels) / max(1, len(kernels))
            seen["kernels"] = len(kernels)

        async def everyone() -> list[BaseException | None]:
            # Opening takes long where cores are few; all stay as long after that as was asked.
            until = (
                time.monotonic() + 60 * options.minutes + 5 * (options.visitors + options.browsers)
            )
            going = [visitor.stay(until) for visitor in visitors]
            going += [browse(home, until, options.browsers, browsed)] if options.browsers else []
            return await asyncio.gather(watch(until), *going, return_exceptions=True)

        failed = [repr(error) for error in asyncio.run(everyone()) if error]
        for text in [*failed, *browsed["complaints"]][:5]:
            print(f"  {text[:300]}")
        left = settled(lambda: len(kernels_of(server)))
        early, late = seen.get("early", (0, 0)), seen.get("late", (0, 0))
        moved, answered = sum(v.moved for v in visitors), sum(v.answered for v in visitors)
        many = options.visitors + options.browsers
        yield (
            "visitors: kernels at once",
            many,
            seen.get("kernels", 0),
            "all",
            seen.get("kernels") == many,
        )
        yield "visitors: errors", 0, len(failed), "0", not failed
        yield "controls moved and answered", moved, answered, "all", 0 < moved == answered
        if options.browsers:
            drew = 0 < browsed["keys"] == browsed["drawn"]
            yield "browsers: keys and pictures", browsed["keys"], browsed["drawn"], "all", drew
            complaints = len(browsed["complaints"])
            yield "browsers: errors, outside requests", 0, complaints, "0", not complaints
        for name, first, last, most in (
            ("server, MB", early[0], late[0], 50 * MB),
            ("kernel (mean), MB", early[1], late[1], 20 * MB),
        ):
            text = f"+{most / MB:.0f}"
            yield name, round(first / MB, 1), round(last / MB, 1), text, last - first <= most
        yield "kernels after they left", 0, left, "0", left == 0


def command(folder: Path, *settings: str) -> list[str]:
    """Return the command of a small run on two ranks."""
    base = [sys.executable, "-m", "lib_dlhpc.cli", "run", str(RUN), "-n", "2", "--out", str(folder)]
    return [*base, "--set", *settings]


def long_run(options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Yield the memory growth of a long run, which is then interrupted."""
    if not options.run_minutes:
        return
    quiet = subprocess.DEVNULL
    run = subprocess.Popen(
        command(folder / "long", "run.epochs=1000000"), stdout=quiet, stderr=quiet
    )
    until = time.monotonic() + 60 * options.run_minutes
    time.sleep(min(30.0, 20 * options.run_minutes))
    early = memory(psutil.Process(run.pid).children(recursive=True))
    while run.poll() is None and time.monotonic() < until:
        time.sleep(1)
    ended = run.poll()
    late = memory(psutil.Process(run.pid).children(recursive=True)) if ended is None else 0.0
    run.send_signal(signal.SIGINT)
    status = run.wait(PATIENCE)
    held = ended is None and 0 < late <= early + 20 * MB
    yield "long run: ranks, MB", round(early / MB, 1), round(late / MB, 1), "+20", held
    yield "long run: status after Ctrl-C", "", status, "130", status == 130


def many_runs(options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Yield the results of many runs in a row."""
    good = 0
    for number in range(options.runs):
        place = folder / f"run-{number}"
        done = subprocess.run(command(place, "run.epochs=1"), capture_output=True, check=False)
        good += done.returncode == 0
        if done.returncode:
            print(f"  run {number}: {done.stderr.decode()[-300:]}")
        shutil.rmtree(place, ignore_errors=True)
    if options.runs:
        yield "runs in a row that ended well", options.runs, good, "all", good == options.runs


@contextmanager
def nothing_left() -> Iterator[Path]:
    """Give a folder for temporary files; in the end, end all that was started."""
    os.environ[MARK] = uuid.uuid4().hex
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    try:
        yield folder
    finally:
        for process in marked():
            with suppress(psutil.Error):
                process.kill()
        shutil.rmtree(folder, ignore_errors=True)


def soak(options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Yield every line of the table."""
    before = segments()
    runs = folder / "runs"
    runs.mkdir()
    yield from crowd(options)
    yield from long_run(options, runs)
    yield from many_runs(options, runs)
    shutil.rmtree(runs)
    left = settled(lambda: [process.name() for process in marked()])
    yield "processes left", 0, len(left), "0", not left
    orphans = segments() - before  # of others on this machine as well
    yield "segments of /dev/shm left", 0, len(orphans), "0", not orphans
    files = sorted(path.name for path in folder.iterdir())
    yield "temporary files left", 0, len(files), "0", not files
    for name in [*left, *sorted(orphans), *files][:10]:
        print(f"  left: {name}")


def main() -> int:
    """Print the table; return 1 if any line missed its limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--visitors", type=int, default=28, help="WebSocket clients (default: 28)")
    parser.add_argument("--browsers", type=int, default=2, help="real browsers (default: 2)")
    parser.add_argument("--minutes", type=float, default=15, help="of visitors (default: 15)")
    parser.add_argument("--run-minutes", type=float, default=10, help="of the long run (10)")
    parser.add_argument("--runs", type=int, default=100, help="short runs in a row (100)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    missed = 0
    with ExitStack() as stack:
        folder = stack.enter_context(nothing_left())
        print(f"{'':36}{'before':>10}{'after':>10}{'limit':>8}", flush=True)
        for what, before, after, limit, held in soak(options, folder):
            missed += not held
            verdict = "held" if held else "MISSED"
            print(f"{what:36}{before!s:>10}{after!s:>10}{limit:>8}  {verdict}", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
