"""The outer optimizer of local updates: Nesterov momentum on the difference that an average makes.

Source: Douillard et al. 2023, "DiLoCo"; the momentum is that of PyTorch's SGD with nesterov.
"""

from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.spec.training import Training
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.optimizers import Optimizer


class Outer:
    """d = r - w; v = m v + d; w = r - rate (d + m v); r = w, with mean weights w, reference r and velocity v."""

    def __init__(self, training: Training, network: Network, optimizer: Optimizer) -> None:
        """Its arrays are part of the optimizer's state, and so of a checkpoint."""
        self.rate, self.momentum, self.network = (
            training.outer_rate,
            training.outer_momentum,
            network,
        )
        self.reference = optimizer.memory("reference", network)
        self.reference[...] = network.weights
        self.velocity: Array | None = None
        if self.momentum:
            self.velocity = optimizer.memory("outer velocity", network)

    def update(self) -> None:
        """Update the weights, which are the mean of all ranks."""
        weights, reference, velocity = self.network.weights, self.reference, self.velocity
        kind = weights.dtype.type
        step = reference - weights
        if velocity is not None:
            velocity *= kind(self.momentum)
            velocity += step
            step += kind(self.momentum) * velocity
        step *= kind(self.rate)
        reference -= step
        weights[...] = reference
