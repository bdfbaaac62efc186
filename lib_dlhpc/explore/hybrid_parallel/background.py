"""Many predictions of split networks: in a process of their own, drawn as they arrive.

A large network in a hundred parts takes a tenth of a second and some megabytes to predict. A map of forty
such ways would hold up the page, and stay in the memory of the visitor's kernel; so another process
makes it (`python -m lib_dlhpc.explore.hybrid_parallel.background`), writes one line a layout, and ends.
"""

import gc
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from importlib import import_module
from typing import Any

import ipywidgets

from lib_dlhpc.explore.blocks.bench import Bench, S, View
from lib_dlhpc.explore.blocks.panels import problem_html
from lib_dlhpc.explore.blocks.runner import Thread
from lib_dlhpc.explore.hybrid_parallel.charts import Way
from lib_dlhpc.lifetime import owned

REST = 0.15  # s that controls rest before a process is started
PAUSE = 0.3  # s between two pictures

Ways = Generator[Way, None, None]
Compute = Callable[[Any], Ways]  # yields the layouts of a setting


class Background(Bench[S]):
    """A bench whose layouts are computed in a thread, and drawn as they arrive.

    view: what a setting and its layouts so far show, and whether these are all; the wall waits for all of them.
    A control that moves ends the computation in progress.
    """

    def __init__(
        self,
        first: S,
        view: Callable[[S, list[Way], bool], View],
        charts: Sequence[str],
        fine: str,
        look: str,
        compute: Compute,
        thread: Thread = threading.Thread,
    ) -> None:
        self._view_of, self._compute, self._thread = view, compute, thread
        self._known: dict[S, list[Way]] = {}
        self._newest = 0
        self._failed = ipywidgets.HTML()
        super().__init__(first, lambda setting: view(setting, [], False), charts, fine, look)
        main = self.children[1]
        main.children = (self._failed, *main.children)

    def show(self) -> None:
        """Show what the controls say, once it is computed."""
        setting = self.setting
        self._newest += 1
        if setting in self._known:
            self._draw(setting, self._known[setting], True)
        else:
            if self._newest == 1:  # before anything is shown
                self._draw(setting, [], False)
            self._thread(target=self._work, args=(setting, self._newest), daemon=True).start()

    def complete(self) -> None:
        """Show all of what the controls say before anything else happens: slides do not wait."""
        self._newest += 1
        setting = self.setting
        if setting not in self._known:
            self._known[setting] = list(self._compute(setting))
        self._draw(setting, self._known[setting], True)

    def _work(self, setting: S, number: int) -> None:
        time.sleep(REST)
        ways: list[Way] = []
        drawn = time.monotonic()
        try:
            with closing(self._compute(setting)) as coming:
                while self._newest == number and (way := next(coming, None)):
                    ways.append(way)
                    if time.monotonic() - drawn > PAUSE:
                        drawn = time.monotonic()
                        self._draw(setting, ways, False)
        except (RuntimeError, OSError) as reason:
            self._failed.value = problem_html(f"The predicting process failed. {reason}")
            return
        if self._newest == number:
            self._failed.value = ""
            self._known[setting] = ways
            self._draw(setting, ways, True)

    def _draw(self, setting: S, ways: list[Way], complete: bool) -> None:
        self.put(self._view_of(setting, ways, complete), wall=complete)


def aside(setting: Any) -> Ways:
    """Yield the layouts of a setting as `ways_of` of its file predicts them in another process."""
    kind = type(setting)
    asked = json.dumps([kind.__module__, kind.__name__, *setting])
    command = [sys.executable, "-m", __spec__.name, asked]
    process = owned.start(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            yield Way(*json.loads(line))
        if process.wait():
            raise RuntimeError(f"It ended with status {process.returncode}.")
    finally:
        process.kill()
        process.wait()
        owned.ended(process)


def main(asked: str) -> None:
    """Write the layouts of a setting, one JSON line each."""
    gc.disable()  # next to nothing of it is garbage, and looking for it would take a fifth of the time
    file, kind, *given = json.loads(asked)
    room = import_module(file)
    for way in room.ways_of(getattr(room, kind)(*given)):
        print(json.dumps(way), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
