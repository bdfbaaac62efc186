"""The learning rate over a run: linear scaling, warm-up and decay."""

from math import cos, pi

from lib_dlhpc.spec.training import Training


def rate_at(training: Training, epoch: float, epochs: float, global_batch: int) -> float:
    """Return the learning rate at `epoch` (a fraction counts) of `epochs`.

    Linear scaling: `rate` belongs to base_batch and grows with the batch; the warm-up rises linearly from the
    unscaled rate (Goyal et al. 2017, sections 2.1 and 2.2). Without a base batch the warm-up starts at 0.
    """
    scale = global_batch / training.base_batch if training.base_batch else 1.0
    peak = training.rate * scale
    if epoch < training.warm_up:
        start = training.rate if training.base_batch else 0.0
        return start + (peak - start) * epoch / training.warm_up
    return peak * falling(training, epoch, epochs)


def falling(training: Training, epoch: float, epochs: float) -> float:
    """Return the decay factor of the peak rate after the warm-up, from 1 to 0.

    step: a tenth every steps_at epochs. cosine: Loshchilov and Hutter 2017. quadratic: polynomial decay of
    power 2 (You et al. 2017). growth: constant; the batch grows instead (Smith et al. 2018).
    """
    passed = (epoch - training.warm_up) / max(epochs - training.warm_up, 1e-12)
    if training.decay == "step":
        return float(0.1 ** (epoch // training.steps_at))
    if training.decay == "cosine":
        return (1 + cos(pi * min(passed, 1.0))) / 2
    if training.decay == "quadratic":
        return max(1 - passed, 0.0) ** 2
    return 1.0


def batch_at(training: Training, epoch: float, global_batch: int, samples: int) -> int:
    """Return the global batch at `epoch`: tenfold every steps_at epochs where it grows, at most all samples."""
    if training.decay != "growth":
        return min(global_batch, samples)
    return int(min(global_batch * 10 ** (epoch // training.steps_at), samples))
