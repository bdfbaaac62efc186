"""Halo: rows of an image that other ranks own and the windows of this rank read."""

from lib_dlhpc.layers.base.kind import Kind


class Halo(Kind):
    """The rows that a rank needs; training/messages has its passes."""

    backward_reads = frozenset()
    message = True
