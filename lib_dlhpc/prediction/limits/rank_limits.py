"""What the ranks of a real run hold: the ledger, and all samples, which every rank has; and what would fit.

What came of the run stands beside what was predicted.
"""

from collections.abc import Mapping
from math import prod
from typing import Any

from lib_dlhpc.costs.roofline import BYTES
from lib_dlhpc.costs.storage_reads import stored_bytes
from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction.limits.fit import ways_to_fit
from lib_dlhpc.prediction.memory.device_ledger import ledger
from lib_dlhpc.prediction.memory.rank_memory import peak_of
from lib_dlhpc.prediction.step import predict
from lib_dlhpc.spec import run_only
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.host import cores
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show

WORD = 8  # B of a whole number


def rank_bytes(experiment: Experiment) -> float:
    """Return the bytes of the rank with the highest peak, including interpreter and libraries."""
    if experiment.strategy.update == "synchronous":
        ranks = range(int(experiment.devices))
        most = max(peak_of(experiment, rank).total for rank in ranks)
    else:
        most = float(sum(map(float, ledger(experiment).values())))
    return most + data_bytes(experiment)


def data_bytes(experiment: Experiment) -> float:
    """Return the bytes of all samples and targets; every rank of a run holds them."""
    model = experiment.model
    reads, words = prod(model.input_shape), model.reads_tokens
    sample = reads * (WORD if words else BYTES[experiment.strategy.precision])
    return float(experiment.dataset.samples) * (sample + (reads if words else 1) * WORD)


def check_fits(experiment: Experiment) -> float:
    """Return rank_bytes. Raises SpecError, with configurations that fit, if a device has less memory."""
    most, cap = rank_bytes(experiment), float(experiment.machine.device.memory)
    if most > cap:
        ranks = int(experiment.devices)
        words = [
            f"{way.words} ({', '.join(f'{name} = {value!r}' for name, value in way.changes.items())})"
            for way in ways_to_fit(experiment)
            if int(way.prediction.experiment.devices) == ranks and not way.untrained
        ]
        ways = (
            f"would fit: {'; '.join(words[:3])}." if words else "no known change would make it fit."
        )
        raise SpecError(
            f"machine.device.memory = {show(cap, 'B')}: a rank needs {show(most, 'B')},"
            f" {show(most - cap, 'B')} more; {ways}"
        )
    return most


def result_lines(
    experiment: Experiment,
    predicted: float,
    result: Mapping[str, Any],
    room: int | None = None,
    step_words: str = "",
) -> list[str]:
    """Return lines on a run's step and memory beside what was predicted; `predicted`: rank_bytes.

    result: of the run, with `ranks`, `terms` in s of a mean step, and `memory` of each rank.
    room: cores that the ranks had; None: those of this machine. step_words: what was predicted of a step, and on
    which machine; by default that of the experiment.
    """
    cap = float(experiment.machine.device.memory)
    lines = peak_lines(predicted, [each["total"] for each in result["memory"]], cap)
    step = sum(result["terms"].values())
    if not step or not result.get("samples", 1):  # nothing was left to do
        return lines
    ranks, here = int(result["ranks"]), cores() if room is None else room
    if not step_words and ranks == int(experiment.devices + experiment.servers):
        where = experiment.machine.name or "the machine of the file"
        step_words = f"predicted {show(float(predict(experiment).step_time), 's')} on {where}"
    if step_words:
        lines.append(f"  step: {show(step, 's')}; {step_words}")
    lines += _input_line(experiment)
    notes = [*run_only.warnings(experiment), *run_only.not_applied(experiment)]
    lines += [f"  note: {note}" for note in notes]
    if ranks > here:
        lines.append(
            f"  {count(ranks, 'rank')} share {count(here, 'core')}: times say nothing about the method"
        )
    return lines


def _input_line(experiment: Experiment) -> list[str]:
    """Return what a run reads from the storage tier, in words."""
    if not experiment.storage.tier:
        return []
    size = show(float(stored_bytes(experiment)), "B")
    return [
        f"  input: {int(experiment.dataset.trained):,} samples of {size} per epoch, read from files on this machine,"
        f" throttled to storage.tier = {experiment.storage.tier!r}"
    ]


def peak_lines(predicted: float, measured: list[float], cap: float) -> list[str]:
    """Return lines on the measured peak of all ranks, beside the prediction and the cap."""
    if not measured:
        return []
    most = max(measured)
    lines = [
        f"  memory: a rank held at most {show(most, 'B')}, of {show(cap, 'B')}; predicted"
        f" {show(predicted, 'B')}"
    ]
    if most > cap:
        lines.append(
            f"  warning: rank {measured.index(most)} held {show(most - cap, 'B')} more than the cap"
        )
    return lines
