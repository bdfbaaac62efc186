"""What can be trained: other experiments are refused before any rank starts."""

from lib_dlhpc import layout
from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.training.data import check_data
from lib_dlhpc.training.input.sample_files import layout_of
from lib_dlhpc.training.trainable import check_layers

PRECISIONS = ("fp64", "fp32", "fp16")


def check(experiment: Experiment) -> None:
    """Raise SpecError, cheaply, for experiments that can be predicted but not trained."""
    strategy = experiment.strategy
    if strategy.precision not in PRECISIONS:
        raise SpecError(
            f"strategy.precision = {strategy.precision!r}: numpy has no such numbers; to train:"
            f" {', '.join(PRECISIONS)}."
        )
    if strategy.lora:
        raise SpecError(
            f"strategy.lora = {strategy.lora}: adapters are priced, not trained; to train, the legal value is 0."
        )
    if strategy.update == "asynchronous":
        _check_asynchronous(experiment)
    reason = layout.untrained(experiment)
    if reason:
        raise SpecError(reason)
    check_layers(experiment.model)
    check_data(experiment)
    if experiment.storage.tier:
        layout_of(experiment)


def check_ranks(experiment: Experiment, ranks: int) -> None:
    """Raise SpecError unless a model-parallel or sharded run has one rank for each device of the experiment."""
    devices = int(experiment.devices)
    if layout.is_partitioned(experiment) and ranks != devices:
        raise SpecError(
            f"{ranks} ranks: the network is partitioned over the {devices} devices of [strategy]; start"
            f" {devices}."
        )


def _check_asynchronous(experiment: Experiment) -> None:
    """Raise SpecError for what asynchronous workers and parameter servers cannot train."""
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
    if training.normalization != "local":
        raise SpecError(
            f"training.normalization = {training.normalization!r}: asynchronous workers are not in the"
            " same step; the legal value is 'local'."
        )
