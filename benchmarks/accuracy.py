"""Predicted and simulated steps beside measured ones, after a calibration of this machine.

    python benchmarks/accuracy.py                     calibrates first, in about a minute
    python benchmarks/accuracy.py --machine FILE      what `dlhpc calibrate --out FILE` wrote
    python benchmarks/accuracy.py --only gpt --repeats 5 --seconds 20
    python benchmarks/accuracy.py --more              other experiments, to validate changes tuned on the first

Probe steps of small runs before and after each run measure the slowdown, as in `dlhpc compare`; predictions use it.
The prediction at the calibration's speed is also printed, without a verdict.

The calibration contains none of the experiments. Runs are interleaved and repeated, so that drift affects all alike; a
measured step is the median of all steady steps. On a shared machine, a core's speed varies by half for seconds at a
time: many short runs are better than a few long ones. Ranks never exceed cores. Times hold on an idle machine only.
The exit status is 1 if a limit is missed:

    predicted       within 6% in the median, 20% at worst
    simulated       within 6% in the median, in rounds and in events
    bands           80% of measured steps inside the 90% bands
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from _quick import add_quick

from lib_dlhpc.comparison import Sweep
from lib_dlhpc.comparison.comparison import Expected, beside, estimated
from lib_dlhpc.comparison.errors import errors, inside
from lib_dlhpc.comparison.placed import placed
from lib_dlhpc.comparison.sweep import Row, interleaved
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.host import cores
from lib_dlhpc.spec.machine import Machine
from lib_dlhpc.spec.measured_machine import load_measured

MEDIAN = {"predicted": 0.06, "rounds": 0.06, "events": 0.06}
WORST = {"predicted": 0.20}
INSIDE = 0.8
SECONDS, QUICK = 60, 2  # of a calibration
BUSY = 0.5  # programs at work in the last minute; more is no quiet machine
CONVOLUTIONS = {
    "family": "sequential",
    "input": [1, 28, 28],
    "layers": [
        {"kind": "conv", "channels": 12, "kernel": 3, "padding": 1},
        {"kind": "relu"},
        {"kind": "max_pool", "kernel": 2},
        {"kind": "conv", "channels": 24, "kernel": 3, "padding": 1},
        {"kind": "relu"},
        {"kind": "max_pool", "kernel": 2},
        {"kind": "flatten"},
        {"kind": "dense", "features": 10},
    ],
}


def mlp(*widths: int) -> dict[str, Any]:
    return {"family": "mlp", "widths": [784, *widths, 10]}


def gpt(layers: int, hidden: int, sequence: int = 48) -> dict[str, Any]:
    size = {"layers": layers, "hidden": hidden, "sequence": sequence}
    return {"family": "gpt", "heads": 4, "vocabulary": 96, **size}


def experiment(model: Any, dataset: str, ranks: int, batch: int, **strategy: Any) -> Experiment:
    """Return a run on the catalog's stand-in for this machine; `batch`: samples of a replica in a step."""
    return read_experiment(
        {
            "model": model if isinstance(model, dict) else {"name": model},
            "dataset": {"name": dataset},
            "machine": {"name": "laptop", "devices_per_node": max(4, ranks)},
            "strategy": {"devices_per_node": ranks, "batch": batch, **strategy},
        }
    )


def cases(here: int) -> Iterator[tuple[str, Experiment]]:
    """Yield names and experiments for a machine with `cores` cores: modes, sizes, batches, buckets."""
    several = 4 if here >= 4 else 2 if here >= 2 else 1
    wide, deep = mlp(600, 600), mlp(200, 200, 200, 200)
    yield "mlp digits, 1 rank, batch 24", experiment("mlp-digits", "digits", 1, 24)
    yield "mlp wide, 1 rank, batch 150", experiment(wide, "mnist-5k", 1, 150)
    yield "lenet, 1 rank, batch 40", experiment("lenet5", "mnist-5k", 1, 40)
    yield "cnn, 1 rank, batch 20", experiment(CONVOLUTIONS, "mnist-5k", 1, 20)
    yield "gpt, 1 rank, batch 12", experiment(gpt(3, 96), "words", 1, 12, optimizer="adam")
    if several == 1:
        return
    n = f"{several} ranks"
    yield f"mlp digits, data {n}, batch 64", experiment("mlp-digits", "digits", several, 64)
    yield f"cnn digits, data {n}, batch 32", experiment("cnn-digits", "digits", several, 32)
    yield f"mlp wide, data {n}", experiment(wide, "mnist-5k", several, 60)
    small = {"bucket": "300 kB", "allreduce": "rabenseifner"}
    yield f"mlp wide, data {n}, small buckets", experiment(wide, "mnist-5k", several, 60, **small)
    yield (
        f"mlp deep, ZeRO 2, {n}",
        experiment(deep, "mnist-5k", several, 48, zero=2, optimizer="adam"),
    )
    yield f"lenet, data {n}, batch 16", experiment("lenet5", "mnist-5k", several, 16)
    yield f"cnn, data {n}, batch 64", experiment(CONVOLUTIONS, "mnist-5k", several, 64)
    yield f"gpt, data {n}", experiment(gpt(2, 64), "words", several, 6, optimizer="adam")
    yield f"gpt, tensor {several}", experiment(gpt(2, 128), "words", several, 8, tensor=several)
    piped = {"pipeline": several, "microbatches": 6, "schedule": "1f1b"}
    yield f"gpt, pipeline {several}", experiment(gpt(4, 96), "words", several, 12, **piped)
    if several == 4:
        hybrid = {"data": 2, "pipeline": 2, "microbatches": 4}
        yield "gpt, data 2 x pipeline 2", experiment(gpt(4, 64), "words", 4, 8, **hybrid)
        split = {"data": 2, "tensor": 2}
        yield "gpt, data 2 x tensor 2", experiment(gpt(2, 96), "words", 4, 8, **split)


def more(here: int) -> Iterator[tuple[str, Experiment]]:
    """Yield other experiments than `cases`, on which nothing was ever tried: other widths, batches, strategies."""
    several = 4 if here >= 4 else 2 if here >= 2 else 1
    adam = {"optimizer": "adam"}
    yield "mlp 300x3, 1 rank, batch 64", experiment(mlp(300, 300, 300), "mnist-5k", 1, 64)
    yield "mlp 900, 1 rank, adam", experiment(mlp(900, 400), "mnist-5k", 1, 32, **adam)
    yield "gpt, 1 rank, batch 8", experiment(gpt(2, 80, 40), "words", 1, 8, **adam)
    if several == 1:
        return
    n = f"{several} ranks"
    yield f"mlp 300x3, data {n}", experiment(mlp(300, 300, 300), "mnist-5k", several, 64)
    yield f"mlp 900, data {n}, adam", experiment(mlp(900, 400), "mnist-5k", several, 100, **adam)
    doubling = {"allreduce": "recursive_doubling", **adam}
    yield f"gpt, data {n}, doubling", experiment(gpt(3, 96), "words", several, 8, **doubling)
    yield f"lenet, data {n}, batch 50", experiment("lenet5", "mnist-5k", several, 50)
    for level, widths in ((1, (256,) * 5), (2, (500, 500)), (3, (300, 300, 300))):
        sharded = experiment(mlp(*widths), "mnist-5k", several, 64, zero=level, **adam)
        yield f"mlp, ZeRO {level}, {n}", sharded
    yield f"gpt 80, tensor {several}", experiment(gpt(3, 80), "words", several, 8, tensor=several)
    yield f"gpt 160, tensor {several}", experiment(gpt(2, 160), "words", several, 4, tensor=several)
    piped = {"pipeline": several, "microbatches": 4, "schedule": "gpipe"}
    yield f"gpt, pipeline {several}, gpipe", experiment(gpt(4, 64), "words", several, 16, **piped)


def calibrated(path: str | None, quick: bool = False) -> Machine:
    """Return the measured machine of a file, or of a new calibration; quick: a short one on one rank."""
    if path:
        return load_measured(path)
    seconds, ranks = (QUICK, 1) if quick else (SECONDS, min(cores(), 4))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "machine.toml"
        words = ["calibrate", "machine", "-n", str(ranks), "--seconds", str(seconds)]
        words += ["--out", str(file)]
        subprocess.run([sys.executable, "-m", "lib_dlhpc.cli", *words], check=True)
        return load_measured(file)


def measured(
    machine: Machine,
    chosen: Iterator[tuple[str, Experiment]],
    only: str,
    repeats: int,
    seconds: float,
    report: Callable[[str], None],
) -> Sweep:
    """Return the comparison of each case that has the word in its name."""
    some = {name: each for name, each in chosen if only in name}
    expected = [estimated(placed(each, machine=machine)) for each in some.values()]
    report(f"{len(some)} experiments, {repeats} runs each of about {seconds / repeats:g} s")
    runs = interleaved(expected, None, seconds, repeats)
    rows = [
        Row({"experiment": name}, None, run)
        if isinstance(run, str)
        else Row({"experiment": name}, beside(each, run))
        for name, each, run in zip(some, expected, runs, strict=True)
    ]
    report(without_slowdown(expected, rows))
    return Sweep({"experiment": list(some)}, tuple(rows))


def without_slowdown(expected: Sequence[Expected], rows: Sequence[Row]) -> str:
    """Return the errors of predictions without slowdown factors, and the factors."""
    both = [
        (each, row.comparison) for each, row in zip(expected, rows, strict=True) if row.comparison
    ]
    off = [abs(each.step["predicted"] / of.step["measured"] - 1) for each, of in both]
    slowdowns = sorted(of.slowdown for _, of in both if of.slowdown)
    return (
        f"without slowdown factors: predicted median {median(off):.1%}, worst {max(off):.1%};"
        f" factors {', '.join(f'{work:.2f} and {calls:.2f}' for work, calls in slowdowns) or 'unknown'}"
    )


def judged(found: Sweep) -> list[tuple[str, bool]]:
    """Return the acceptance lines, and whether each is met."""
    if not found.judged:
        return [("no run had its cores to itself: nothing can be said", False)]
    lines = []
    for way, most in MEDIAN.items():
        off = errors(found.judged, way)
        middle, worst = median(off), max(off)
        lines.append((f"{way}: median {middle:.1%}, at most {most:.0%}", middle <= most))
        if way in WORST:
            lines.append(
                (f"{way}: worst {worst:.1%}, at most {WORST[way]:.0%}", worst <= WORST[way])
            )
    held, many = inside(found.judged)
    share = held / max(many, 1)
    lines.append((f"bands: {held} of {many} inside, at least {INSIDE:.0%}", share >= INSIDE))
    lines.append(("all experiments ran", all(row.comparison for row in found.rows)))
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--machine", metavar="FILE", help="a calibration (default: make one)")
    parser.add_argument(
        "--only", default="", metavar="WORD", help="experiments with it in the name"
    )
    parser.add_argument("--repeats", type=int, default=6, help="runs of each (default: 6)")
    parser.add_argument("--seconds", type=float, default=9.0, help="of each in all (default: 9)")
    parser.add_argument("--more", action="store_true", help="other experiments in their place")
    parser.add_argument("--json", action="store_true", help="print all there is, in SI units")
    add_quick(parser)
    options = parser.parse_args()
    if options.quick:
        options.only, options.repeats, options.seconds = "mlp digits, 1 rank", 1, 0.1

    def report(words: str) -> None:
        print(words, file=sys.stderr, flush=True)

    if hasattr(os, "getloadavg") and (load := os.getloadavg()[0]) > BUSY:
        report(f"warning: {load:.1f} other processes are running: times are unreliable")
    machine = calibrated(options.machine, options.quick)
    chosen = more(cores()) if options.more and not options.quick else cases(cores())
    found = measured(machine, chosen, options.only, options.repeats, options.seconds, report)
    lines = judged(found)
    if options.json:
        print(json.dumps({**found.as_dict(), "lines": dict(lines)}, indent=2))
    else:
        print(found.as_text())
        for row in found.rows:
            if row.comparison:
                print(f"{row.setting['experiment']}: {row.comparison.verdict[-1]}")
        print()
        for words, met in lines:
            print(f"{'ok    ' if met else 'MISSED'} {words}")
    return int(not options.quick and not all(met for _, met in lines))


if __name__ == "__main__":
    sys.exit(main())
