"""Exchange: a collective of a tensor- or sequence-parallel group between two layers."""

from lib_dlhpc.layers.base.kind import Kind


class Exchange(Kind):
    """A collective forward and its adjoint backward; training/messages has its passes."""

    backward_reads = frozenset()
    message = True
