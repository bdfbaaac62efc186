"""A small run in a process of its own, under a cap of memory that the system holds: what it takes, and whether it may.

    told = capped(experiment, cap=60e6)      told.refused, or told.peak in B and told.seconds of a step

Both are counted above what Python and numpy take before the network is made. Without a cap it runs freely.
`python -m lib_dlhpc.training.lab.capped` is the process; it reads the experiment and tells the rest as JSON.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from errno import ENOMEM
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from lib_dlhpc.lifetime import owned
from lib_dlhpc.spec.experiment import Experiment, dumps, loads
from lib_dlhpc.spec.model import Model
from lib_dlhpc.spec.networks import build
from lib_dlhpc.training.lab.mistakes import LabError
from lib_dlhpc.training.loss import softmax_cross_entropy
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.offload import offloaded
from lib_dlhpc.training.optimizers import Optimizer

STATUS = Path("/proc/self/status")
PATIENCE = 180.0  # s until a run is given up
STEPS = 4
PIECE = 1 << 20  # elements of weights that are looked at together
STACK = 256 * 1024  # B, of a thread: they count as data
SLACK = 2_000_000  # B for Python's own small objects
# Each array is a mapping of its own, so that what is let go of is the system's again at once.
ALONE = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
ALONE |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Told:
    """What came of a run. peak: B, resident; seconds: of the quickest step; loss, weights: to the bit, as text."""

    refused: str = ""
    peak: float = 0.0
    seconds: float = 0.0
    loss: str = ""
    weights: str = ""


def available() -> bool:
    """Return whether this system tells what a process holds, and can hold it to a cap."""
    return STATUS.exists()


def capped(experiment: Experiment, cap: float | None = None, steps: int = STEPS) -> Told:
    """Train a network of an experiment for some steps on one process. cap: B, None for none.

    The strategy's microbatches, recompute and offload are carried out; there is one rank. Raises LabError
    where the process fails for another reason than its cap, or does not end.
    """
    if not available():
        raise LabError("This system does not tell what a process holds (/proc); Linux does.")
    with owned.temporary_folder("dlhpc-capped-") as folder:
        words = [sys.executable, "-m", __name__, str(folder), str(cap or 0.0), str(steps)]
        try:
            run = owned.run(
                words, PATIENCE, dumps(experiment), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True, env=os.environ | ALONE,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise LabError(f"The run did not end in {PATIENCE:g} s; the machine is busy.") from None
    lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
    if not lines:
        last = (run.stderr.strip() or f"status {run.returncode}").splitlines()[-1]
        raise LabError(f"The run ended with an error: {last}")
    return Told(**json.loads(lines[-1]))


def main() -> None:
    """Train under the cap, and tell what came of it."""
    folder, cap, steps = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    experiment = loads(sys.stdin.read())
    ones = np.ones((256, 256), np.float32)
    ones @ ones  # the library takes its own memory
    del ones
    _run(experiment, folder, 1, build("mlp", {"widths": [8, 8]}))  # all code is loaded
    before = _status("VmHWM")
    try:
        with held(cap):
            told = _run(experiment, folder, steps)
    except (MemoryError, OSError) as error:
        if isinstance(error, OSError) and error.errno != ENOMEM:
            raise
        print(json.dumps(asdict(Told(refused=str(error) or "MemoryError"))), flush=True)
        return
    print(json.dumps(asdict(told) | {"peak": float(_status("VmHWM") - before)}), flush=True)


@contextmanager
def held(cap: float) -> Iterator[None]:
    """Let the system refuse this process more than `cap` B above what it has; 0: no cap."""
    from resource import RLIMIT_DATA, getrlimit, setrlimit
    from threading import stack_size

    before = getrlimit(RLIMIT_DATA)
    stack_size(STACK)
    if cap:
        setrlimit(RLIMIT_DATA, (_status("VmData") + int(cap) + SLACK, before[1]))
    try:
        yield
    finally:
        setrlimit(RLIMIT_DATA, before)


def _run(experiment: Experiment, folder: Path, steps: int, model: Model | None = None) -> Told:
    """Train; model: another than the experiment's."""
    strategy, training = experiment.strategy, experiment.training
    optimizer = Optimizer(strategy.optimizer, training)
    precision: Any = np.float64 if strategy.precision == "fp64" else np.float32
    rng, took, loss = np.random.default_rng(experiment.run.seed), [], 0.0
    cut = np.array_split(np.arange(int(strategy.batch)), int(strategy.microbatches))
    with offloaded(strategy.offload, folder, optimizer) as options:
        network = Network(
            model or experiment.model, precision, experiment.run.seed,
            recompute=strategy.recompute, **options,
        )  # fmt: skip
        own: Any = network.store
        for _ in range(steps):
            begin = time.perf_counter()
            network.begin_step([len(part) for part in cut])
            own.rate = training.rate  # for weights on disk, which move as backward goes
            loss = sum(_pass(network, len(part), int(strategy.batch), rng) for part in cut)
            if strategy.offload != "all":
                optimizer.update(network, training.rate)
            took.append(time.perf_counter() - begin)
        digest, size = sha256(), network.table.size
        for start in range(0, size, PIECE):
            piece = slice(start, min(start + PIECE, size))
            on_disk = strategy.offload == "all"
            part = (
                own.read("weights", piece.start, piece.stop) if on_disk else network.weights[piece]
            )
            digest.update(part.tobytes())
    return Told("", 0.0, min(took), float(loss).hex(), digest.hexdigest())


def _pass(network: Network, samples: int, batch: int, rng: np.random.Generator) -> float:
    """Go forward and back with made-up samples; return their part of the mean loss of the batch."""
    model, labels = network.model, network.model.output_shape[-1]
    shape = (samples, *model.input_shape)
    words = model.layers[0].kind == "embedding"
    x: Any = rng.integers(0, labels, shape) if words else rng.random(shape, np.float32)
    y = rng.integers(0, labels, (samples, *model.output_shape[:-1]))
    (outputs,) = network.run("only", x if words else x.astype(network.dtype, copy=False)).values()
    loss, dy = softmax_cross_entropy(outputs, y, batch)
    del outputs, x
    network.back("only", {network.gives[0]: dy})
    return loss


def _status(name: str) -> int:
    """Return what the system says of this process, in B."""
    return 1024 * int(STATUS.read_text().split(f"{name}:")[1].split()[0])


if __name__ == "__main__":
    main()
