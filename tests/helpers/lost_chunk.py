"""Chunks of which the third kills its process, the first time. `once`: the file that says so."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path

import numpy as np


def chunk(arguments: Mapping[str, str], number: int) -> dict[str, np.ndarray]:
    """Return the square of a number."""
    once = Path(arguments["once"])
    if number == 2 and not once.exists():
        once.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"square": np.array(number**2)}
