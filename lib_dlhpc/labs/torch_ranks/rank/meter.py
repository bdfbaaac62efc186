"""The bytes that a rank holds: the storages of all tensors of the process, each once, whatever views there are."""

import gc
from collections.abc import Sequence
from time import sleep
from typing import TypeAlias

import torch
from torch import nn

READINGS, PAUSE = 20, 0.1  # at the most; s between two
# bytes, and a slice that keeps more than itself
Reading: TypeAlias = tuple[int, tuple[int, int] | None]


class Meter:
    """Counts the bytes of tensors that were not there when it was made."""

    def __init__(self) -> None:
        # References, so that no address is reused.
        self._before = [each.untyped_storage() for each in _tensors()]

    def leave_out(self, tensors: Sequence[torch.Tensor]) -> None:
        """Do not count these."""
        self._before += [each.untyped_storage() for each in tensors]

    def read(self, enough: float) -> Reading:
        """Return the bytes, and the first slice that keeps a larger storage.

        gloo's threads let go of a tensor some time after a collective: more than `enough` bytes are counted again.
        """
        for _ in range(READINGS - 1):
            if (reading := self._read())[0] <= enough:
                return reading
            sleep(PAUSE)
        return self._read()

    def _read(self) -> Reading:
        known = {each.data_ptr() for each in self._before}
        found: dict[int, int] = {}
        least: dict[int, torch.Tensor] = {}
        for each in _tensors():
            storage = each.untyped_storage()
            if storage.data_ptr() not in known and storage.nbytes():
                found[storage.data_ptr()] = storage.nbytes()
                smallest = least.setdefault(storage.data_ptr(), each)
                if each.numel() < smallest.numel():
                    least[storage.data_ptr()] = each
        views = [(each.numel(), found[at] // each.itemsize) for at, each in least.items()]
        return sum(found.values()), next((view for view in views if view[0] < view[1]), None)


def _tensors() -> list[torch.Tensor]:
    """Return the tensors of this process that have memory of their own."""
    gc.collect()
    plain = (torch.Tensor, nn.Parameter)
    found = [each for each in gc.get_objects() if type(each) in plain]
    return [each for each in found if each.device.type == "cpu" and each.layout == torch.strided]
