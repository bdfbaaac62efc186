"""Published runs as this library, Calculon and mlsysim predict them, from the same facts and the same measured row.

    python benchmarks/peers.py               the answers of the peers as kept in peers.csv, beside predictions made now
    python benchmarks/peers.py --live        ask both peers again, and keep what they say
    python benchmarks/peers.py --only ptd    only rows with the word in their id

Each peer is asked twice: as it comes (Calculon's own file of the device, mlsysim's efficiency of 0.5), and with one
number set so that it meets the measured row from which the library starts too: how slow Calculon's device is, the
efficiency of mlsysim's. Links and counts are those of the catalog's machine. Answers are seconds of a step. For --live:

    python -m venv peers && peers/bin/pip install lib-dlhpc mlsysim==0.3.0 pandas psutil
    git clone https://github.com/calculon-ai/calculon && git -C calculon checkout caa4b11f
    PYTHONPATH=calculon peers/bin/python benchmarks/peers.py --live

docs/peers.md has the table; tests/repository/test_peers.py holds it to this.
"""

import argparse
import csv
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import mean, median
from types import ModuleType

import _peer_calculon
import _peer_mlsysim
from _quick import add_quick

from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.validation.published import entries, families, published, row_of
from lib_dlhpc.prediction.validation.validate import Row, experiment_of, validate
from lib_dlhpc.spec.experiment import Experiment

KEPT = Path(__file__).with_name("peers.csv")
PEERS = ("calculon", "mlsysim")
COLUMNS = ("calculon", "calculon_met", "mlsysim", "mlsysim_met")
TITLES = ("Calculon", "Calculon, one row", "mlsysim", "mlsysim, one row")
TIMES = ("iteration_time", "time_", "gpu_hours")
RATES = ("throughput", "achieved_per_gpu", "mfu")
WHOLE = ("data parallel", "uncalibrated")  # classes whose networks are not split, but for BLOOM's
NEITHER = ("no input stall", "input")  # steps that wait for files
GROUPS = (
    "3-D",
    "tensor",
    "pipeline",
    "recompute",
    "ZeRO-3",
    "FSDP",
    "NeMo",
    "NeMo experts",
    "torchtitan",
    "data parallel",
)
NONE = ""
STEPS: dict[str, float] = {}  # by row, predicted once


def is_rate(quantity: str) -> bool:
    return quantity.startswith(RATES)


def chosen(only: str = "") -> set[str]:
    """Return the ids of scored rows that are the time of a step, or a rate, in some unit: no ratios of two."""
    return {
        entry["id"]
        for table in families()
        for entry in entries(table, "rows")
        if entry.get("class", table.get("class", "")) not in NEITHER
        and "definition" not in entry
        and published(entry["id"])["quantity"].startswith((*TIMES, *RATES))
        and only in entry["id"]
    }


def measured_step(row: Row) -> float:
    """Return the published seconds of a step, by the conventions by which the library's step became its prediction."""
    ratio = row.predicted / row.published
    return step_here(row) * (ratio if is_rate(row.quantity) else 1 / ratio)


def step_here(row: Row) -> float:
    """Return the seconds of a row's step as the library predicts them."""
    if row.id not in STEPS:
        STEPS[row.id] = float(predict(row.experiment).step_time)
    return STEPS[row.id]


def error_of(row: Row, step: float) -> float:
    """Return the relative error of a peer's step in the row's quantity, positive where that is too high."""
    ratio = step / measured_step(row)
    return (1 / ratio if is_rate(row.quantity) else ratio) - 1


def start_of(row: Row) -> tuple[Experiment, float] | None:
    """Return the measured run that a row starts from and its seconds of a step; None without one."""
    assert row.experiment is not None
    table, entry = row_of(row.id)
    calibration = row.experiment.calibration
    if "scale_from" in entry:
        first = next(e for e in entries(table, "inputs") if e["id"] == entry["scale_from"])
        run = experiment_of(table, first)
        scale = {"calibration.compute_scale": calibration.compute_scale}
        return run, float(predict(run.set(scale)).step_time)
    if not calibration.rate:
        return None
    devices, batch = int(calibration.devices), int(calibration.batch)
    per_node = min(devices, int(row.experiment.machine.devices_per_node))
    counts = {"strategy.nodes": devices // per_node, "strategy.devices_per_node": per_node}
    whole = dict.fromkeys(("strategy.tensor", "strategy.pipeline", "strategy.microbatches"), 1)
    if row.experiment.strategy.is_split:
        counts |= whole
    run = row.experiment.set({**counts, "strategy.batch": batch})
    return run, batch * devices / float(calibration.rate)


def met(peer: ModuleType, run: Experiment, seconds: float) -> float:
    """Return the one number with which a peer meets a measured step."""
    find = peer.slowdown_of if peer is _peer_calculon else peer.efficiency_of
    return float(find(run, seconds))


def asked(row: Row) -> Iterator[str]:
    """Yield the answers of both peers, each as it comes and after one row: seconds, or why there are none."""
    start, run = start_of(row), row.experiment
    for peer in (_peer_calculon, _peer_mlsysim):
        yield _answer(partial(peer.step_time, run))
        yield _answer(partial(_after_one_row, peer, run, *start)) if start else NONE


def _after_one_row(peer: ModuleType, run: Experiment, first: Experiment, seconds: float) -> float:
    return float(peer.step_time(run, met(peer, first, seconds)))


def _answer(ask: Callable[[], float]) -> str:
    try:
        return f"{ask():.6g}"
    except SpecError as reason:
        return str(reason)


def kept() -> dict[str, list[str]]:
    """Return the answers in peers.csv by row."""
    with KEPT.open(encoding="utf-8", newline="") as file:
        return {line["id"]: [line[name] for name in COLUMNS] for line in csv.DictReader(file)}


def keep(answers: dict[str, list[str]]) -> None:
    """Write the answers of all rows to peers.csv."""
    with KEPT.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(("id", *COLUMNS))
        lines.writerows([name, *each] for name, each in answers.items())


def errors(row: Row, answers: Iterable[str]) -> list[float | None]:
    """Return the relative errors of the library and of each column of answers; None where there is no answer."""
    steps = [float(text) if text[:1].isdigit() else None for text in answers]
    return [row.error, *(None if step is None else error_of(row, step) for step in steps)]


def split_table(rows: Iterable[Row], answers: dict[str, list[str]]) -> Iterator[str]:
    """Yield a Markdown table of the rows whose networks are split and that a peer answers: the error of each."""
    yield f"| row | published | here | {' | '.join(TITLES)} |"
    yield "|---" * 7 + "|"
    for row in rows:
        assert row.experiment is not None
        own, *theirs = errors(row, answers[row.id])
        split = row.group not in WHOLE or row.experiment.strategy.is_split
        if split and any(off is not None for off in theirs):
            cells = ["-" if off is None else f"{off:+z.1%}" for off in (own, *theirs)]
            yield f"| {row.id} | {row.published:,g} {row.unit} | {' | '.join(cells)} |"


def class_table(rows: list[Row], answers: dict[str, list[str]]) -> Iterator[str]:
    """Yield a Markdown table by class and column: rows that it answers, mean and worst error beside the library's."""
    yield "| class | by | rows | mean error | worst | here, same rows | worst |"
    yield "|---" * 7 + "|"
    for group in GROUPS:
        members = [(row, errors(row, answers[row.id])) for row in rows if row.group == group]
        for column, title in enumerate(TITLES, start=1):
            both = [
                (abs(e[0] or 0), abs(e[column] or 0)) for _, e in members if e[column] is not None
            ]
            if both:
                ours, theirs = zip(*both, strict=True)
                cells = [mean(theirs), max(theirs), mean(ours), max(ours)]
                shown = " | ".join(f"{cell:.1%}" for cell in cells)
                yield f"| {group} | {title} | {len(both)} | {shown} |"


def better(rows: list[Row], answers: dict[str, list[str]]) -> Iterator[str]:
    """Yield for each column in how many rows it is nearer to the publication than the library, and both medians."""
    for column, title in enumerate(TITLES, start=1):
        both = [errors(row, answers[row.id]) for row in rows]
        pairs = [(abs(e[0] or 0), abs(e[column] or 0)) for e in both if e[column] is not None]
        nearer = sum(theirs < ours for ours, theirs in pairs)
        middles = [median(each) for each in zip(*pairs, strict=True)]
        yield (
            f"{title}: {len(pairs)} rows, median error {middles[1]:.1%}, here {middles[0]:.1%};"
            f" nearer to the publication in {nearer}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--live", action="store_true", help="ask the peers again")
    parser.add_argument("--only", default="", metavar="WORD", help="rows with it in their id")
    add_quick(parser)
    options = parser.parse_args()
    rows = validate(only=chosen("kort22-175b" if options.quick else options.only))
    answers = kept()
    missing = [name for name in PEERS if find_spec(name) is None]
    if options.live and missing:
        print(
            f"{' and '.join(missing)} not installed: the head of this file says how; answers as kept"
        )
    elif options.live:
        answers |= {row.id: list(asked(row)) for row in rows}
        keep(answers)
    print(f"Calculon {_peer_calculon.COMMIT[:8]}, mlsysim {_peer_mlsysim.VERSION}\n")
    for part in (split_table(rows, answers), class_table(rows, answers), better(rows, answers)):
        print("\n".join(part), end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
