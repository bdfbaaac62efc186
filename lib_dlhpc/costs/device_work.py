"""One device's compute in a step: forward, backward, and when gradient buckets are ready, in s."""

from functools import lru_cache
from typing import Any

import numpy as np

from lib_dlhpc.costs import roofline
from lib_dlhpc.costs.buckets import buckets, ready_times
from lib_dlhpc.costs.low_precision import casts_each_pass
from lib_dlhpc.costs.network import last_axis
from lib_dlhpc.costs.power_limit import clocked
from lib_dlhpc.errors import SpecError
from lib_dlhpc.keyed import Keyed
from lib_dlhpc.program import BoundShares
from lib_dlhpc.records import dataclass
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import read_device
from lib_dlhpc.spec.strategy import FORMATS, TRAINING_PRECISIONS


@dataclass(frozen=True)
class DeviceWork:
    """Times of one device in s: forward, backward, and when gradient buckets are ready."""

    forward: Any
    backward: Any
    ready: Any
    sizes: Any
    mixes: tuple[BoundShares, BoundShares]  # what limits forward, and backward


def device_work(experiment: Experiment, scale: Any) -> DeviceWork:
    """Return the work of one device; compute takes `scale` times the roofline.

    Layers are priced once for each distinct batch size, as sweeps repeat a few of them.
    """
    s = experiment.strategy
    if np.ndim(s.batch) or np.ndim(s.bucket) or np.ndim(s.power_limit):
        work = _unscaled(experiment)
    else:
        settings = (
            s.precision,
            float(s.batch),
            float(s.bucket),
            float(s.power_limit),
            casts_each_pass(s),
        )
        ids = map(id, (experiment.model, experiment.machine))
        work = _known(Keyed(experiment, *ids, *settings))
    times = (scale * work.forward, scale * work.backward, last_axis(scale) * work.ready)
    return DeviceWork(*times, work.sizes, work.mixes)


@lru_cache(maxsize=256)
def _known(key: Keyed[Experiment]) -> DeviceWork:
    return _unscaled(key.value)


def _unscaled(experiment: Experiment) -> DeviceWork:
    """Return the work of one device by roofline."""
    strategy, model = experiment.strategy, experiment.model
    batch, inverse = strategy.batch, None
    device = clocked(experiment.machine.device, strategy.power_limit)
    tables = ("peak", "layers")
    others = (strategy.bucket, *(value for key, value in vars(device).items() if key not in tables))
    if isinstance(batch, np.ndarray) and batch.size > 64 and not any(map(np.ndim, others)):
        batch, inverse = np.unique(batch, return_inverse=True)
    casts = casts_each_pass(strategy)
    activities = roofline.layer_activities(
        model, device, batch, strategy.precision, each_pass=casts
    )
    times = roofline.total(activities)
    cut = buckets(model, strategy.bucket, roofline.BYTES[strategy.precision])
    forward, backward = times.forward.sum(axis=-1), times.backward.sum(axis=-1)
    ready = ready_times(times.backward, cut.last_layer)
    mixes = _mix(activities, 0, forward), _mix(activities, 1, backward)
    if inverse is not None:
        places = inverse.reshape(strategy.batch.shape)
        forward, backward, ready = forward[places], backward[places], ready[places]
        ahead, back = (BoundShares(*(fraction[places] for fraction in mix)) for mix in mixes)
        mixes = ahead, back
    return DeviceWork(forward, backward, ready, cut.sizes, mixes)


def _mix(activities: roofline.Activities, direction: int, seconds: Any) -> BoundShares:
    """Return what limits the layers of a pass that takes `seconds`; direction: 0 forward, 1 backward."""
    limited = (np.sum(activities[limit][direction], axis=-1) for limit in range(2))
    return BoundShares(*(sum_ / np.where(seconds > 0, seconds, 1.0) for sum_ in limited))


def check_precision(experiment: Experiment) -> None:
    """Raise SpecError if the device does not support the precision."""
    strategy, device = experiment.strategy, experiment.machine.device
    if np.any(np.isnan(roofline.peak_rate(device, strategy.precision))):
        legal = [precision for precision in device.peak if precision in TRAINING_PRECISIONS]
        raise SpecError(
            f"strategy.precision = {strategy.precision!r}: {device.name or 'the device'} has no such peak;"
            f" legal here: {', '.join(legal)}. Devices that have it: {', '.join(_with(strategy.precision))}."
        )


def _with(precision: str) -> list[str]:
    """Return the devices of the catalog that state a peak in a precision."""
    form = FORMATS.get(precision, precision)
    return [name for name in catalog.names("devices") if form in read_device(name).peak]
