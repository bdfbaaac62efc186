"""The stored results of the large-batch runs: read, written, averaged, compared, fitted.

`python -m lib_dlhpc.studies.large_batch_results` writes the tables in catalog/measured/.
"""

import argparse
import csv
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.spec.catalog import ROOT
from lib_dlhpc.studies.large_batch import DIGITS, MNIST, Outcome, Study, Trial, carried_out, workers
from lib_dlhpc.studies.large_batch_steps import Arrival
from lib_dlhpc.studies.large_batch_steps import carried_out as steps_carried_out

TABLE = ROOT / "measured" / "large_batch.csv"
STEPS = ROOT / "measured" / "large_batch_steps.csv"


class Mean(NamedTuple):
    """Statistics over seeds."""

    mean: float
    deviation: float  # of one run, sample standard deviation
    rate: float
    warm_up: float
    steps: int


class Paired(NamedTuple):
    """The difference of two rules over the same seeds, first minus second."""

    mean: float
    t: float  # Student's t of the mean difference; degrees of freedom: seeds - 1
    seeds: int


@cache
def stored() -> tuple[Outcome, ...]:
    """Return the shipped runs, validation and test."""
    return tuple(
        Outcome(
            Trial(
                row["split"],
                row["rule"],
                int(row["batch"]),
                float(row["rate"]),
                float(row["warm_up"]),
                int(row["seed"]),
            ),
            float(row["accuracy"]),
            int(row["steps"]),
        )
        for row in _read(TABLE)
    )


@cache
def stored_steps() -> tuple[Arrival, ...]:
    """Return the shipped steps to the target accuracy."""
    return tuple(
        Arrival(int(row["batch"]), float(row["rate"]), int(row["seed"]), int(row["steps"]))
        for row in _read(STEPS)
    )


def write(table: Iterable[Outcome], path: Path = TABLE) -> None:
    """Store the runs of a study."""
    names = (*Trial._fields, "accuracy", "steps")
    rows = ((*trial, round(accuracy, 6), steps) for trial, accuracy, steps in table)
    _write(path, names, rows)


def write_steps(table: Iterable[Arrival]) -> None:
    """Store the steps to the target accuracy."""
    _write(STEPS, Arrival._fields, table)


def accuracies(table: Iterable[Outcome], rule: str, batch: int) -> dict[int, float]:
    """Return seed -> accuracy on the test samples."""
    return {
        trial.seed: accuracy
        for trial, accuracy, _ in table
        if (trial.split, trial.rule, trial.batch) == ("test", rule, batch)
    }


def mean_of(table: Iterable[Outcome], rule: str, batch: int) -> Mean:
    """Return mean and deviation on the test samples; KeyError if there are no such runs."""
    rows = [
        row
        for row in table
        if (row.trial.split, row.trial.rule, row.trial.batch) == ("test", rule, batch)
    ]
    if not rows:
        raise KeyError(f"no runs of {rule!r} at batch {batch}")
    values = np.array([row.accuracy for row in rows])
    last = rows[-1]
    return Mean(
        float(values.mean()),
        float(values.std(ddof=1)),
        last.trial.rate,
        last.trial.warm_up,
        last.steps,
    )


def batches(table: Iterable[Outcome], rule: str) -> list[int]:
    """Return the batches at which a rule was evaluated, smallest first."""
    return sorted({row.trial.batch for row in table if row.trial[:2] == ("test", rule)})


def paired(table: Iterable[Outcome], first: tuple[str, int], second: tuple[str, int]) -> Paired:
    """Return the accuracy difference of two (rule, batch) pairs, seed by seed."""
    table = list(table)
    one, other = accuracies(table, *first), accuracies(table, *second)
    differences = np.array([one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())])
    spread = float(differences.std(ddof=1)) / np.sqrt(len(differences))
    mean = float(differences.mean())
    t = mean / spread if spread else np.copysign(np.inf, mean) if mean else 0.0
    return Paired(mean, float(t), len(differences))


def tuning(
    table: Iterable[Outcome], rule: str, batch: int
) -> list[tuple[float, float, float, float]]:
    """Return (rate, warm-up, mean, lowest accuracy) on the validation split for every candidate."""
    found: dict[tuple[float, float], list[float]] = {}
    for trial, accuracy, _ in table:
        if (trial.split, trial.rule, trial.batch) == ("validation", rule, batch):
            found.setdefault((trial.rate, trial.warm_up), []).append(accuracy)
    return [(*key, float(np.mean(v)), min(v)) for key, v in sorted(found.items())]


def steps_to_target(table: Iterable[Arrival]) -> dict[int, tuple[float, float]]:
    """Return batch -> mean and deviation of the steps to the target accuracy."""
    found: dict[int, list[int]] = {}
    for run in table:
        found.setdefault(run.batch, []).append(run.steps)
    return {b: (float(np.mean(s)), float(np.std(s, ddof=1))) for b, s in sorted(found.items())}


def critical_batch(table: Iterable[Arrival]) -> tuple[float, float]:
    """Return (fewest steps, critical batch) of steps = fewest (1 + critical / batch), fitted in relative terms.

    Source: McCandlish et al. 2018, equation 2.11 with E_min = fewest x critical.
    """
    points = steps_to_target(table)
    size, steps = np.array(list(points)), np.array([mean for mean, _ in points.values()])
    columns = np.stack([1 / steps, 1 / (size * steps)], axis=1)
    (fewest, product), *_ = np.linalg.lstsq(columns, np.ones(len(size)))
    return float(fewest), float(product / fewest)


def as_text(study: Study, table: Iterable[Outcome]) -> str:
    """Return the means of all rules, and LARS against the tuned rule, seed by seed."""
    table = list(table)
    lines = [
        f"{study.dataset}, {len(study.seeds)} seeds, {study.epochs} epochs",
        f"{'rule':<8}{'batch':>7}{'rate':>8}{'warm-up':>9}{'steps':>7}  accuracy",
    ]
    for rule in study.rules:
        for batch in batches(table, rule):
            m = mean_of(table, rule, batch)
            lines.append(
                f"{rule:<8}{batch:>7,}{m.rate:>8g}{m.warm_up:>9g}{m.steps:>7,}"
                f"  {m.mean:.2%} +- {m.deviation:.2%}"
            )
    for batch in batches(table, "lars"):
        p = paired(table, ("lars", batch), ("tuned", batch))
        lines.append(
            f"LARS minus tuned at {batch:,}: {p.mean:+z.2%}, t = {p.t:.1f}, {p.seeds} seeds"
        )
    return "\n".join(lines)


def _read(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _write(path: Path, names: Iterable[str], rows: Iterable[Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(names)
        out.writerows(rows)


def main() -> None:
    """Compute and store the results, or print the quick ones."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="digits, under a minute; prints")
    quick = parser.parse_args().quick
    with workers() as pool:
        if quick:
            study, table = DIGITS, carried_out(DIGITS, pool)
        else:
            study, table = MNIST, carried_out(MNIST, pool)
            write(table)
            write_steps(steps_carried_out(pool))
    print(as_text(study, table))


if __name__ == "__main__":
    main()
