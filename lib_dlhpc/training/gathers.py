"""Gathers: the all-gathers of updated weights, a bucket at a time, after the update or behind a forward pass."""

from functools import partial
from typing import Any

from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.schedules.ring_collectives import InFlight
from lib_dlhpc.training.ordered_collectives import DeferredCollective, InOrder
from lib_dlhpc.training.record import Recorder
from lib_dlhpc.training.sharding import Range, Sharding


class Gathers(InOrder):
    """All-gathers in place; those with a key are recorded one by one, and waited for by it."""

    def __init__(self, sharding: Sharding, recorder: Recorder) -> None:
        super().__init__()
        self.sharding, self.recorder = sharding, recorder
        self._coming: dict[str, int] = {}  # their numbers, by key

    def start(self, flat: Array, part: Range, key: str, comm: Any) -> None:
        """Start to gather what a group owns of a part of all weights, after those that are being gathered."""
        request = DeferredCollective(partial(self.sharding.all_gather, flat, *part, comm))
        if not key:
            self.post(request)
            return
        size = (part[1] - part[0]) * flat.itemsize // self.sharding.comm.size  # of this rank
        ends = partial(self.recorder.begin, key, size), partial(self.recorder.end, key)
        self._coming[key] = self.post(request, *ends)

    def wait_for(self, key: str) -> None:
        """Wait for the gather of this key."""
        with self.recorder.waits(key):
            self.wait(self._coming.pop(key))

    def at_once(self, flat: Array) -> None:
        """Gather all weights."""
        InFlight(self.sharding.all_gather(flat, 0, flat.size)).wait()
