"""Elementwise passes over an array in numpy, on this machine: one after another over all of it, or block by block.

A pass reads and writes each number. Passes over a whole array of more bytes than the caches hold move it between
memory and the core each time; block by block, all passes run while a block is in a cache: as a fused kernel does with
registers and shared memory. What blocks cost is more calls of numpy.
"""

import time
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np

from lib_dlhpc.calibration.messages import curve
from lib_dlhpc.calibration.numbers import TRAFFIC
from lib_dlhpc.explore.blocks.bars import beside_measured
from lib_dlhpc.explore.blocks.bench import Slider, amount
from lib_dlhpc.explore.blocks.charts import State
from lib_dlhpc.explore.blocks.panel import Panel, at_click
from lib_dlhpc.explore.blocks.panels import table_html
from lib_dlhpc.explore.blocks.workbench import verdict_html
from lib_dlhpc.explore.one_step.machines import Mine
from lib_dlhpc.explore.one_step.measured import SUM
from lib_dlhpc.spec.units import format_quantity as show

PASSES, ARRAYS = (2, 4, 8, 16), (4**10, 4**11, 4**12, 4**13)  # B
BLOCKS = (4**7, 4**8, 4**9, 4**10, 4**11)  # B
ITEM, REPEATS = 4, 7  # B of fp32; times that each way runs: the fastest counts
UNFUSED, BLOCKED = "pass after pass", "block by block"
FACTOR, SHIFT = np.float32(0.5), np.float32(1.0)


class Setting(NamedTuple):
    """Passes over an array. array, block: B."""

    passes: Annotated[int, Slider("Passes", "Scale, shift, scale, shift", PASSES)] = 8
    array: Annotated[int, Slider("Array", "fp32, in place", ARRAYS, amount("B"))] = 4**13
    block: Annotated[int, Slider("Block", "All passes, then the next", BLOCKS, amount("B"))] = 4**9


class Times(NamedTuple):
    """Seconds of all passes over the array, both ways."""

    unfused: float
    blocked: float

    @property
    def gain(self) -> float:
        """How many times as fast blocks are."""
        return self.unfused / self.blocked


Measure = Callable[[Setting], Times]


def run_passes(array: Any, passes: int, block: int) -> None:
    """Do all passes in place, one block of numbers after another."""
    for start in range(0, len(array), block):
        part = array[start : start + block]
        for number in range(passes):
            if number % 2:
                np.add(part, SHIFT, out=part)
            else:
                np.multiply(part, FACTOR, out=part)


def measure(setting: Setting) -> Times:
    """Return the fastest of some repeats of each way, in turns; the results of both must be the same bits."""
    start = np.linspace(0, 1, setting.array // ITEM, dtype=np.float32)
    whole, blocked, found = start.copy(), start.copy(), list[tuple[float, float]]()
    for _ in range(REPEATS):
        taken = []
        for array, block in ((whole, setting.array), (blocked, setting.block)):
            begin = time.perf_counter()
            run_passes(array, setting.passes, block // ITEM)
            taken.append(time.perf_counter() - begin)
        found.append((taken[0], taken[1]))
    if not np.array_equal(whole, blocked):
        raise ArithmeticError("The blocks did not compute what the passes did.")
    return Times(*map(min, zip(*found, strict=True)))


def predicted(setting: Setting, mine: Mine) -> Times:
    """Return the seconds by the rates that sums reached on the measured machine, in as large a working set.

    A sum's working set is three arrays. One pass over each block moves it from and to memory, at the array's rate.
    """
    moved, far = 2.0 * setting.array, rate(setting.array, mine)
    near = far if setting.block >= setting.array else rate(setting.block, mine)
    others = (setting.passes - 1) * moved
    return Times((moved + others) / far, moved / far + others / near)


def rate(working: int, mine: Mine) -> float:
    """Return the B/s that sums reached on the measured machine in about so large a working set."""
    sizes, took = curve(mine.raw, SUM)
    nearest = min(range(len(sizes)), key=lambda k: abs(np.log(TRAFFIC * sizes[k] / working)))
    return float(TRAFFIC * sizes[nearest] / took[nearest])


def cache_gain(setting: Setting, mine: Mine) -> float:
    """Return how many times as fast a block is moved as the array."""
    return rate(setting.block, mine) / rate(setting.array, mine)


def asked_words(setting: Setting) -> str:
    """Say what a click runs."""
    blocks = max(1, setting.array // setting.block)
    return (
        f"<b>{setting.passes} passes over {show(setting.array, 'B')}:</b> whole,"
        f" {show(2 * setting.passes * setting.array, 'B')} are read and written in {setting.passes} calls;"
        f" in {blocks:,} blocks, memory moves {show(2 * setting.array, 'B')}, in"
        f" {blocks * setting.passes:,} calls."
    )


def passes_here(mine: Mine, *programs: Any, **options: Any) -> Any:
    """Return the experiment, predicted for the machine that this page has measured, or for its example."""

    @at_click(
        Setting(), asked_words, "Run the passes", "one_step_passes", "Not run yet.", "A second"
    )
    def here(panel: Panel, setting: Setting, measured: Measure = measure) -> None:
        """Look for the block size that gains most, and for the one from which on blocks gain nothing."""
        panel.say("Both ways, in turns ...")
        found = measured(setting)
        panel.check()
        guess = predicted(setting, mine)
        panel.show(passes_state(guess, found), result_html(setting, guess, found, mine))
        panel.say(
            f"<b>Block by block is {found.gain:.2f} times as fast;</b> predicted, {guess.gain:.2f} times."
        )

    return here(*programs, **options)


def passes_state(guess: Times, found: Times) -> State:
    """Return the seconds of both ways, predicted and measured."""
    pairs = dict(zip((UNFUSED, BLOCKED), zip(guess, found, strict=True), strict=True))
    return beside_measured(pairs, "seconds", amount("s"))


def result_html(setting: Setting, guess: Times, found: Times, mine: Mine) -> str:
    """Return both ways predicted and measured, and why they differ."""
    lines = [["", "predicted", "measured", "off"]]
    for name, one, other in zip((UNFUSED, BLOCKED), guess, found, strict=True):
        lines.append([name, show(one, "s"), show(other, "s"), f"{one / other - 1:+z.0%}"])
    of = "this page's measurement" if mine.own is not None else "the example, another machine"
    calls = max(1, setting.array // setting.block) * setting.passes
    return table_html(lines) + verdict_html(
        f"<b>Why they differ.</b> The rates are those of {of}: of sums of three arrays, not of passes in place. Each of"
        f" {calls:,} calls of numpy takes about a microsecond, which small blocks pay most; and several passes over a"
        " block of a cache that other processes use as well may find part of it evicted. Both ways end with the same"
        " bits."
    )
