"""Numpy passes of the layers in which ranks communicate: exchange.py, halo.py; `built` for any layer.

all_to_all.py: how positions travel to experts on other ranks. heads.py, ring.py: attention to the
tokens of other ranks. async_tp.py: products in pieces, each exchanged beside the next.
"""

from typing import Any

from lib_dlhpc import layout
from lib_dlhpc.layers import Layer
from lib_dlhpc.training.messages.all_to_all import AllToAll
from lib_dlhpc.training.messages.exchange import Exchange
from lib_dlhpc.training.messages.halo import Halo
from lib_dlhpc.training.messages.heads import Heads
from lib_dlhpc.training.messages.ring import Ring


def trained(layer: Layer) -> bool:
    """Return whether a layer has passes in numpy, or needs none."""
    return layer.traits.message or layer.traits.stand_in or hasattr(layer.traits, "forward")


def built(layer: Layer) -> Any:
    """Return the passes of a layer."""
    if "context" in layer.attributes:  # attention to the tokens of other ranks
        return Ring(layer) if layout.ring_blocks(layer) > 1 else Heads(layer)
    made: Any = {"exchange": Exchange, "halo": Halo}.get(layer.kind, layer.traits)(layer)
    if "own" in layer.attributes:  # experts that several ranks hold together
        made.travel = AllToAll(layer)
    return made
