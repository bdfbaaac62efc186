"""Do the 90% bands of `dlhpc compare` hold on a machine under load by other processes?

    python benchmarks/compare_under_load.py                     40 runs, in about six minutes; calibrates first
    python benchmarks/compare_under_load.py --machine FILE      what `dlhpc calibrate --out FILE` wrote
    python benchmarks/compare_under_load.py --runs 8 --seconds 0.5

Each run is a small experiment of labs/experiments on 1 or 2 ranks, beside 0, 1 or 4 processes that compute without
end. Start it on an idle machine: other load competes but is not counted. A line prints whether the measured step lies
within the band, or why there is no verdict. The exit status is 1 if a limit at the end is missed:

    bands           hold in 85% of the verdicts
    verdicts        for three quarters of the runs
    idle machine    a verdict for every run
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from _quick import add_quick
from accuracy import calibrated

from lib_dlhpc.comparison import Comparison, compare
from lib_dlhpc.lifetime import owned
from lib_dlhpc.lifetime.signals import taken
from lib_dlhpc.prediction.measured.bands import ALL
from lib_dlhpc.spec.experiment import load
from lib_dlhpc.spec.host import cores
from lib_dlhpc.spec.machine import Machine
from lib_dlhpc.spec.units import format_quantity as show

HELD, VERDICTS = 0.85, 0.75
COMPETITORS = (0, 1, 4)
EXPERIMENTS = Path(__file__).parents[1] / "labs" / "experiments"
BUSY = "while True: pass"
WORDS = {"strategy.data": 1, "strategy.pipeline": 1, "strategy.tensor": 1}
# File, ranks, what is changed: eight, so that with three numbers of competitors all pairs come in turn.
CASES: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("digits", 1, {}),
    ("digits", 2, {}),
    ("large_batch", 1, {"strategy.devices_per_node": 1}),
    ("large_batch", 2, {"strategy.devices_per_node": 2, "strategy.batch": 128}),
    ("words", 1, {**WORDS, "strategy.microbatches": 1, "strategy.devices_per_node": 1}),
    ("words", 2, {**WORDS, "strategy.pipeline": 2, "strategy.devices_per_node": 2}),
    ("fields", 1, {"strategy.spatial": 1, "strategy.devices_per_node": 1}),
    ("fields", 2, {"strategy.spatial": 2, "strategy.devices_per_node": 2}),
)


@dataclass(frozen=True)
class Line:
    """One run: its experiment, its number of competitors, and its comparison."""

    name: str
    ranks: int
    competitors: int
    found: Comparison

    @property
    def width(self) -> float:
        """Upper over lower end of the band."""
        low, high = self.found.bands["predicted"][ALL]
        return high / low

    @property
    def outcome(self) -> str:
        return {None: "no verdict", True: "held", False: "MISSED"}[self.found.inside()]

    def __str__(self) -> str:
        step, (low, high) = self.found.step, self.found.bands["predicted"][ALL]
        off = self.found.error("predicted") or 0.0
        return (
            f"{self.name:<12}{self.ranks:>6}{self.competitors:>12}{self.found.load.core_wait or 0:>10.0%}"
            f"{show(step['measured'], 's'):>11}{show(step['predicted'], 's'):>11}{off:>+7.0%}"
            f"{show(low, 's'):>11} to {show(high, 's'):<9}  {self.outcome}"
            f"{': ' * bool(self.found.no_verdict)}{self.found.no_verdict}"
        )


HEAD = (
    f"{'experiment':<12}{'ranks':>6}{'competitors':>12}{'no core':>10}{'measured':>11}{'predicted':>11}{'off':>7}"
    f"{'90% band':>17}"
)


@contextmanager
def competing(many: int) -> Iterator[None]:
    """Run `number` busy processes within the block."""
    busy = [owned.start([sys.executable, "-c", BUSY]) for _ in range(many)]
    try:
        yield
    finally:
        for process in busy:
            owned.end(process)


def measured(machine: Machine, runs: int, seconds: float) -> Iterator[Line]:
    """Yield the runs, one after another."""
    cases = [case for case in CASES if case[1] <= cores()]
    for number in range(runs):
        name, ranks, changes = cases[number % len(cases)]
        competitors = COMPETITORS[number % len(COMPETITORS)]
        experiment = load(EXPERIMENTS / f"{name}.toml").set(changes)
        with competing(competitors):
            found = compare(experiment, ranks, machine, seconds=seconds)
        yield Line(name, ranks, competitors, found)


def judged(lines: Sequence[Line]) -> list[tuple[str, bool]]:
    """Return the acceptance lines, and whether each is met."""
    verdicts = [line for line in lines if not line.found.no_verdict]
    held = sum(line.outcome == "held" for line in verdicts)
    idle = [line for line in lines if not line.competitors]
    results = sum(not line.found.no_verdict for line in idle)
    width = median(line.width for line in verdicts) if verdicts else float("nan")
    return [
        (
            f"bands hold in {held} of {len(verdicts)} verdicts, at least {HELD:.0%};"
            f" median width: upper end {width:.2f} times the lower",
            held >= HELD * len(verdicts) > 0,
        ),
        (
            f"{len(verdicts)} of {len(lines)} runs get a verdict, at least {VERDICTS:.0%}",
            len(verdicts) >= VERDICTS * len(lines),
        ),
        (f"{results} of {len(idle)} runs without competitors get one, all", results == len(idle)),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--machine", metavar="FILE", help="a calibration (default: make one)")
    parser.add_argument("--runs", type=int, default=40, help="in all (default: 40)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of steps a run (default: 1)")
    parser.add_argument("--json", action="store_true", help="print all there is, in SI units")
    add_quick(parser)
    options = parser.parse_args()
    if options.quick:
        options.runs, options.seconds = 1, 0.1
    machine = calibrated(options.machine, options.quick)
    if not options.json:
        print(HEAD, flush=True)
    lines: list[Line] = []
    with taken():
        for line in measured(machine, options.runs, options.seconds):
            lines.append(line)
            if not options.json:
                print(line, flush=True)
    ends = judged(lines)
    if options.json:
        rows = [
            {"experiment": line.name, "competitors": line.competitors, "outcome": line.outcome}
            | line.found.as_dict()
            for line in lines
        ]
        print(json.dumps({"runs": rows, "lines": dict(ends)}, indent=2))
    else:
        print()
        for words, met in ends:
            print(f"{'ok    ' if met else 'MISSED'} {words}")
    return int(not options.quick and not all(met for _, met in ends))


if __name__ == "__main__":
    sys.exit(main())
