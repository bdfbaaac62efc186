"""Speed and memory of the numpy trainer against PyTorch on one core, in one run.

    python benchmarks/trainer.py                    needs torch: pip install -e '.[bench]'
    python benchmarks/trainer.py --peer PYTHON      torch in another environment

Both train the same layers, on the same batch, with momentum SGD, in turns; a figure is the median of the
CPU seconds of a step. Machines are noisy, so only the ratios mean anything.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
os.environ.update(THREADS)  # before numpy starts its threads
os.environ.pop("OPENBLAS_CORETYPE", None)  # numpy at its best, too: the kernels of this CPU
os.environ.pop("OPENBLAS_L2_SIZE", None)

import numpy as np  # noqa: E402
from _quick import add_quick  # noqa: E402
from _trainer_limits import (  # noqa: E402
    QUICK,
    Effort,
    line,
    memory,
    of_sgemm,
    of_textbook,
    recorder,
    seconds,
    stepper,
)

from lib_dlhpc.launch.mpi import command, environment  # noqa: E402
from lib_dlhpc.spec.experiment import loads, read_model  # noqa: E402
from lib_dlhpc.spec.model import Model  # noqa: E402
from lib_dlhpc.training.data import Data  # noqa: E402
from lib_dlhpc.training.record import Recorder  # noqa: E402

PEER = Path(__file__).with_name("_torch_peer.py")


def volume() -> dict[str, Any]:
    """Return a small 3-D network."""
    layers: list[dict[str, Any]] = []
    for channels in (16, 32, 64):
        layers += [
            {"kind": "conv", "channels": channels, "kernel": 3, "padding": 1},
            {"kind": "relu"},
            {"kind": "max_pool", "kernel": 2},
        ]
    layers += [{"kind": "flatten"}, {"kind": "dense", "features": 10}]
    return {"family": "sequential", "input": [1, 16, 16, 16], "layers": layers}


def gpt(layers: int, hidden: int, sequence: int, dropout: float = 0.0) -> dict[str, Any]:
    """Return a small GPT. Without dropout, PyTorch has a fused attention on a CPU."""
    size = {"layers": layers, "hidden": hidden, "sequence": sequence, "dropout": dropout}
    return {"family": "gpt", "heads": 4, "vocabulary": 256, **size}


# name: (model, batch, ratio wanted)
CASES: dict[str, tuple[Any, int, float]] = {
    "MLP": ("mlp-mnist", 128, 1.1),
    "LeNet-5": ("lenet5", 32, 1.1),
    "residual CNN": ({"family": "resnet_cifar", "depth": 11}, 32, 1.3),
    "3-D CNN": (volume(), 16, 0.8),
    "GPT, 2 layers of 64": (gpt(2, 64, 32), 16, 1.0),
    "GPT, 2 layers of 128": (gpt(2, 128, 64), 8, 1.0),
    "GPT, 4 layers of 192": (gpt(4, 192, 128), 4, 1.0),
}


# Batches whose memory is compared with the ledger's: about 50 MB.
LARGE = {"MLP": 8192, "LeNet-5": 1024, "residual CNN": 32, "3-D CNN": 64, "GPT": 24}


class Peer:
    """PyTorch in a process of its own, which answers one line a question."""

    def __init__(self, python: str) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([python, str(PEER)], **pipes)  # type: ignore[call-overload]

    def seconds(self, model: Model, batch: int, spell: float) -> float:
        """Return the mean CPU seconds of a step."""
        layers = [
            [
                layer.name,
                layer.kind,
                layer.inputs,
                layer.input_shape,
                layer.output_shape,
                {**layer.attributes},
            ]
            for layer in model.layers
        ]
        question = {"layers": layers, "input": model.input_shape, "output": model.output_shape}
        question |= {"batch": batch, "spell": spell}
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


def against_torch(peer: Peer | None, effort: Effort) -> None:
    """Print samples a second of each case, and the ratio."""
    for name, (entry, batch, wanted) in CASES.items():
        model = read_model(entry)
        step = stepper(model, batch)
        ours, theirs = [], []
        for _ in range(effort.rounds):
            ours.append(seconds(step, effort.spell))
            if peer is not None:
                theirs.append(peer.seconds(model, batch, effort.spell))
        _compare(name, [batch / time for time in ours], [batch / time for time in theirs], wanted)


def _compare(name: str, ours: list[float], theirs: list[float], wanted: float) -> None:
    """Print samples a second, measured in turns."""
    rate = f"{median(ours):,.0f}/s"
    if theirs:
        ratio = median(o / t for o, t in zip(ours, theirs, strict=True))
        line(name, rate, f"{median(theirs):,.0f}/s", f"{ratio:.2f}x", f"{wanted}x PyTorch")
    else:
        line(name, rate, "-", "-", f"{wanted}x PyTorch")


def two_ranks(python: str | None, quick: bool) -> None:
    """Print samples a second of the MLP on two ranks: MPI here, DistributedDataParallel with gloo there."""
    words = command(2, __file__, "--rank", *(["--quick"] if quick else []))
    ours, theirs = [], []
    for _ in range(1 if quick else 3):
        ours.append(_last_number(words))
        if python:
            theirs.append(_last_number([python, str(PEER), "--two-ranks"]))
    _compare("MLP, 2 ranks", ours, theirs, 1.3)


def rank(turns: int, steps: int) -> None:
    """One of two ranks: the whole data-parallel step, in wall time; the median of `turns` of `steps` each."""
    from mpi4py import MPI

    from lib_dlhpc.training.synchronous import synchronous

    comm, batch = MPI.COMM_WORLD, 128
    experiment = loads(
        '[model]\nname = "mlp-mnist"\n[dataset]\nname = "mnist-5k"\n[machine]\nname = "laptop"\n'
        f'[strategy]\ndevices_per_node = {comm.size}\nbatch = {batch}\nallreduce = "ring"\n'
    )
    rng, samples = np.random.default_rng(0), batch * comm.size
    x = rng.normal(size=(samples, 784)).astype(np.float32)
    y = rng.integers(0, 10, samples)
    recorder, everyone = Recorder(), np.arange(samples)
    recorder.on = False
    with synchronous(experiment, comm, Data(x, y, x, y), recorder) as own:

        def step() -> None:
            own._step(0, 0.0, everyone)

        for _ in range(20):
            step()
        rates = []
        for _ in range(turns):
            comm.Barrier()
            start = time.perf_counter()
            for _ in range(steps):
                step()
            rates.append(comm.size * batch * steps / (time.perf_counter() - start))
    if comm.rank == 0:
        print(median(rates))


def _last_number(words: list[str]) -> float:
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, env=environment())
    return float(done.stdout.split()[-1])


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", help="a Python with torch")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    add_quick(parser)
    options = parser.parse_args()
    if options.rank:
        rank(*((1, 3) if options.quick else (7, 100)))
        return
    effort = QUICK if options.quick else Effort()
    python = options.peer or (sys.executable if _has_torch() else None)
    if python is None:
        print("PyTorch is not installed here: no ratios against it.")
    peer = Peer(python) if python else None
    line("one core", "ours", "peer", "ratio", "wanted")
    against_torch(peer, effort)
    two_ranks(python, options.quick)
    of_sgemm(effort)
    of_textbook(effort)
    recorder(effort)
    line("memory", "measured", "ledger", "off by", "wanted")
    entries: dict[str, Any] = {name: case[0] for name, case in CASES.items()} | {
        "GPT": gpt(2, 128, 64, 0.1)
    }
    memory({name: (entries[name], batch) for name, batch in LARGE.items()}, effort)


def _has_torch() -> bool:
    import importlib.util

    return importlib.util.find_spec("torch") is not None


if __name__ == "__main__":
    main()
