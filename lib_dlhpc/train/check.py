"""What can be trained: a run that cannot be is refused before any rank starts."""

from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.train.compress import check_compression
from lib_dlhpc.train.data import check_data
from lib_dlhpc.train.network import _check as check_layers

PRECISIONS = ("fp64", "fp32", "fp16")


def check(experiment: Experiment) -> None:
    """Raise SpecError, without much work, for what can be priced but not trained."""
    strategy = experiment.strategy
    for name in ("tensor", "pipeline", "spatial"):
        if getattr(strategy, name) != 1:
            raise SpecError(
                f"strategy.{name} = {getattr(strategy, name)}: can be described but not trained yet; only"
                " data parallelism is, so the legal value is 1."
            )
    if strategy.update == "asynchronous":
        raise SpecError(
            "strategy.update = 'asynchronous': can be priced but not trained yet; to train:"
            " synchronous, local."
        )
    if strategy.precision not in PRECISIONS:
        raise SpecError(
            f"strategy.precision = {strategy.precision!r}: numpy has no such numbers; to train:"
            f" {', '.join(PRECISIONS)}."
        )
    check_compression(experiment)
    check_layers(experiment.model)
    check_data(experiment)
