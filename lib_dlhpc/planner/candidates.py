"""Candidates of a plan: the combinations that are legal and may fit, with their bounds, found in chunks.

A combination is a number, so that no list of all of them is made: 24 B are held for each candidate.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.planner.bound import bound
from lib_dlhpc.planner.space import Columns, axes_of, columns_at, combinations, space, values_at
from lib_dlhpc.scale_out import Arrays, Place, Work, results
from lib_dlhpc.scale_out.work import experiment_of, part
from lib_dlhpc.spec.experiment import Experiment, dumps

SIZE = 2**20  # combinations of a chunk
UNFIT = ("does not fit: the state alone", "does not fit: state and activations")


@dataclass(frozen=True)
class Candidates:
    """Combinations by their numbers, with lower bounds of a step (s) and of the energy above idle power (J).

    legal: how many are legal, whether they fit or not. left_out: of all combinations, by reason.
    """

    experiment: Experiment
    axes: Mapping[str, Sequence[Any]]
    numbers: NDArray[np.int64]
    step: NDArray[np.float64]
    joules: NDArray[np.float64]
    legal: int
    left_out: Counter[str]

    def __len__(self) -> int:
        """Return the number of candidates."""
        return len(self.numbers)

    def columns(self, *names: str) -> Columns:
        """Return some axes, in each candidate."""
        found = values_at(self.axes, self.numbers)
        return {name: found[name] for name in names}

    def combinations(self, rows: NDArray[np.intp]) -> Columns:
        """Return some candidates with all their fields, as columns."""
        return columns_at(self.experiment, self.axes, self.numbers[rows])


def candidates(experiment: Experiment, where: Place) -> Candidates:
    """Return the candidates of the [plan] of a scalar experiment. Raises SpecError, LostError as `results`."""
    axes = axes_of(experiment)
    total = combinations(axes)
    arguments = {"experiment": dumps(experiment), "combinations": total, "size": SIZE}
    work = Work("lib_dlhpc.planner.candidates:chunk", arguments, -(-total // SIZE))
    return _merged(experiment, axes, results(work, where))


def _merged(
    experiment: Experiment, axes: Mapping[str, Sequence[Any]], found: Iterable[Arrays]
) -> Candidates:
    left_out, legal = Counter[str](), 0
    parts: dict[str, list[Any]] = {"numbers": [], "step": [], "joules": []}
    for each in found:
        for reason, many in zip(each["reasons"].tolist(), each["counts"].tolist(), strict=True):
            left_out[reason] += many
        legal += int(each["legal"])
        for name, arrays in parts.items():
            arrays.append(each[name])
    held = {name: np.concatenate(arrays) for name, arrays in parts.items()}
    return Candidates(experiment, axes, **held, legal=legal, left_out=left_out)


def chunk(arguments: Mapping[str, Any], number: int) -> Arrays:
    """Return the candidates of a range of combinations, and how many others there are, by reason."""
    experiment = experiment_of(arguments["experiment"])
    within = space(experiment, None, *part(arguments["size"], number, arguments["combinations"]))
    left_out, step, joules = Counter(within.left_out), np.zeros(0), np.zeros(0)
    numbers = within.numbers
    if len(within):
        bounds = bound(experiment, within)
        room = float(experiment.machine.device.memory)
        fits, alone = bounds.memory <= room, int((bounds.state > room).sum())
        left_out += Counter(dict(zip(UNFIT, (alone, int((~fits).sum()) - alone), strict=True)))
        numbers, step, joules = numbers[fits], bounds.step[fits], bounds.joules[fits]
    return {
        "numbers": numbers,
        "step": step,
        "joules": joules,
        "legal": np.array(len(within)),
        "reasons": np.array(list(left_out), str),
        "counts": np.array(list(left_out.values()), np.int64),
    }
