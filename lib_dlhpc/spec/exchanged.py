"""What travels between ranks, and what is trained: settings of a strategy that go with these alone."""

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.strategy import FP8, SAME, Strategy


def check_wire(strategy: Strategy) -> None:
    """Raise SpecError where something else than gradients travels between replicas, or parts of them."""
    s = strategy
    if s.wire == SAME:
        return
    sharded = np.any(np.greater(s.zero, 0)) and not widens(s)
    unsharded = "0" if s.precision == "fp64" else "0; or strategy.wire = 'fp32'"
    for name, wrong, legal in (
        ("update", s.update != "synchronous", "'synchronous'"),
        ("zero", sharded, unsharded),
        ("experts", np.any(np.greater(s.experts, 1)), "1"),
        ("offload", s.offload == "all", "'none', 'activations'"),
    ):
        if wrong:
            raise SpecError(
                f"strategy.wire = {s.wire!r}: only the allreduce of gradients is cast; with it strategy.{name} ="
                f" {getattr(s, name)!r} is not legal, but {legal}."
            )


def widens(s: Strategy) -> bool:
    """Return whether gradients travel, and are added, in no fewer bits than they are computed in."""
    return s.wire == "fp32" and s.precision != "fp64"


def check_expert_wire(strategy: Strategy) -> None:
    """Raise SpecError where tokens would travel in a format that experts do not compute in."""
    if strategy.expert_wire != SAME and strategy.precision != FP8:
        raise SpecError(
            f"strategy.expert_wire = {strategy.expert_wire!r}: experts that read fp8 take it as it arrives; legal with"
            f" strategy.precision = {FP8!r}, not with {strategy.precision!r}."
        )


def check_muon(strategy: Strategy) -> None:
    """Raise SpecError for Muon where a device has less than whole matrices, and their exchange is not known."""
    s = strategy
    if s.optimizer != "muon":
        return
    sharded = np.any(np.greater(s.zero, 0))
    for name, legal in (
        ("update", ("synchronous", "local")),
        ("tensor", (1,)),
        ("spatial", (1,)),
        ("experts", (1,) if sharded else ()),
        ("offload", ("none", "activations")),
        ("lora", (0,)),
    ):
        value = getattr(s, name)
        if legal and not np.all(np.isin(value, legal)):
            raise SpecError(
                f"strategy.optimizer = 'muon': it updates whole matrices, which is not modeled with strategy.{name} ="
                f" {value!r}{' and strategy.zero above 0' * (name == 'experts')}; legal:"
                f" {', '.join(map(repr, legal))}."
            )


def check_lora(strategy: Strategy) -> None:
    """Raise SpecError for adapters with what their exchange, or their split, is not known of."""
    s = strategy
    if not np.any(s.lora):
        return
    for name, legal in (
        ("update", ("synchronous",)),
        ("tensor", (1,)),
        ("spatial", (1,)),
        ("experts", (1,)),
        ("schedule", ("gpipe", "1f1b", "interleaved")),
        ("gather", ("usual",)),
        ("offload", ("none", "activations")),
    ):
        value = getattr(s, name)
        if not np.all(np.isin(value, legal)):
            raise SpecError(
                f"strategy.lora = {np.max(s.lora)}: adapters are not priced with strategy.{name} = {value!r}; legal:"
                f" {', '.join(map(repr, legal))}."
            )
