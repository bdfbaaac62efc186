"""What learners' functions are given that is no plain data: what of it they may read and call, and its arrays.

Everything else of these objects, such as the count of bytes that a rank has moved, is out of reach.
"""

from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.labs.emulated.messages import MessageRequest
from lib_dlhpc.labs.emulated.pipeline_stage import Stage
from lib_dlhpc.labs.emulated.ranks import KNOWN, Rank, Request
from lib_dlhpc.labs.emulated.split_convolution import Convolution
from lib_dlhpc.labs.fuse_attention.chip import Chip, Matrix
from lib_dlhpc.labs.grading import files
from lib_dlhpc.labs.grading.restarts import SteppedTraining
from lib_dlhpc.labs.lay_out_a_language_model.sharded_units import Unit
from lib_dlhpc.storage.snapshots import Version
from lib_dlhpc.training.network import Network

CALLS = frozenset(KNOWN.replace(";", ",").split(", "))
WAITS = frozenset({"Wait", "Test", "wait", "test"})
BOTH = frozenset({"forward", "backward"})
RUN = "lib_dlhpc.spec."  # modules of an experiment and its parts


class Offer(NamedTuple):
    """values: sent along. reads: asked for when they are read. arrays: shared."""

    kind: str
    calls: frozenset[str] = frozenset()
    values: tuple[str, ...] = ()
    arrays: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()


OFFERS: dict[type, Offer] = {
    Rank: Offer("comm", CALLS | {"Get_rank", "Get_size"}, ("rank", "size")),
    Request: Offer("request", WAITS),
    MessageRequest: Offer("request", WAITS),
    Network: Offer("network", BOTH, (), ("weights", "gradients")),
    Stage: Offer(
        "stage",
        BOTH,
        ("number", "stages", "first", "last", "width", "samples"),
        ("weights", "gradients"),
    ),
    Convolution: Offer(
        "layer", BOTH | {"outputs"}, tuple(each.name for each in fields(Convolution))
    ),
    Unit: Offer("unit", BOTH | {"hold", "free"}, ("number", "size"), ("shard",)),
    Chip: Offer("chip", frozenset({"run", "shape_of", "scratch"}), ("room",)),
    Matrix: Offer("matrix", values=("name", "shape")),
    files.Files: Offer("files", files.CALLS),
    files.Snapshots: Offer("snapshots", files.VERSIONS),
    files.Pending: Offer("saving", frozenset({"wait"})),
    Version: Offer("version", values=("id", "number", "branch", "step", "short")),
    SteppedTraining: Offer("training", frozenset({"stepped"})),
}


def offer_of(value: Any) -> Offer | None:
    """Return what is offered of an object, None if it may not be passed."""
    for kind, offer in OFFERS.items():
        if isinstance(value, kind):
            return offer
    if is_dataclass(value) and type(value).__module__.startswith(RUN):
        names = [each for each in dir(value) if not each.startswith("_")]
        reads = [each for each in names if not callable(getattr(type(value), each, None))]
        return Offer(type(value).__name__.lower(), reads=tuple(reads))
    if callable(value):
        return Offer("function", frozenset({"__call__"}))
    return None


def plain(value: Any) -> Any:
    """Return what a learner reads of an experiment: mappings and numbers of numpy become Python's."""
    if isinstance(value, np.generic | np.ndarray) and np.ndim(value) == 0:
        return value.item()
    if hasattr(value, "items") and not isinstance(value, dict):
        return dict(value)
    return value
