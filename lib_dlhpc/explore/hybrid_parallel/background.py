"""Many predictions of split networks: in a process of their own, drawn as they arrive.

A large network in a hundred parts takes a tenth of a second and some megabytes to predict. A map of forty
such ways would hold up the page, and stay in the memory of the visitor's kernel; so another process
makes it (`python -m lib_dlhpc.explore.hybrid_parallel.background`), writes one line a layout, and ends.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import ipywidgets

from lib_dlhpc.explore.blocks.panels import problem_html
from lib_dlhpc.explore.blocks.workbench import workbench
from lib_dlhpc.explore.hybrid_parallel.charts import Way
from lib_dlhpc.lifetime import owned

REST = 0.15  # s that controls rest before a process is started
PAUSE = 0.3  # s between two pictures

Compute = Callable[[Any], Iterator[Way]]
Draw = Callable[[Any, list[Way], bool], None]  # setting, ways so far, whether these are all


def aside(kind: str) -> Compute:
    """Return what yields the layouts of a setting as another process predicts them; kind: a key of `kinds()`."""

    def compute(setting: Any) -> Iterator[Way]:
        asked = json.dumps([kind, *setting])
        process = owned.start(
            [sys.executable, "-m", __spec__.name, asked], stdout=subprocess.PIPE, text=True
        )
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

    return compute


def as_they_come(
    controls: Mapping[str, Any],
    results: list[Any],
    setting: Callable[[], Any],
    compute: Compute,
    draw: Draw,
    note: str,
    thread: Callable[..., Any] = threading.Thread,
) -> ipywidgets.Box:
    """Lay out an experiment whose layouts are computed in a thread, and drawn as they arrive.

    setting: what the controls say. A control that moves ends the computation in progress.
    """
    known: dict[Any, list[Way]] = {}
    newest, failed = [0], ipywidgets.HTML()

    def work(chosen: Any, number: int) -> None:
        time.sleep(REST)
        ways, drawn = [], time.monotonic()
        coming = compute(chosen)
        try:
            if newest[0] != number:
                return
            for way in coming:
                if newest[0] != number:
                    return
                ways.append(way)
                if time.monotonic() - drawn > PAUSE:
                    drawn = time.monotonic()
                    draw(chosen, ways, False)
        except (RuntimeError, OSError) as reason:
            failed.value = problem_html(f"The predicting process failed. {reason}")
            return
        finally:
            coming.close()  # type: ignore[attr-defined]
        failed.value = ""
        known[chosen] = ways
        if newest[0] == number:
            draw(chosen, ways, True)

    def show() -> None:
        chosen = setting()
        newest[0] += 1
        if chosen in known:
            draw(chosen, known[chosen], True)
        else:
            thread(target=work, args=(chosen, newest[0]), daemon=True).start()

    return workbench(controls, [failed, *results], show, note)


class Later:
    """An experiment that is made only when its question is answered: `gives` is what that asks."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.box, self._make = ipywidgets.VBox(), make

    def gives(self, answer: Any) -> Callable[[], Any]:
        """Return what gives `answer`, or what it computes, and makes the experiment."""

        def opened() -> Any:
            if not self.box.children:
                self.box.children = (self._make(),)
            return answer() if callable(answer) else answer

        opened.answer = answer  # type: ignore[attr-defined]
        return opened


def kinds() -> dict[str, Compute]:
    """Return what can be computed aside."""
    from lib_dlhpc.explore.hybrid_parallel import deep as hybrid_parallel_deep
    from lib_dlhpc.explore.hybrid_parallel import map as hybrid_parallel_map

    return {
        "map": lambda given: hybrid_parallel_map.ways_of(hybrid_parallel_map.Ways(*given)),
        "deep": lambda given: hybrid_parallel_deep.ways_of(hybrid_parallel_deep.Deep(*given)),
    }


def main(asked: str) -> None:
    """Write the ways of a setting, one JSON line each."""
    kind, *given = json.loads(asked)
    for way in kinds()[kind](given):
        print(json.dumps(way), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
