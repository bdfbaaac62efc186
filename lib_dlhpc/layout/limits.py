"""Layouts that can be predicted but not trained here, and why."""

from lib_dlhpc.layout.groups import folded
from lib_dlhpc.layout.parts import parts
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import DIRECT, IN_PLACE, RUN_RECOMPUTES, RUN_SCHEDULES, Strategy


def is_partitioned(experiment: Experiment) -> bool:
    """Return whether a rank is other than one full replica that computes its batch in one pass."""
    s = experiment.strategy
    split = (s.tensor, s.pipeline, s.spatial, s.microbatches) != (1, 1, 1, 1)
    split = split or s.experts > 1 or s.context > 1
    return bool(split or s.zero or s.recompute != "none" or s.offload != "none")


def untrained(experiment: Experiment) -> str:
    """Return why a scalar experiment is not trained here with its layout; "" if it is.

    Raises SpecError if the network cannot be split so at all.
    """
    strategy, training = experiment.strategy, experiment.training
    if reason := _not_run(strategy):
        return reason
    if not is_partitioned(experiment):
        return ""
    if strategy.update != "synchronous":
        return (
            f"strategy.update = {strategy.update!r}: with recomputation or offloading, devices train in"
            " step; the legal value is 'synchronous'."
        )
    if strategy.precision == "fp16":
        return "strategy.precision = 'fp16': a network that is sharded is trained with 'fp64' or 'fp32'."
    batch_statistics = any(layer.traits.batch_statistics for layer in experiment.model.layers)
    if strategy.microbatches > 1 and training.normalization == "global" and batch_statistics:
        return (
            f"strategy.microbatches = {strategy.microbatches}: batch norm sees one microbatch at a time, so"
            " training.normalization = 'global' is impossible; set it to 'local', or microbatches to 1."
        )
    if strategy.mirrored:
        return (
            f"strategy.schedule = {strategy.schedule!r}: it is predicted and simulated, not run; schedules that run:"
            f" {', '.join(map(repr, RUN_SCHEDULES))}."
        )
    held = parts(folded(experiment), 0)  # raises for a network that cannot be split so
    if strategy.offload == "all" and strategy.zero:
        return (
            f"strategy.zero = {strategy.zero}: with strategy.offload = 'all' weights are on disk and move"
            " there, a layer at a time; the legal value is 0."
        )
    if strategy.offload == "all" and any(part.shared for part in held):
        return (
            "strategy.offload = 'all': the embedding is tied to a layer on another stage, and weights on"
            " disk cannot wait for its gradients; legal: 'none', 'activations', or strategy.pipeline = 1."
        )
    return ""


def _not_run(strategy: Strategy) -> str:
    """Return which setting is only predicted and simulated; "" if none is."""
    context = ("heads", "ring") if strategy.context > 1 else (strategy.context_exchange,)
    for name, legal in (
        ("recompute", RUN_RECOMPUTES),
        ("loss", (IN_PLACE,)),
        ("tensor_overlap", ("all",)),
        ("pipeline_runtime", ("megatron",)),
        ("context_exchange", context),
        ("expert_exchange", (DIRECT,)),
    ):
        value = getattr(strategy, name)
        if value not in legal:
            return (
                f"strategy.{name} = {value!r}: it is predicted and simulated, not run; to train:"
                f" {', '.join(map(repr, legal))}."
            )
    return ""
