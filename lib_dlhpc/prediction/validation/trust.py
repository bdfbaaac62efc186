"""How far predictions of runs like one were off: the errors of published rows, by kind of network and layout.

catalog/published/errors.csv holds them; `python -m lib_dlhpc.prediction.validation.trust` writes it from all rows,
in the package itself. Rows count in which the time of a step was published; of a kind with fewer than LEAST nothing
is said.
"""

import csv
from collections.abc import Iterable
from dataclasses import asdict, astuple, fields, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from lib_dlhpc.records import dataclass
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.calibration import Calibration
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.measured_machine import STAND_IN
from lib_dlhpc.spec.model import Model
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show

if TYPE_CHECKING:
    from lib_dlhpc.prediction.validation.validate import Row

TABLE = catalog.ROOT / "published" / "errors.csv"
LEAST = 10
RATES = ("throughput", "throughput per device", "achieved_per_gpu")
TIMES = ("iteration_time", "time_")  # first letters of quantities
EXPERTS = "mixtures of experts"
INPUT = "no input stall"  # the class of rows that measure input alone
SPLIT = "dense transformers, tensor or pipeline parallel"
FEW = 8  # tensor ranks; tests/prediction/validation/test_vtrain.py checks the words below
FEW_WORDS = (
    "Not among them: all 24 runs of GPT on several nodes with fewer than 8 tensor ranks, on A100 (vTrain), were"
    " predicted too short, by 3 to 40% (docs/limits.md)."
)
NARROW_WORDS = "None of them computed in 4 bits."


@dataclass(frozen=True)
class Errors:
    """Published runs of a kind beside their predictions.

    median, worst: relative errors of calibrated predictions. low, middle, high: published over predicted time
    without any measured rate: the 5th, 50th and 95th percentile.
    """

    kind: str
    rows: int
    median: float
    worst: float
    low: float
    middle: float
    high: float


def errors_of(experiment: Experiment) -> Errors | None:
    """Return the errors of published runs like this one, which holds no arrays; None where there are too few."""
    return None if is_ideal(experiment) else stored().get(kind_of(experiment))


def is_ideal(experiment: Experiment) -> bool:
    """Return whether nothing keeps large kernels from the device's peak rate: neither measured nor in the catalog."""
    device = experiment.machine.device
    return device.efficiency == 1 and not device.layers and not is_calibrated(experiment)


def caveat_of(experiment: Experiment) -> str:
    """Return what the scored runs like this one do not cover, in words; "" where they cover it.

    Source: docs/limits.md, few tensor ranks on many nodes; fp8 and NVFP4.
    """
    s, words = experiment.strategy, []
    if s.precision in ("nvfp4", "nvfp4-all"):
        words.append(NARROW_WORDS)
    if s.nodes > 1 and s.tensor < FEW and kind_of(experiment) == SPLIT:
        words.append(FEW_WORDS)
    return " ".join(words)


def trust_words(experiment: Experiment, step: float) -> str:
    """Return in a sentence or two how far a predicted step of `step` s can be trusted."""
    found, calibrated = errors_of(experiment), is_calibrated(experiment)
    start = "Calibrated" if calibrated else "No measured rate"
    if not calibrated and experiment.machine.name == STAND_IN:
        return "No measured rate: the catalog's laptop stands for yours; `dlhpc calibrate` measures it."
    if is_ideal(experiment):
        return (
            f"{start}, and {experiment.machine.device.name or 'the device'} has efficiency 1, the default, so large"
            " kernels reach its peak rate; devices of the catalog reach 40% to 90%. Set machine.device.efficiency."
        )
    if not found:
        return f"{start}, and too few published runs like this to say how far predictions are off."
    like, caveat = f"{found.rows} published runs like this ({found.kind})", caveat_of(experiment)
    if calibrated:
        off = f"{found.median:.0%} off in the median, {found.worst:.0%} at worst."
        return f"{start}: {like} were {off} {caveat}".rstrip()
    low, high = (show(step * factor, "s") for factor in (found.low, found.high))
    return (
        f"{start}: of {like}, 90% took {found.low:.2f} to {found.high:.2f} times as long as predicted without one,"
        f" here {low} to {high} per step; calibrated they are {found.median:.0%} off in the median. {caveat}"
    ).rstrip()


def trust_dict(experiment: Experiment) -> dict[str, object]:
    """Return the same as plain values, ready for JSON; kind, rows and errors only where there are enough rows."""
    found, caveat = errors_of(experiment), caveat_of(experiment)
    return {
        "calibrated": is_calibrated(experiment),
        **(asdict(found) if found else {}),
        **({"caveat": caveat} if caveat else {}),
    }


def is_calibrated(experiment: Experiment) -> bool:
    """Return whether compute starts from a measured rate, of the run or of the whole machine."""
    known = experiment.calibration
    return bool(known.rate or known.compute_scale or experiment.machine.measured)


def kind_of(experiment: Experiment) -> str:
    """Return the kind of network and layout by which published runs are grouped; "" where none is like it.

    None is like a run on the user's own machine, or on the laptop that stands for it.
    """
    s, network = experiment.strategy, _network(experiment.model)
    unlike = s.spatial > 1 or s.offload != "none" or s.update != "synchronous" or s.lora
    here = experiment.machine.measured or experiment.machine.name == STAND_IN
    if not network or unlike or experiment.compressed or here:
        return ""
    if s.context > 1 and network != EXPERTS:
        return f"{network}, context parallel"
    if s.replica > 1:
        return f"{network}, tensor or pipeline parallel"
    return (
        f"{network}, ZeRO 3" if s.zero == 3 and network != EXPERTS else f"{network}, data parallel"
    )


def _network(model: Model) -> str:
    """Return the kind of network; "" for those of which no runs are published."""
    splits = {layer.traits.tensor for layer in model.layers}
    if "experts" in splits:
        return EXPERTS
    if model.reads_tokens:
        return "dense transformers" if "heads" in splits and "groups" not in splits else ""
    images = len(model.input_shape) == 3 and any(layer.kind == "conv" for layer in model.layers)
    return "convolutional networks" if images and "heads" not in splits else ""


@cache
def stored() -> dict[str, Errors]:
    """Return the errors by kind."""
    with TABLE.open(newline="", encoding="utf-8") as file:
        rows = [list(row.values()) for row in csv.DictReader(file)]
    return {kind: Errors(kind, int(count), *map(float, rest)) for kind, count, *rest in rows}


def tabulate(rows: Iterable["Row"]) -> list[Errors]:
    """Return the errors of published rows by kind; each is predicted once more without a measured rate."""
    groups: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        timed = row.quantity in RATES or row.quantity.startswith(TIMES)
        if timed and row.experiment and row.group != INPUT and is_calibrated(row.experiment):
            groups.setdefault(kind_of(row.experiment), []).append(_pair(row, row.experiment))
    return [
        _summary(kind, np.array(found))
        for kind, found in sorted(groups.items())
        if kind and len(found) >= LEAST
    ]


def _pair(row: "Row", experiment: Experiment) -> tuple[float, float]:
    """Return the error of a row, and published over predicted time without a measured rate."""
    from lib_dlhpc.prediction.validation.published import UNITS
    from lib_dlhpc.prediction.validation.validate import quantity_of

    bare = replace(experiment, calibration=Calibration())
    predicted = float(quantity_of(bare, row.quantity)) / UNITS.get(row.unit, 1.0)
    longer = row.published / predicted
    return abs(row.error), 1 / longer if row.quantity in RATES else longer


def _summary(kind: str, found: np.ndarray) -> Errors:
    """Return the errors of a kind. found: rows of (error, published over predicted time)."""
    numbers = (*np.quantile(found[:, 0], (0.5, 1)), *np.quantile(found[:, 1], (0.05, 0.5, 0.95)))
    return Errors(kind, len(found), *(round(float(number), 3) for number in numbers))


def main() -> None:
    """Predict all published rows, store their errors, and print where."""
    from lib_dlhpc.prediction.validation.validate import validate

    found = tabulate(validate())
    with TABLE.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(field.name for field in fields(Errors))
        out.writerows(astuple(each) for each in found)
    rows = sum(each.rows for each in found)
    print(f"{TABLE}: errors of {count(rows, 'published row')}, in {count(len(found), 'kind')}.")


if __name__ == "__main__":
    main()
