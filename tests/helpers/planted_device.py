"""A device with known numbers, in place of torch's: its clock is the law that predictions use."""

import numpy as np

PEAK = {"fp32": 60e12, "bf16": 800e12}
EFFICIENCY, HALF, BANDWIDTH, LAUNCH, DISPATCH = 0.8, 4e9, 3e12, 2e-6, 6e-6
LATENCY, LINK, IDLE, BUSY, MEMORY = 9e-6, 2e11, 70.0, 690.0, 80e9


class PlantedDevice:
    """What TorchDevice does, for worker.measure; a call returns its seconds, which `noise` scatters."""

    def __init__(self, kind="cuda", ranks=4, noise=0.0, power=True):
        self.kind, self.rank, self.ranks, self.power = kind, 0, ranks, power
        self.backend, self.precisions, self.busy = "nccl", tuple(PEAK), False
        self.noise, self.dice = noise, np.random.default_rng(1)

    def facts(self):
        return {"title": "Planted 80 GB", "memory": MEMORY, "versions": {"torch": "0"}}

    def product(self, precision, edge):
        rate = PEAK[precision] * EFFICIENCY
        return lambda: LAUNCH + (2 * edge**3 + HALF) / rate

    def sum(self, size):
        return lambda: LAUNCH + 3 * size / BANDWIDTH

    def message(self, size):
        return lambda: 2 * (LATENCY + size / LINK)

    def collective(self, name, size):
        passes, share = 1 + (name == "allreduce"), (self.ranks - 1) / self.ranks * size
        added = 0 if name == "all_gather" else 3 * share / BANDWIDTH
        return lambda: passes * ((self.ranks - 1) * LATENCY + share / LINK) + added

    def seconds(self, call, times):
        self.busy = call() > 1e-3
        return times * call() * float(np.exp(self.noise * self.dice.standard_normal()))

    def issued(self, call, times):
        return times * DISPATCH

    def queued(self, call, times, before):
        return times * call() if self.kind == "cuda" else None

    def watts(self):
        return (BUSY if self.busy else IDLE) if self.power else None

    def rest(self, seconds):
        self.busy = False

    def everyone(self, value):
        return [value] * self.ranks
