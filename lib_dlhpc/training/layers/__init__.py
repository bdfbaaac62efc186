"""Layers with explicit forward and backward passes, in numpy.

A layer is made from a Layer of spec/, so what is priced is what is trained. It has

    shapes                                       of its weights, by name
    start(weights, rng)                          fill them in
    forward(weights, kept, x) -> y               and keep what backward needs
    backward(weights, gradients, kept, dy) -> dx write the gradients; dy is the layer's to overwrite

dense.py, conv.py (with windows.py), pool.py, norm.py, pointwise.py, sequence.py, recurrent.py, shapes.py;
exchange.py, halo.py and receive.py, where ranks talk, and slices.py, what a rank has of a tensor that is split;
kept.py says what is kept and how arrays lie, room.py in which memory.
"""

from typing import Any

from lib_dlhpc.training.layers.conv import Conv
from lib_dlhpc.training.layers.dense import Dense
from lib_dlhpc.training.layers.exchange import Exchange
from lib_dlhpc.training.layers.halo import Halo
from lib_dlhpc.training.layers.kept import Context, Kept
from lib_dlhpc.training.layers.norm import BatchNorm, LayerNorm
from lib_dlhpc.training.layers.pointwise import Dropout, Gelu, LeakyRelu, Relu, Sigmoid, Tanh
from lib_dlhpc.training.layers.pool import AvgPool, GlobalAvgPool, MaxPool
from lib_dlhpc.training.layers.receive import Receive
from lib_dlhpc.training.layers.recurrent import Lstm
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

__all__ = ["KINDS", "Context", "Kept"]
