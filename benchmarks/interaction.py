"""How long a page takes to answer: from a key on a slider to the new picture, and to the first one.

    python benchmarks/interaction.py                    the five charts, with numbers made up
    python benchmarks/interaction.py modules/00_x.ipynb  any notebook with sliders and figures

A turn starts with the key press in the browser.  It goes to the kernel, through the model, back as
columns, into every Vega view in sight, and ends after the frame in which the last of them is drawn has
been painted.  That the pixels did change is checked on a screenshot after each turn, outside the time.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from _quick import add_quick

from lib_dlhpc.explore.server.serve import kernels_of, served

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
PATIENCE = 180  # s for a page, on a busy machine
DRAWN = ".dlhpc-plot[data-serial] svg"

FIVE_CHARTS = """
import numpy as np, ipywidgets as widgets
from lib_dlhpc.explore.blocks.charts import chart
from lib_dlhpc.explore.explorer.device_charts import scaling_state, sensitivity_state, totals_state
from lib_dlhpc.explore.memory_wall.charts import memory_state

NODES = 2 ** np.arange(12)

def states(nodes):
    k = np.append(NODES, nodes)
    hidden = 0.05 * (1 - 1 / k)
    speed = 8 * k * 0.09 / (0.1 + 0.4 * hidden)
    time = 1e5 / k / (1 - hidden)
    scaling = scaling_state(8 * NODES, speed[:-1], 8 * NODES, speed[:-1] * 0.7, (8 * nodes, speed[-1]))
    return {
        "scaling": scaling,
        "efficiency": scaling,
        "memory": memory_state({"weights": 1e8, "gradients": 1e8, "activations": 8e9 + 1e8 * nodes}, 16e9),
        "totals": totals_state(NODES, time[:-1], time[:-1] * NODES * 3500, time[:-1] * NODES / 450, nodes),
        "sensitivity": sensitivity_state({"compute rate": 0.4, "network bandwidth": 0.001 * nodes,
                                          "network latency": 0.02, "storage bandwidth": 0.03}),
    }

figures = {name: chart(name, *state) for name, state in states(16).items()}
slider = widgets.IntSlider(16, 1, 200, description="nodes")

def follow(change):
    for name, state in states(change.new).items():
        figures[name].update(*state)

slider.observe(follow, "value")
half = widgets.Layout(flex="1 1 400px", min_width="0")
names = list(figures)
widgets.VBox([slider, widgets.HBox([widgets.VBox([figures[n] for n in names[i::2]], layout=half)
                                    for i in (0, 1)])])
"""

# Of a library's slider, or of the browser's own.
AT_END = """handle => (handle.getAttribute("aria-valuenow") ?? handle.value)
  === (handle.getAttribute("aria-valuemax") ?? handle.max)"""
# Resolves with [milliseconds to paint, number of views] after the next key press on the slider.
TURN = """() => new Promise((resolve) => {
  const plots = [...document.querySelectorAll(".dlhpc-plot")].filter((plot) => {
    const box = plot.getBoundingClientRect();
    return box.width && box.top < innerHeight && box.bottom > 0;
  });
  const before = plots.map((plot) => plot.dataset.serial);
  let start = 0;
  addEventListener("keydown", (event) => { start = event.timeStamp; }, { once: true, capture: true });
  const watch = new MutationObserver(() => {
    if (plots.some((plot, i) => plot.dataset.serial === before[i])) return;
    watch.disconnect();
    requestAnimationFrame(() => {            // the frame that shows the drawing ...
      const channel = new MessageChannel();  // ... and the first task after it was painted
      channel.port1.onmessage = () => resolve([performance.now() - start, plots.length]);
      channel.port2.postMessage(0);
    });
  });
  setTimeout(() => resolve(null), 5000);
  for (const plot of plots) watch.observe(plot, { attributes: true, attributeFilter: ["data-serial"] });
})"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("notebook", nargs="?", type=Path)
    parser.add_argument("--turns", type=int, default=40)
    # So tall that no chart is out of sight: those would wait, and flatter the result.
    parser.add_argument("--height", type=int, default=2600, help="of the window, in pixels")
    parser.add_argument("--json", action="store_true", help="one line for machines")
    add_quick(parser)
    given = parser.parse_args()
    missing = [name for name in ("playwright", "psutil") if find_spec(name) is None]
    if shutil.which("chromium") is None and shutil.which("google-chrome") is None:
        missing.append("Chromium")
    if missing:
        print(f"{', '.join(missing)}: not here, so nothing is measured.")
        return
    with tempfile.TemporaryDirectory() as folder:
        notebook = given.notebook or _five_charts(Path(folder))
        ways = {"on demand": 0} if given.quick else {"on demand": 0, "preheated": 1}
        results = measure(notebook, 2 if given.quick else given.turns, given.height, ways)
    if given.json:
        print(json.dumps(results))
        return
    for name, value in results.items():
        print(f"{name:44} {value:10.5g}")


def measure(notebook: Path, turns: int, height: int, ways: dict[str, int]) -> dict[str, float]:
    """Return what was measured, by name with its unit. ways: name, and how many kernels wait for visitors."""
    import psutil
    from playwright.sync_api import sync_playwright

    results: dict[str, float] = {}
    with sync_playwright() as driver:
        program = shutil.which("chromium") or shutil.which("google-chrome")
        for how, preheat in ways.items():
            start = time.perf_counter()
            with served(notebook, preheat) as (address, server):
                results[f"server up, {how} (s)"] = time.perf_counter() - start
                if preheat:
                    time.sleep(8)  # the pool fills while nobody waits
                browser = driver.chromium.launch(executable_path=program, args=FLAGS)
                page = browser.new_page(viewport={"width": 1280, "height": height})
                page.set_default_timeout(PATIENCE * 1000)
                results[f"first page, {how}, empty browser (s)"] = _load(page, address)
                kernel = max(
                    kernels_of(psutil.Process(server)),
                    key=lambda process: process.memory_info().rss,
                )
                results["kernel (MB)"] = kernel.memory_full_info().uss / 1e6
                if preheat:
                    time.sleep(6)
                results[f"page again, {how} (s)"] = _load(page, address)
                if not preheat:
                    results.update(_answers(page, turns))
                browser.close()
    return results


def _load(page: Any, address: str) -> float:
    start = time.perf_counter()
    page.goto(address)
    page.wait_for_function(
        f"(() => {{ const n = document.querySelectorAll('.dlhpc-plot').length;"
        f" return n > 0 && document.querySelectorAll('{DRAWN}').length === n; }})()"
    )
    return time.perf_counter() - start


def _answers(page: Any, turns: int) -> dict[str, float]:
    slider = page.get_by_role("slider").first
    times, views, unchanged, silent = [], 0, 0, 0
    picture, key = page.screenshot(), ""
    for turn in range(turns + 3):
        page.wait_for_timeout(150)  # the screenshot of the turn before keeps the browser busy
        waiting = page.evaluate_handle(f"({{ turn: ({TURN})() }})")
        at_end = slider.evaluate(AT_END)
        key = "ArrowLeft" if at_end or key == "ArrowRight" else "ArrowRight"
        slider.press(key)
        answer = waiting.evaluate("held => held.turn")
        if answer is None:
            silent += 1
            continue
        elapsed, views = answer
        new = page.screenshot()
        unchanged += new == picture
        picture = new
        if turn >= 3:  # the first turns compile
            times.append(elapsed)
    tenths = statistics.quantiles(times, n=10)
    return {
        "views redrawn in a turn": views,
        "turns without an answer": silent,
        "turns without a changed pixel": unchanged,
        "key to pixels, median (ms)": statistics.median(times),
        "key to pixels, 90 % (ms)": tenths[-1],
        "key to pixels, worst (ms)": max(times),
    }


def _five_charts(folder: Path) -> Path:
    cell = {
        "id": "charts",
        "cell_type": "code",
        "metadata": {},
        "execution_count": None,
        "outputs": [],
        "source": FIVE_CHARTS,
    }
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    body = {"cells": [cell], "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    path = folder / "five_charts.ipynb"
    path.write_text(json.dumps(body), encoding="utf-8")
    return path


if __name__ == "__main__":
    main()
