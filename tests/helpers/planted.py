"""Synthetic results of a calibration's programs, for a machine with known numbers."""

import numpy as np

from lib_dlhpc.calibration.programs import PROBE, WORKER
from lib_dlhpc.calibration.worker import EDGES, MESSAGES, REDUCED, SUMS
from lib_dlhpc.costs import layer_rates
from lib_dlhpc.costs.roofline import UPDATE_TRAFFIC
from lib_dlhpc.spec.experiment import read_model
from lib_dlhpc.spec.layer_rate import LayerRate
from lib_dlhpc.training.probe import NETWORKS, TINY
from lib_dlhpc.training.probe_disk import SIZES

KINDS = {"conv": 30e-6, "dense": 8e-6, "attention": 90e-6, "attention_with_dropout": 120e-6}
KINDS["experts"] = 150e-6
UPDATES = {name: LayerRate(launch=5e-6, bandwidth=2e10) for name in UPDATE_TRAFFIC}
OUTSIDE = {
    layer_rates.SAMPLES: LayerRate(launch=3e-6, bandwidth=4e9),
    layer_rates.LOSS: LayerRate(launch=1e-5, bandwidth=2e9),
}
LATENCY, BANDWIDTH, SUMMED, CALL = 2e-6, 5e9, 1e11, 3e-7
OUT, BACK = 30e-6, 3e9  # of the way out of memory: s, and B/s each way
RATE, FIXED, OVERHEAD, JITTER = 9e10, 1e-6, 50e-6, 0.02


def layer_rate(kind):
    rate = 8e10 if kind in KINDS else float("inf")
    return LayerRate(KINDS.get(kind, 4e-6), rate, 1e10, 2e-5, rate, 8e9)


def around(model, batch, name):
    """Seconds of a pass outside its layers."""
    rates = {name: OUTSIDE[name]}
    return float(layer_rates.outside(model, rates, np.array([batch]), 4).sum())


class Planted:
    """Repeats are off by `noise`, the first of all tenfold while others take the cores."""

    def __init__(self, ranks=2, noise=0.0, rounds=9, step=0, seed=0):
        self.ranks, self.noise, self.rounds, self.step = ranks, noise, rounds, step
        self.dice = np.random.default_rng(seed)
        self.others = [1.5] + [0.1] * (rounds - 1)

    def each(self, seconds):
        """Repeats of one measurement."""
        drawn = seconds * np.exp(self.noise * self.dice.standard_normal(self.rounds))
        drawn[0] *= 10
        return drawn.tolist()

    def raw(self):
        return {PROBE: self.probe(), WORKER: self.worker()}

    def probe(self):
        cases = [self.case(table, batch) for table, batches in NETWORKS for batch in batches]
        model = read_model({"family": "mlp", "widths": TINY["widths"]})
        inside = self.layers(model, TINY["batch"])
        moved = 4 * UPDATE_TRAFFIC["momentum"] * model.parameters
        own = sum(around(model, TINY["batch"], name) for name in OUTSIDE)
        step = sum(map(sum, inside)) + own + 5e-6 + moved / 2e10 + OVERHEAD
        run = {**TINY, "seconds": [[step] * 50] * self.ranks}
        held = {"ranks": self.ranks, "resident": [6e7] * self.ranks, "others": self.others}
        away = [{"size": n, "seconds": self.each(OUT + n / BACK)} for n in SIZES]
        return {**held, "cases": cases, "away": away, "run": run}

    @staticmethod
    def layers(model, batch):
        each = [layer_rate(layer.traits.rate_key(layer)) for layer in model.layers]
        return [part.tolist() for part in layer_rates.seconds(model, each, batch, 4)]

    def case(self, table, batch):
        model = read_model(table)
        ahead, back = self.layers(model, batch)
        ranks = []
        for _ in range(self.ranks):
            columns = [np.array([self.each(t) for t in part]).T.tolist() for part in (ahead, back)]
            moved = {name: 4 * UPDATE_TRAFFIC[name] * model.parameters for name in UPDATES}
            updates = {n: self.each(5e-6 + size / 2e10) for n, size in moved.items()}
            outside = {name: self.each(around(model, batch, name)) for name in OUTSIDE}
            ranks.append(
                [
                    {
                        "forward": columns[0][n],
                        "backward": columns[1][n],
                        **{name: each[n] for name, each in outside.items()},
                        "updates": {name: each[n] for name, each in updates.items()},
                    }
                    for n in range(self.rounds)
                ]
            )
        whole = (sum(ahead) + sum(back)) * self.dice.normal(1, JITTER, (self.ranks, 4000))
        steps = whole.tolist()
        return {"model": table, "batch": batch, "rounds": ranks, "steps": steps, "wall": steps}

    def worker(self):
        points = []

        def add(what, size, seconds):
            points.append({"what": what, "size": size, "seconds": self.each(seconds)})

        for kind, rate in (("float32", RATE), ("float64", RATE / 2)):
            for edge in EDGES:
                add(f"gemm {kind}", edge, FIXED + 2 * edge**3 / rate)
        add("call", 4, CALL)
        for size in SUMS:
            add("sum", size, CALL + 3 * size / SUMMED)
            add("copy", size, CALL + 2 * size / SUMMED)
        for size in MESSAGES if self.ranks > 1 else ():
            late = 10 * LATENCY if 0 < self.step <= size else 0.0
            add("message", size, LATENCY + late + size / BANDWIDTH)
        share = (self.ranks - 1) / self.ranks
        for size in REDUCED if self.ranks > 1 else ():
            ring = 2 * (self.ranks - 1) * LATENCY + 2 * share * size / BANDWIDTH
            summed, pieces = share * size * 3 / SUMMED, max(1, size >> 20)
            more = (pieces - 1) * (self.ranks - 1) * LATENCY
            add("ring", size, ring + summed)
            add("library", size, ring + 2 * more + summed)
            later = max(1, size // self.ranks >> 20) - 1  # messages of a rank after its first
            add("halves", size, ring + later * (self.ranks - 1) * LATENCY + summed)
            if self.ranks == 2:
                doubling = LATENCY + size / BANDWIDTH + size * 3 / SUMMED
                add("recursive_doubling", size, doubling)
        return {"ranks": self.ranks, "others": self.others, "points": points}
