"""One device's compute in a step: forward, backward, and when gradient buckets are ready, in s."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from lib_dlhpc.costs import compute
from lib_dlhpc.costs.buckets import buckets, ready_times
from lib_dlhpc.costs.network import last_axis
from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment


@dataclass(frozen=True)
class Work:
    """Times of one device in s: forward, backward, and when gradient buckets are ready."""

    forward: Any
    backward: Any
    ready: Any
    sizes: Any


def device_work(experiment: Experiment, scale: Any) -> Work:
    """Return the work of one device; compute takes `scale` times the roofline.

    Layers are priced once for each distinct batch size, as sweeps repeat a few of them.
    """
    strategy, model = experiment.strategy, experiment.model
    batch, inverse = strategy.batch, None
    device = experiment.machine.device
    apart = ("peak", "layers")
    others = (strategy.bucket, *(value for key, value in vars(device).items() if key not in apart))
    if isinstance(batch, np.ndarray) and batch.size > 64 and not any(map(np.ndim, others)):
        batch, inverse = np.unique(batch, return_inverse=True)
    times = compute.layer_times(model, device, batch, strategy.precision)
    cut = buckets(model, strategy.bucket, compute.BYTES[strategy.precision])
    forward, backward = times.forward.sum(axis=-1), times.backward.sum(axis=-1)
    ready = ready_times(times.backward, cut.last_layer)
    if inverse is not None:
        at = inverse.reshape(strategy.batch.shape)
        forward, backward, ready = forward[at], backward[at], ready[at]
    return Work(scale * forward, scale * backward, last_axis(scale) * ready, cut.sizes)


def check_precision(experiment: Experiment) -> None:
    """Raise SpecError if the device does not support the precision."""
    strategy, device = experiment.strategy, experiment.machine.device
    if np.any(np.isnan(compute.peak_rate(device, strategy.precision))):
        raise SpecError(
            f"strategy.precision = {strategy.precision!r}: {device.name or 'the device'} has no such peak;"
            f" legal here: {', '.join(device.peak)}."
        )
