"""Layers with explicit forward and backward passes, in numpy.

A layer is built from a Layer of spec/, so the priced layer is the trained layer. It has

    shapes                                        shapes of its weights, by name
    start(weights, rng)                           initialize the weights
    forward(weights, saved, x) -> y               and save what backward needs
    backward(weights, gradients, saved, dy) -> dx write the gradients; the layer may overwrite dy

dense.py, conv.py (with windows.py), pool.py, norm.py, pointwise.py, sequence.py, recurrent.py, shapes.py;
exchange.py, halo.py and receive.py, where ranks communicate, and slices.py, a rank's part of a partitioned tensor;
saved.py: saved state and array layout; arena.py: memory planning, with arena_plan.py.
"""

from typing import Any

from lib_dlhpc.training.layers.conv import Conv
from lib_dlhpc.training.layers.dense import Dense
from lib_dlhpc.training.layers.exchange import Exchange
from lib_dlhpc.training.layers.halo import Halo
from lib_dlhpc.training.layers.norm import BatchNorm, LayerNorm
from lib_dlhpc.training.layers.pointwise import Dropout, Gelu, LeakyRelu, Relu, Sigmoid, Tanh
from lib_dlhpc.training.layers.pool import AvgPool, GlobalAvgPool, MaxPool
from lib_dlhpc.training.layers.receive import Receive
from lib_dlhpc.training.layers.recurrent import Lstm
from lib_dlhpc.training.layers.saved import Context, Saved
from lib_dlhpc.training.layers.sequence import Attention, Embedding, PositionEmbedding
from lib_dlhpc.training.layers.shapes import Add, Concat, Flatten

KINDS: dict[str, Any] = {
    "add": Add,
    "attention": Attention,
    "avg_pool": AvgPool,
    "batch_norm": BatchNorm,
    "concat": Concat,
    "conv": Conv,
    "dense": Dense,
    "dropout": Dropout,
    "embedding": Embedding,
    "exchange": Exchange,
    "flatten": Flatten,
    "gelu": Gelu,
    "global_avg_pool": GlobalAvgPool,
    "layer_norm": LayerNorm,
    "halo": Halo,
    "leaky_relu": LeakyRelu,
    "lstm": Lstm,
    "max_pool": MaxPool,
    "position_embedding": PositionEmbedding,
    "receive": Receive,
    "relu": Relu,
    "sigmoid": Sigmoid,
    "tanh": Tanh,
}

__all__ = ["KINDS", "Context", "Saved"]
