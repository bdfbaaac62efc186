"""A small run in its own process under a memory cap enforced by the system: its peak, or its refusal.

    result = capped(experiment, cap=60e6)    result.refused, or result.peak in B and result.seconds of a step

Cap and peak count memory above the baseline of Python and numpy. Without a cap it runs freely.
`python -m` this module is the process: it reads the experiment and prints the result as JSON.
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

from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.lifetime import owned
from lib_dlhpc.spec.experiment import Experiment, dumps, loads
from lib_dlhpc.spec.model import Model
from lib_dlhpc.spec.networks import build
from lib_dlhpc.training.loss import softmax_cross_entropy
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.offload import offloaded
from lib_dlhpc.training.optimizers import Optimizer

STATUS = Path("/proc/self/status")
PATIENCE = 180.0  # s, timeout of a run
STEPS = 4
PIECE = 1 << 20  # elements of weights that are hashed at a time
STACK = 256 * 1024  # B, of a thread: stacks count as data
SLACK = 2_000_000  # B for Python's own small objects
# Allocate each array by mmap, so that freed memory returns to the system at once.
ALONE = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
ALONE |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True)
class CappedRun:
    """The result of a run. peak: B, resident; seconds: of the fastest step; loss, weights: exact, as text."""

    refused: str = ""
    peak: float = 0.0
    seconds: float = 0.0
    loss: str = ""
    weights: str = ""


def available() -> bool:
    """Return whether this system reports a process's memory and can cap it."""
    return STATUS.exists()


def capped(experiment: Experiment, cap: float | None = None, steps: int = STEPS) -> CappedRun:
    """Train the network of an experiment for some steps in one process. cap: B, None for no cap.

    The strategy's microbatches, recompute and offload apply; there is one rank. Raises LabError if the process
    fails for another reason than its cap, or times out.
    """
    if not available():
        raise LabError("This system does not report the memory of a process (/proc); Linux does.")
    with owned.temporary_folder("dlhpc-capped-") as folder:
        words = [sys.executable, "-m", __name__, str(folder), str(cap or 0.0), str(steps)]
        try:
            run = owned.run(
                words,
                PATIENCE,
                dumps(experiment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | ALONE,
            )
        except subprocess.TimeoutExpired:
            raise LabError(f"The run did not end in {PATIENCE:g} s; the machine is busy.") from None
    lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
    if not lines:
        last = (run.stderr.strip() or f"status {run.returncode}").splitlines()[-1]
        raise LabError(f"The run ended with an error: {last}")
    return CappedRun(**json.loads(lines[-1]))


def main() -> None:
    """Train under the cap and print the result."""
    folder, cap, steps = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    experiment = loads(sys.stdin.read())
    ones = np.ones((256, 256), np.float32)
    ones @ ones  # the BLAS library allocates its buffers
    del ones
    _run(experiment, folder, 1, build("mlp", {"widths": [8, 8]}))  # loads all code
    before = _status("VmHWM")
    try:
        with held(cap):
            result = _run(experiment, folder, steps)
    except (MemoryError, OSError) as error:
        if isinstance(error, OSError) and error.errno != ENOMEM:
            raise
        print(json.dumps(asdict(CappedRun(refused=str(error) or "MemoryError"))), flush=True)
        return
    print(json.dumps(asdict(result) | {"peak": float(_status("VmHWM") - before)}), flush=True)


@contextmanager
def held(cap: float) -> Iterator[None]:
    """Limit this process to `cap` B above its current memory; 0: no cap."""
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


def _run(experiment: Experiment, folder: Path, steps: int, model: Model | None = None) -> CappedRun:
    """Train; model: another than the experiment's."""
    strategy, training = experiment.strategy, experiment.training
    optimizer = Optimizer(strategy.optimizer, training)
    precision: Any = np.float64 if strategy.precision == "fp64" else np.float32
    rng, took, loss = np.random.default_rng(experiment.run.seed), [], 0.0
    cut = np.array_split(np.arange(int(strategy.batch)), int(strategy.microbatches))
    with offloaded(strategy.offload, folder, optimizer) as options:
        network = Network(
            model or experiment.model,
            precision,
            experiment.run.seed,
            recompute=strategy.recompute,
            **options,
        )
        own: Any = network.store
        for _ in range(steps):
            begin = time.perf_counter()
            network.begin_step([len(part) for part in cut])
            own.rate = training.rate  # for weights on disk, updated during backward
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
    return CappedRun("", 0.0, min(took), float(loss).hex(), digest.hexdigest())


def _pass(network: Network, samples: int, batch: int, rng: np.random.Generator) -> float:
    """Run forward and backward on synthetic samples; return their part of the mean loss of the batch."""
    model, labels = network.model, network.model.output_shape[-1]
    shape = (samples, *model.input_shape)
    words = model.reads_tokens
    x: Any = rng.integers(0, labels, shape) if words else rng.random(shape, np.float32)
    y = rng.integers(0, labels, (samples, *model.output_shape[:-1]))
    (outputs,) = network.run("only", x if words else x.astype(network.dtype, copy=False)).values()
    loss, dy = softmax_cross_entropy(outputs, y, batch)
    del outputs, x
    network.back("only", {network.gives[0]: dy})
    return loss


def _status(name: str) -> int:
    """Return a field of /proc/self/status, in B."""
    return 1024 * int(STATUS.read_text().split(f"{name}:")[1].split()[0])


if __name__ == "__main__":
    main()
