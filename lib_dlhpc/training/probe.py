"""The trainer's own layers, timed on all ranks at once: mpiexec -n 2 python -m lib_dlhpc.training.probe FILE 20.

Rank 0 writes to FILE, as JSON, the measurements that `dlhpc calibrate` fits: seconds of each layer forward and
backward and of each update in a few small networks, repeated for about the given seconds, and steps of a tiny
run. All ranks measure at the same time, as in training, so contention for shared memory bandwidth is included.
"""

import json
import random
import sys
import time
from collections.abc import Mapping
from functools import cache
from math import prod
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from lib_dlhpc.costs.layer_rates import LOSS, SAMPLES
from lib_dlhpc.costs.muon import MUON
from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.spec.experiment import read_experiment, read_model
from lib_dlhpc.spec.training import Training
from lib_dlhpc.training import loss as losses
from lib_dlhpc.training.network import SINGLE, Network
from lib_dlhpc.training.optimizers import MEMORIES, RULES, Optimizer

# Of a network in a round; the first is a warm-up, each of the others ends with another optimizer: its state was last
# accessed a step ago, as in training.
STREAMED = tuple(name for name in RULES if name != MUON)  # updates that only move data
STEPS = 1 + len(STREAMED)
LEAST_ROUNDS = 3
QUICK = 0.25  # quantile of a round's steps: steps after a context switch run on a cold cache
OFFLOAD = 0.05  # fraction of the seconds, about, for the offload bandwidth


def _image(first: int, second: int, kernel: int, size: int, channels: int, **more: Any) -> Any:
    activation, pool = more.get("activation", "relu"), more.get("pool", "max_pool")
    norm = [{"kind": "batch_norm"}] if more.get("norm") else []
    space = [size] * more.get("axes", 2)
    options = {"kernel": kernel, "padding": kernel // 2}
    return {
        "family": "sequential",
        "input": [channels, *space],
        "layers": [
            {"kind": "conv", "channels": first, **options},
            *norm,
            {"kind": activation},
            {"kind": pool, "kernel": 2},
            {"kind": "conv", "channels": second, **options},
            *norm,
            {"kind": activation},
            {"kind": pool, "kernel": 2},
            {"kind": "flatten"},
            {"kind": "dense", "features": 48},
            {"kind": activation},
            {"kind": "dense", "features": 10},
        ],
    }


def _words(layers: int, hidden: int, sequence: int, vocabulary: int, dropout: float) -> Any:
    sizes = {"layers": layers, "hidden": hidden, "heads": 4, "sequence": sequence}
    return {"family": "gpt", "vocabulary": vocabulary, "dropout": dropout, **sizes}


def _mlp(*widths: int, activation: str = "relu") -> Any:
    return {"family": "mlp", "widths": list(widths), "activation": activation}


# Networks and the batches of a rank, from tiny to the largest for a laptop in class; none is used in a lab.
NETWORKS: tuple[tuple[Mapping[str, Any], tuple[int, ...]], ...] = (
    (_mlp(48, 56, 40, 10), (16, 96, 384)),
    (_mlp(784, 160, 96, 10), (48, 192)),
    (_mlp(300, 400, 400, 10, activation="tanh"), (64,)),
    (_mlp(512, 1024, 768, 10, activation="sigmoid"), (96,)),
    (_mlp(720, 640, 440, 10), (56,)),
    (_mlp(320, 1200, 1000, 10), (40,)),
    (_image(12, 24, 3, 8, 1), (24, 96)),
    (_image(6, 16, 5, 28, 1, activation="tanh", pool="avg_pool"), (12, 48)),
    (_image(24, 32, 3, 16, 3, norm=True), (16,)),
    (_image(6, 12, 3, 12, 1, axes=3, activation="leaky_relu", pool="avg_pool"), (6,)),
    (_words(2, 48, 24, 48, 0.1), (4, 12)),
    (_words(2, 96, 40, 80, 0.1), (2, 4, 14)),  # 2 samples: a microbatch
    (_words(2, 64, 32, 64, 0.0), (4, 12)),
    ({**_words(2, 48, 24, 48, 0.0), "experts": 4, "expert_hidden": 64}, (4, 16)),
    ({**_words(1, 64, 16, 48, 0.0), "experts": 8, "expert_hidden": 192}, (8,)),
)
# CPU time of this rank's thread: time in which other processes hold the core does not count. Where the CPU clock is
# too coarse, wall-clock time.
FINE = time.get_clock_info("thread_time").resolution < 1e-6
own_clock = time.thread_time if FINE else perf_counter
# So little work that overhead dominates.
TINY: dict[str, Any] = {"widths": [64, 24, 16, 10], "batch": 16}
WARM_UP = 10  # steps of a tiny run to discard
NUMBERS = 2**21  # of which samples are made: more than the caches of a core hold


@cache
def _numbers() -> Array:
    return np.random.default_rng(0).random(NUMBERS, np.float32)


class Timed(Network):
    """A network that records when each layer starts, forward and backward."""

    marks: list[float]

    def _one(self, visit: str, index: int, *rest: Any) -> Array:
        self.marks.append(own_clock())
        return super()._one(visit, index, *rest)

    def _back(self, index: int, *rest: Any) -> None:
        self.marks.append(own_clock())
        super()._back(index, *rest)


class Case:
    """One network at one batch size, with synthetic samples."""

    def __init__(self, table: Mapping[str, Any], batch: int) -> None:
        self.table, self.batch = dict(table), batch
        self.network = Timed(read_model(self.table))
        model, dice = self.network.model, np.random.default_rng(0)
        # As in a data set, the samples of a step lie apart, and were last read long ago.
        elements = prod(model.input_shape)
        many = 64 * batch if model.reads_tokens else max(batch, len(_numbers()) // elements)
        self.x: Array = _numbers()[: many * elements].reshape(many, *model.input_shape)
        if model.reads_tokens:
            self.x = (40 * self.x).astype(np.int64)
        self.order = dice.permutation(many)
        self.y = dice.integers(0, 10, (batch, *model.output_shape[:-1]))
        # The optimizers share state arrays, or more data would compete for the caches than in a run with one of
        # them; but LARS uses its state as the step itself.
        own = [np.zeros_like(self.network.weights) for _ in range(max(map(len, MEMORIES.values())))]
        memories = {name: dict(zip(MEMORIES[name], own, strict=False)) for name in STREAMED}
        memories["lars"] = {}
        self.optimizers = {name: Optimizer(name, Training(), memories[name]) for name in STREAMED}
        self.step = 0

    def once(self) -> tuple[list[float], list[float], dict[str, float], dict[str, float], float]:
        """Take a step; return s of each layer forward, backward, of samples and loss, of the update, and of all."""
        network, begun = self.network, perf_counter()
        network.context.step = self.step = self.step + 1
        first, begin = self.step * self.batch % (len(self.x) - self.batch + 1), own_clock()
        x = self.x[self.order[first : first + self.batch]]
        copied, network.marks = own_clock() - begin, []
        outputs = network.forward(x)
        ahead = [*network.marks, own_clock()]
        _, dy = losses.softmax_cross_entropy(outputs, self.y, self.batch)
        lost, network.marks = own_clock(), []
        network.back(SINGLE, {network.gives[0]: dy})
        back = [*network.marks, own_clock()]
        whole = perf_counter() - begun
        name = STREAMED[self.step % len(STREAMED)]
        begin = own_clock()
        self.optimizers[name].update(network, 0.0)  # rate 0, as the state may hold any values
        update = {name: own_clock() - begin}
        backward = np.diff(back)[::-1].tolist()
        outside = {SAMPLES: copied, LOSS: lost - ahead[-1]}
        return np.diff(ahead).tolist(), backward, outside, update, whole


def main(path: Path, seconds: float) -> None:
    """Measure on the ranks of the world; rank 0 writes the results."""
    from mpi4py import MPI

    from lib_dlhpc.training.peak_memory import Peak
    from lib_dlhpc.training.probe_disk import measure

    comm, begun = MPI.COMM_WORLD, time.monotonic()
    resident = comm.gather(Peak().before)
    cases = [Case(table, batch) for table, batches in NETWORKS for batch in batches]
    rounds: list[list[Any]] = []
    loads: list[float] = []
    order, dice = list(range(len(cases))), random.Random(0)
    offloaded = measure(comm, OFFLOAD * seconds)
    tiny: list[float] = []
    while len(rounds) < LEAST_ROUNDS or comm.bcast(time.monotonic() < begun + seconds):
        dice.shuffle(order)
        results: list[Any] = [None] * len(cases)
        before = cpu_seconds(comm)
        for number in order:
            comm.Barrier()
            results[number] = [cases[number].once() for _ in range(STEPS)][1:]
        tiny += _tiny_run()
        loads.append(foreign_load(before, cpu_seconds(comm)))
        rounds.append(results)
    result = {
        "ranks": comm.size,
        "resident": resident,
        "cases": [_case(case, [each[n] for each in rounds], comm) for n, case in enumerate(cases)],
        "others": loads,
        "away": offloaded,
        "run": {**TINY, "seconds": comm.gather(tiny)},
    }
    if comm.rank == 0:
        path.write_text(json.dumps(result), encoding="utf-8")


def _case(case: Case, rounds: list[Any], comm: Any) -> dict[str, Any]:
    """Return the lower quartile of each round's steps, and all whole steps, by rank, in s."""
    quick = [
        {
            "forward": np.quantile([step[0] for step in steps], QUICK, axis=0).tolist(),
            "backward": np.quantile([step[1] for step in steps], QUICK, axis=0).tolist(),
            **{
                name: float(np.quantile([step[2][name] for step in steps], QUICK))
                for name in (SAMPLES, LOSS)
            },
            "updates": {name: took for step in steps for name, took in step[3].items()},
        }
        for steps in rounds
    ]
    all_steps = [step for steps in rounds for step in steps]
    return {
        "model": case.table,
        "batch": case.batch,
        "rounds": comm.gather(quick),
        "steps": comm.gather([sum(step[0]) + sum(step[1]) for step in all_steps]),
        "wall": comm.gather([step[4] for step in all_steps]),
    }


def _tiny_run() -> list[float]:
    """Train for an epoch, on each rank by itself; return s of its steps.

    A core's speed at non-arithmetic work varies by half from one second to the next with the load on other
    cores: one run in each round averages over this, one long run would not.
    """
    from lib_dlhpc.training.single_rank import SingleRank
    from lib_dlhpc.training.trainer import train

    stamps: list[float] = []
    table = {
        "model": {"family": "mlp", "widths": TINY["widths"]},
        "dataset": {"name": "digits"},
        "machine": {"name": "laptop"},
        "strategy": {"devices_per_node": 1, "batch": TINY["batch"]},
    }
    train(read_experiment(table), SingleRank(), begins=lambda _: stamps.append(own_clock()))
    return np.diff(stamps[WARM_UP:]).tolist()


def cpu_seconds(comm: Any) -> tuple[float, float, float]:
    """Return the time, the busy s of all cores, and the CPU s of the ranks."""
    ours = comm.allreduce(time.process_time())
    return time.monotonic(), _busy(), ours


def foreign_load(before: tuple[float, float, float], after: tuple[float, float, float]) -> float:
    """Return the mean number of cores that other processes kept busy between two readings."""
    span, busy, ours = (b - a for a, b in zip(before, after, strict=True))
    return max(0.0, busy - ours) / max(span, 1e-9)


def _busy() -> float:
    """Return the busy seconds of all cores together; 0 where the system does not report them."""
    import os

    try:
        ticks = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        return sum(int(t) for index, t in enumerate(ticks) if index not in (3, 4)) / os.sysconf(
            "SC_CLK_TCK"
        )
    except (OSError, ValueError, IndexError):
        return 0.0


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
