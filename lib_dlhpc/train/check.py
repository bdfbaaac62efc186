"""What can be trained: a run that cannot be is refused before any rank starts."""

from lib_dlhpc import layout
from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.train.compress import check_compression
from lib_dlhpc.train.data import check_data
from lib_dlhpc.train.trainable import check_layers

PRECISIONS = ("fp64", "fp32", "fp16")


def check(experiment: Experiment) -> None:
    """Raise SpecError, without much work, for what can be priced but not trained."""
    strategy = experiment.strategy
    if strategy.precision not in PRECISIONS:
        raise SpecError(
            f"strategy.precision = {strategy.precision!r}: numpy has no such numbers; to train:"
            f" {', '.join(PRECISIONS)}."
        )
    if strategy.experts > 1:
        raise SpecError(
            f"strategy.experts = {strategy.experts}: can be predicted and simulated, not trained; the legal value is 1."
        )
    if strategy.update == "asynchronous":
        _check_asynchronous(experiment)
    if is_shared_out(experiment):
        _check_shared_out(experiment)
    check_compression(experiment)
    check_layers(experiment.model)
    check_data(experiment)


def check_ranks(experiment: Experiment, ranks: int) -> None:
    """Raise SpecError unless a network that is shared out has a rank for each device of the experiment."""
    devices = int(experiment.devices)
    if is_shared_out(experiment) and ranks != devices:
        raise SpecError(
            f"{ranks} ranks: the network is shared out over the {devices} devices of [strategy]; start"
            f" {devices}."
        )


def is_shared_out(experiment: Experiment) -> bool:
    """Return whether a rank is more or less than one whole replica that takes its batch in one piece."""
    s = experiment.strategy
    split = (s.tensor, s.pipeline, s.spatial, s.microbatches) != (1, 1, 1, 1)
    return bool(split or s.zero or s.recompute != "none" or s.offload != "none")


def _check_shared_out(experiment: Experiment) -> None:
    """Raise SpecError for what a network that is shared out, or microbatches, cannot train with."""
    strategy, training = experiment.strategy, experiment.training
    if strategy.update != "synchronous":
        raise SpecError(
            f"strategy.update = {strategy.update!r}: with what is made again or offloaded devices train in"
            " step; the legal value is 'synchronous'."
        )
    if strategy.precision == "fp16":
        raise SpecError(
            "strategy.precision = 'fp16': a network that is shared out is trained with 'fp64' or 'fp32'."
        )
    if training.sparsity:
        raise SpecError(
            f"training.sparsity = {training.sparsity}: the gradients of a network that is shared out travel"
            " whole; the legal value is 0."
        )
    kinds = {layer.kind for layer in experiment.model.layers}
    if strategy.microbatches > 1 and training.normalisation == "global" and "batch_norm" in kinds:
        raise SpecError(
            f"strategy.microbatches = {strategy.microbatches}: batch norm sees a microbatch at a time, so"
            " training.normalisation = 'global' cannot be had; set it to 'local', or microbatches to 1."
        )
    if strategy.zero > 1 and strategy.chunks > 1:
        raise SpecError(
            f"strategy.zero = {strategy.zero}: with strategy.chunks = {strategy.chunks} a rank has several"
            " stages, whose shared weights need whole gradients; legal: 0, 1."
        )
    parts = layout.parts(experiment, 0)  # which says why a network cannot be split so
    if strategy.offload == "all" and strategy.zero:
        raise SpecError(
            f"strategy.zero = {strategy.zero}: with strategy.offload = 'all' weights are on disk and move"
            " there, a layer at a time; the legal value is 0."
        )
    if strategy.offload == "all" and any(part.shared for part in parts):
        raise SpecError(
            "strategy.offload = 'all': the embedding is tied to a layer on another stage, and weights on"
            " disk cannot wait for its gradients; legal: 'none', 'activations', or strategy.pipeline = 1."
        )


def _check_asynchronous(experiment: Experiment) -> None:
    """Raise SpecError for what workers and servers that do not wait for each other cannot train."""
    strategy, training = experiment.strategy, experiment.training
    if strategy.optimizer in ("lars", "lamb") and strategy.servers > 1:
        raise SpecError(
            f"strategy.servers = {strategy.servers}: {strategy.optimizer} needs the norm of whole tensors,"
            " and a server has a part of the weights; the legal value is 1."
        )
    if strategy.precision == "fp16":
        raise SpecError(
            "strategy.precision = 'fp16': with asynchronous updates weights travel as well, and need"
            " more digits; legal values: 'fp64', 'fp32'."
        )
    if training.normalisation != "local":
        raise SpecError(
            f"training.normalisation = {training.normalisation!r}: asynchronous workers are not in the"
            " same step; the legal value is 'local'."
        )
