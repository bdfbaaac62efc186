"""The state of a run in one file, written whole or not at all.

A snapshot holds the weights, the running statistics, the memories of the optimiser and where the run is:
all that the next step depends on. Random numbers need no place in it, as they are drawn from the seed,
the epoch and the step. It is written under another name, flushed to the disk and renamed.
"""

import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.train.network import Network
from lib_dlhpc.train.optimizers import Optimizer

FILE = "snapshot.npz"


@dataclass
class Place:
    """Where a run is: the next step, and which global batch of which epoch it takes."""

    step: int = 0
    epoch: int = 0
    batch: int = 0


def save(folder: Path, network: Network, optimizer: Optimizer, place: Place) -> None:
    """Write the snapshot of a run folder; whoever reads it meanwhile sees the one before, whole."""
    arrays: dict[str, Any] = {f"state.{name}": one for name, one in optimizer.state.items()}
    temporary = folder / f".{FILE}.tmp"
    with open(temporary, "wb") as file:
        np.savez(
            file,
            weights=network.weights,
            statistics=network.statistics,
            place=np.array([place.step, place.epoch, place.batch, optimizer.updates]),
            **arrays,
        )
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, folder / FILE)


def restore(folder: Path, network: Network, optimizer: Optimizer) -> Place:
    """Take up the snapshot of a run folder; without one, the start. Raises SpecError if it is another model's."""
    try:
        with np.load(folder / FILE) as file:
            stored = {name: file[name] for name in file.files}
    except FileNotFoundError:
        return Place()
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise SpecError(f"{folder / FILE}: not a snapshot that can be read: {error}.") from None
    for name, array in (("weights", network.weights), ("statistics", network.statistics)):
        if stored[name].shape != array.shape or stored[name].dtype != array.dtype:
            raise SpecError(
                f"{folder / FILE}: {stored[name].size} {name} of {stored[name].dtype}; the model"
                f" has {array.size} of {array.dtype}."
            )
        array[...] = stored[name]
    optimizer.state = {
        name.removeprefix("state."): array
        for name, array in stored.items()
        if name.startswith("state.")
    }
    step, epoch, batch, optimizer.updates = (int(number) for number in stored["place"])
    return Place(step, epoch, batch)
