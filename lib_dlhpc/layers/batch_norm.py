"""Batch normalization: each channel over batch and space, with a learned scale and shift."""

from typing import Any

import numpy as np

from lib_dlhpc.layers.base.kind import Counts, Kind, Layer, Site
from lib_dlhpc.layers.base.saved import Array, Rng, Saved, Shapes, Tensors, row_sums, unbuffered

EPSILON = 1e-5
MOMENTUM = 0.1  # weight of a batch in the running statistics


class BatchNorm(Kind):
    """Each channel with mean 0 and variance 1 over batch and space, then scaled and shifted.

    The sums go through context.sum_over_ranks: with an allreduce, statistics are global (Peng et al.
    2018, "MegDet", section 3.3), without it each rank normalizes its own samples. Ranks that hold parts of the
    same samples always sum over their group. Evaluation uses
    running statistics, which are not weights but belong to a checkpoint. Source: Ioffe and Szegedy 2015.
    """

    backward_reads = frozenset({"input"})
    tensor, spatial = "features", "rows"
    feature_parameters = ("scale", "shift")
    dimensions = (1, 3)
    batch_statistics = True

    @staticmethod
    def describe(site: Site) -> Counts:
        """Return the counts."""
        return Counts(site.shape, parameters=2 * site.shape[0])

    def __init__(self, layer: Layer) -> None:
        channels = layer.input_shape[0]
        self.images = len(layer.input_shape) >= 3
        self.groups = layer.attributes.get("sum", ())
        self.shapes: Shapes = {"scale": (channels,), "shift": (channels,)}
        self.statistics: Shapes = {"mean": (channels,), "variance": (channels,)}
        self.running: Tensors = {}  # set by the network

    def start(self, weights: Tensors, rng: Rng) -> None:
        """Scale 1, shift 0."""
        weights["scale"].fill(1)
        weights["shift"].fill(0)
        self.running["mean"].fill(0)
        self.running["variance"].fill(1)

    @unbuffered()
    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y, shaped as x."""
        y = saved.array(x.shape, x.dtype)
        rows, normal = self._rows(x), self._rows(y)
        if saved.context.training:
            count = self._sum(saved, np.array([rows.shape[1]], x.dtype))
            share = MOMENTUM if count > 0 else 0.0  # a rank without samples has no statistics
            count = np.maximum(count, 1)
            mean = self._sum(saved, row_sums(rows)) / count
            np.subtract(rows, mean[:, None], out=normal)
            variance = self._sum(saved, np.vecdot(normal, normal)) / count
            unbiased = variance * count / np.maximum(count - 1, 1)
            seen = () if saved.context.recomputing else (("mean", mean), ("variance", unbiased))
            for name, new in seen:
                self.running[name] += share * (new - self.running[name])
        else:
            mean, variance = self.running["mean"], self.running["variance"]
            count = np.ones(1, x.dtype)
            np.subtract(rows, mean[:, None], out=normal)
        inverse = 1 / np.sqrt(variance + x.dtype.type(EPSILON))
        saved.values.update(x=x, mean=mean, inverse=inverse, count=count)
        normal *= (inverse * weights["scale"])[:, None]
        normal += weights["shift"][:, None]
        return y

    @unbuffered()
    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx; mean and variance depend on x as well."""
        values, rows = saved.values, self._rows(dy)
        inverse = values["inverse"]
        central = self._rows(saved.array(dy.shape, dy.dtype))
        np.subtract(self._rows(values["x"]), values["mean"][:, None], out=central)
        shift, scale = row_sums(rows), np.vecdot(rows, central) * inverse
        gradients["shift"][...], gradients["scale"][...] = shift, scale
        both = self._sum(saved, np.concatenate([shift, scale])) / values["count"]
        shift, scale = np.split(both, 2)
        central *= (inverse * scale)[:, None]
        rows -= central
        rows -= shift[:, None]
        rows *= (weights["scale"] * inverse)[:, None]
        return rows.reshape(dy.shape) if self.images else rows.T

    def _sum(self, saved: Saved, values: Array) -> Array:
        """Return the sum over all ranks that are normalized together."""
        for group in self.groups:
            values = saved.context.sum_over_group(group, values)
        return saved.context.sum_over_ranks(values)

    def _rows(self, x: Array) -> Array:
        """Return x with a row for each channel."""
        return x.reshape(len(x), -1) if self.images else x.T
