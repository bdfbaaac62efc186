"""On every rank: layers that communicate, and parts of layers, against the full layer. Started by test_layers.py."""

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
from mpi4py import MPI

from lib_dlhpc.layers import Context, Saved
from lib_dlhpc.layers.base import slices
from lib_dlhpc.spec.model import Layer
from lib_dlhpc.spec.networks import build
from lib_dlhpc.training.messages import built, halo

comm = MPI.COMM_WORLD
p, rank = comm.size, comm.rank
GROUPS = {"tensor": comm, "spatial": comm}
BATCH = 3


def saved_of(**flags):
    return Saved(Context(groups=GROUPS, seed=5), **flags)


def cuts_of(extent, shift=0):
    """Uneven bounds: the first ranks have least; with a shift, the first is empty."""
    bounds = [extent * (r * (r + 1)) // (p * (p + 1)) for r in range(p + 1)]
    return (*(min(max(bound - shift, 0), extent) for bound in bounds[:-1]), extent)


def even(extent):
    """Bounds of parts whose sizes differ by one at most."""
    return tuple(extent * r // p for r in range(p + 1))


def noun(kind, shape, **attributes):
    return Layer("it", kind, ("before",), shape, shape, attributes=attributes)


def numbers(of, shape, dtype=np.float64):
    """The array of rank `of`; every rank can generate all of them. Small integers: sums are exact."""
    return np.random.default_rng([of, *shape]).integers(-9, 9, shape).astype(dtype)


def exchanges():
    """Each collective gives its result, forward and backward, along every axis of every kind of array."""
    ways = ("none", "all_reduce", "all_gather", "slice", "reduce_scatter")
    axes = [((7, 2, 3), axis) for axis in range(3)] + [((7, 4), 0), ((7, 4), 1), ((9,), 0)]
    for (whole, axis), way, shift, dtype in product(axes, ways, (0, 2), (np.float64, np.float32)):
        cuts = cuts_of(whole[axis], shift)
        shapes = [stored(whole)] * p
        if way == "all_gather":
            shapes = [stored(resized(whole, axis, b - a)) for a, b in pairwise(cuts)]
        everyone = [numbers(r, shape, dtype) for r, shape in enumerate(shapes)]
        expected = exchanged(way, everyone, axis if len(whole) >= 3 else axis + 1, cuts)
        options = {"group": "tensor", "axis": axis, "cuts": cuts, "rank": rank}
        for ahead in (True, False):
            both = {"forward": way if ahead else "none", "backward": "none" if ahead else way}
            layer = built(noun("exchange", whole, **both, **options))
            saved, given = saved_of(), everyone[rank].copy()
            y = layer.forward({}, saved, given) if ahead else layer.backward({}, {}, saved, given)
            assert y.dtype == dtype and np.array_equal(y, expected), (way, whole, axis, ahead)
            if ahead:  # others may read it
                assert np.array_equal(given, everyone[rank]), way
    turned = np.asfortranarray(numbers(rank, (4, 6)))  # as flatten gives it
    way = {"group": "tensor", "forward": "all_reduce", "backward": "none"}
    y = built(noun("exchange", (6,), **way)).forward({}, saved_of(), turned)
    assert np.array_equal(y, sum(numbers(r, (4, 6)) for r in range(p)))


def exchanged(way, everyone, axis, cuts):
    """The expected result on this rank."""
    own = (*(slice(None),) * axis, slice(cuts[rank], cuts[rank + 1]))
    if way == "all_gather":
        return np.concatenate(everyone, axis=axis)
    y = sum(everyone) if way in ("all_reduce", "reduce_scatter") else everyone[rank]
    return y[own] if way in ("slice", "reduce_scatter") else y


def stored(shape):
    return (*shape, BATCH) if len(shape) >= 3 else (BATCH, *shape)


def resized(shape, axis, extent):
    return (*shape[:axis], extent, *shape[axis + 1 :])


def windows():
    """(rows, kernel, stride, padding): sizes odd and even, windows that overlap and that leave rows out."""
    for rows in (9, 12, 17):
        for kernel, stride, padding in (
            (3, 1, 1),
            (3, 2, 1),
            (5, 2, 2),
            (2, 3, 0),
            (1, 2, 0),
            (7, 1, 3),
        ):
            yield rows, kernel, stride, padding


def ranges(bounds):
    return tuple(pairwise(bounds))


def halo_of(shape, axis, rows, kernel, stride, padding, fill=0.0):
    """The halo before a window, and which outputs this rank makes."""
    outputs = (rows + 2 * padding - kernel) // stride + 1
    made = ranges(cuts_of(outputs))
    needed = tuple(
        (a * stride - padding, max((b - 1) * stride - padding + kernel, a * stride - padding))
        if b > a
        else (a * stride - padding,) * 2
        for a, b in made
    )
    owned = ranges(cuts_of(rows))
    attributes = {"group": "spatial", "axis": axis, "owned": owned, "needed": needed}
    attributes |= {"fill": fill, "rank": rank}
    own = resized(shape, axis, owned[rank][1] - owned[rank][0])
    wanted = resized(shape, axis, needed[rank][1] - needed[rank][0])
    return Layer("it", "halo", ("before",), own, wanted, attributes=attributes), made[rank]


def halos():
    """A halo gives the rows of the padded whole, and its backward is its transpose."""
    for (rows, kernel, stride, padding), axis in product(windows(), (1, 2)):
        shape = (2, rows, 4) if axis == 1 else (2, 3, rows, 2)
        layer, _ = halo_of(shape, axis, rows, kernel, stride, padding, fill=-np.inf)
        (first, last), (start, stop) = (
            layer.attributes[name][rank] for name in ("needed", "owned")
        )
        whole, own = numbers(99, stored(shape)), (*(slice(None),) * axis, slice(start, stop))
        border = [(0, 0)] * whole.ndim
        border[axis] = (padding + kernel, padding + kernel)
        padded = np.pad(whole, border, constant_values=-np.inf)
        at = (*(slice(None),) * axis, slice(first + padding + kernel, last + padding + kernel))
        it, saved = built(layer), saved_of()
        y = it.forward({}, saved, whole[own])
        assert np.array_equal(y, padded[at]), (rows, kernel, stride, padding, axis)
        dy = numbers(rank, y.shape)
        dx = it.backward({}, {}, saved, dy.copy())
        gradients = np.zeros_like(padded)
        gradients[at] = dy
        comm.Allreduce(MPI.IN_PLACE, gradients)
        home = (*(slice(None),) * axis, slice(start + padding + kernel, stop + padding + kernel))
        assert np.array_equal(dx, gradients[home]), (rows, kernel, stride, padding, axis)


def overlapping():
    """Owned rows are not received, and a row that several ranks own is received once."""
    owned = tuple((max(0, 2 * r - 1), 2 * r + 4) for r in range(p))
    needed = tuple((max(0, 2 * r - 3), 2 * r + 2) for r in range(p))
    options = {"group": "spatial", "axis": 1, "owned": owned, "needed": needed, "fill": 0.0}
    layer = built(noun("halo", (2, 5, 3), **options, rank=rank))
    whole = numbers(99, (2, 2 * p + 4, 3, BATCH))
    (a, b), (c, d) = owned[rank], needed[rank]
    assert np.array_equal(layer.forward({}, saved_of(), whole[:, a:b]), whole[:, c:d])
    assert sum(stop - start for _, (start, stop) in layer.borrowed) == max(a - c, 0)


def whole_run(layer, weights, x, dy):
    """Output, dx and gradients of the full layer on one rank."""
    it, saved = built(layer), Saved(Context(seed=5))
    if hasattr(it, "statistics"):
        it.running = {name: np.ones(shape) for name, shape in it.statistics.items()}
    gradients = {name: np.zeros_like(w) for name, w in weights.items()}
    y = it.forward(weights, saved, x.copy()).copy()
    return y, it.backward(weights, gradients, saved, dy.copy()), gradients


def weights_of(layer):
    it, rng = built(layer), np.random.default_rng(3)
    return {name: rng.normal(size=shape) for name, shape in getattr(it, "shapes", {}).items()}


def close(a, b, what):
    assert a.shape == b.shape, (what, a.shape, b.shape)
    assert np.allclose(a, b, rtol=0, atol=1e-11), (what, np.abs(a - b).max())


def spatial():
    """Halo, then the window without padding along the axis: the rank's rows of the whole layer's output."""
    kinds = ("conv", "max_pool", "avg_pool")
    for (rows, kernel, stride, padding), kind, axis in product(windows(), kinds, (1, 2)):
        if 2 * padding > kernel:
            continue
        space = (rows, 5) if axis == 1 else (4, rows, 3)
        extra = {"channels": 3} if kind == "conv" else {}
        at = {"kernel": [2] * len(space), "stride": [1] * len(space), "padding": [1] * len(space)}
        for name, value in (("kernel", kernel), ("stride", stride), ("padding", padding)):
            at[name][axis - 1] = value
        table = {"input": [2, *space], "layers": [{"kind": kind, **at, **extra}]}
        (layer,) = build("sequential", table).layers
        off = compare_spatial(layer, axis, rows, (kernel, stride, padding))
        assert off <= 1e-11, (layer, off)


def compare_spatial(layer, axis, rows, window):
    """Return how far this rank's outputs and gradients are from the whole's."""
    fill = -np.inf if layer.kind == "max_pool" else 0.0
    border, (first, last) = halo_of(layer.input_shape, axis, rows, *window, fill)
    attributes = dict(layer.attributes)
    attributes["padding"] = tuple(
        0 if place == axis - 1 else each for place, each in enumerate(attributes["padding"])
    )
    local = replace(
        layer,
        input_shape=border.output_shape,
        attributes=attributes,
        output_shape=resized(layer.output_shape, axis, last - first),
    )
    weights = weights_of(layer)
    rng = np.random.default_rng(1)
    x, dy = (rng.normal(size=stored(s)) for s in (layer.input_shape, layer.output_shape))
    y, dx, gradients = whole_run(layer, weights, x, dy)
    start, stop = border.attributes["owned"][rank]
    front = (slice(None),) * axis
    mine, made = (*front, slice(start, stop)), (*front, slice(first, last))
    (borders, it), own = (built(each) for each in (border, local)), saved_of()
    halo_kept, part = saved_of(), {name: np.zeros_like(w) for name, w in weights.items()}
    found = it.forward(weights, own, borders.forward({}, halo_kept, x[mine]))
    back = it.backward(weights, part, own, np.ascontiguousarray(dy[made]))
    pairs = [(found, y[made]), (borders.backward({}, {}, halo_kept, back), dx[mine])]
    for name, each in part.items():
        comm.Allreduce(MPI.IN_PLACE, each)
        pairs.append((each, gradients[name]))
    return max(float(np.max(np.abs(a - b), initial=0)) for a, b in pairs)


def batch_norms():
    """Ranks with parts of the positions normalize with the sums over all of them."""
    (layer,) = build("sequential", {"input": [2, 9, 4], "layers": [{"kind": "batch_norm"}]}).layers
    cuts = cuts_of(9)
    own = (slice(None), slice(cuts[rank], cuts[rank + 1]))
    local = replace(layer, attributes={"sum": ("spatial",)})
    weights, rng = weights_of(layer), np.random.default_rng(1)
    x, dy = rng.normal(size=(2, 9, 4, BATCH)), rng.normal(size=(2, 9, 4, BATCH))
    y, dx, gradients = whole_run(layer, weights, x, dy)
    it, saved = built(local), saved_of()
    it.running = {name: np.ones(2) for name in it.statistics}
    part = {name: np.zeros(2) for name in weights}
    close(it.forward(weights, saved, np.ascontiguousarray(x[own])), y[own], "y")
    close(it.backward(weights, part, saved, np.ascontiguousarray(dy[own])), dx[own], "dx")
    for name, each in part.items():
        comm.Allreduce(MPI.IN_PLACE, each)
        close(each, gradients[name], name)


def split_products():
    """Split by outputs, the parts of y are those of the whole; split by inputs, their sum is the whole."""
    tables = [
        ({"input": [5, 7], "layers": [{"kind": "dense", "features": 9}]}, 1, 0),
        ({"input": [7], "layers": [{"kind": "dense", "features": 9}]}, 1, 0),
        ({"input": [5, 4, 3], "layers": [{"kind": "conv", "channels": 7, "kernel": 3}]}, 0, 1),
    ]
    for table, outputs, inputs in tables:
        (layer,) = build("sequential", table).layers
        for by_outputs in (True, False):
            split_product(layer, outputs if by_outputs else inputs, by_outputs)


def split_product(layer, axis, by_outputs):
    images = len(layer.input_shape) >= 3
    features = 0 if images else -1
    shape = list(layer.output_shape if by_outputs else layer.input_shape)
    cuts = even(shape[features])
    mine = ((cuts[rank], cuts[rank + 1]),)
    shape[features] = cuts[rank + 1] - cuts[rank]
    part = {
        "weight": (axis, mine),
        "bias": (0, mine if by_outputs else ((0, 7),) if rank == 0 else ()),
    }
    if not by_outputs and rank == 0:
        del part["bias"]
    attributes = dict(layer.attributes) | {"whole": layer, "part": part}
    if by_outputs:
        attributes["channels" if images else "features"] = shape[features]
        local = replace(layer, output_shape=tuple(shape), attributes=attributes)
    else:
        local = replace(layer, input_shape=tuple(shape), attributes=attributes)
    it, whole = built(local), built(layer)
    assert ("bias" in it.shapes) == (by_outputs or rank == 0)
    full = {name: np.zeros(shape) for name, shape in whole.shapes.items()}
    own = {name: np.zeros(shape) for name, shape in it.shapes.items()}
    whole.start(full, np.random.default_rng(4))
    slices.start(it, local, own, np.random.default_rng(4))
    for name, each in own.items():
        assert np.array_equal(each, slices.part_of(full[name], part.get(name))), name
        again = full[name].copy()
        slices.put_part(again, part.get(name), each)
        assert np.array_equal(again, full[name])
    rng = np.random.default_rng(1)
    x, dy = (rng.normal(size=stored(s)) for s in (layer.input_shape, layer.output_shape))
    y, dx, gradients = whole_run(layer, full, x, dy)
    at = (slice(*mine[0]),) if images else (..., slice(*mine[0]))
    own_x, own_dy = (x, dy[at]) if by_outputs else (x[at], dy)
    saved, found = saved_of(), {name: np.zeros_like(w) for name, w in own.items()}
    here = it.forward(own, saved, np.ascontiguousarray(own_x))
    back = it.backward(own, found, saved, np.ascontiguousarray(own_dy))
    if by_outputs:
        close(here, y[at], "y")
        close(comm.allreduce(back), dx, "dx")
    else:
        close(comm.allreduce(here), y, "y")
        close(back, dx[at], "dx")
    for name, each in found.items():
        close(each, slices.part_of(gradients[name], part.get(name)), name)


def embeddings():
    """With the vocabulary partitioned, the ranks' rows sum to the full layer's; so do gradients."""
    table = {"input": [6], "layers": [{"kind": "embedding", "vocabulary": 11, "features": 3}]}
    (layer,) = build("sequential", table).layers
    cuts = even(11)
    part = {"weight": (0, ((cuts[rank], cuts[rank + 1]),))}
    attributes = {
        "vocabulary": cuts[rank + 1] - cuts[rank],
        "features": 3,
        "part": part,
        "whole": layer,
    }
    it, saved = built(replace(layer, attributes=attributes)), saved_of()
    full, rng = weights_of(layer), np.random.default_rng(2)
    own = {"weight": slices.part_of(full["weight"], part["weight"])}
    x, dy = rng.integers(0, 11, (BATCH, 6)), rng.normal(size=(BATCH, 6, 3))
    y, _, gradients = whole_run(layer, full, x, dy)
    close(comm.allreduce(it.forward(own, saved, x)), y, "y")
    found = {"weight": np.full_like(own["weight"], np.nan)}
    it.backward(own, found, saved, dy)
    close(found["weight"], slices.part_of(gradients["weight"], part["weight"]), "weight")


def masks():
    """A part drops the same elements as the full layer: dropout along every axis, attention by heads."""
    for shape in ((6, 5), (7,), (4, 6, 3)):
        for axis in range(len(shape)):
            layers = [{"kind": "dropout", "rate": 0.4}]
            (layer,) = build("sequential", {"input": list(shape), "layers": layers}).layers
            x = np.ones(stored(shape))
            y, _, _ = whole_run(layer, {}, x, x)
            cuts, at = even(shape[axis]), axis if len(shape) >= 3 else axis + 1
            mine = ((cuts[rank], cuts[rank + 1]),)
            own = slices.part_of(x, (at, mine)).copy()
            attributes = dict(layer.attributes) | {"elements": (axis, mine), "whole": layer}
            local = replace(layer, attributes=attributes, output_shape=own.shape)
            found = built(local).forward({}, saved_of(), own)
            assert np.array_equal(found, slices.part_of(y, (at, mine))), (shape, axis)
    heads = 2 * p
    table = {"kind": "attention", "heads": heads, "causal": True, "dropout": 0.4}
    (layer,) = build("sequential", {"input": [5, 3 * heads * 2], "layers": [table]}).layers
    rng = np.random.default_rng(7)
    x, dy = rng.normal(size=(BATCH, 5, 6 * heads)), rng.normal(size=(BATCH, 5, 2 * heads))
    y, dx, _ = whole_run(layer, {}, x, dy)
    cuts = even(heads)
    first, last = cuts[rank], cuts[rank + 1]
    thirds = tuple((2 * (k * heads + first), 2 * (k * heads + last)) for k in range(3))
    attributes = dict(layer.attributes) | {
        "heads": last - first,
        "kv_heads": last - first,
        "scores": (first, last),
    }
    local = replace(
        layer,
        input_shape=(5, 6 * (last - first)),
        output_shape=(5, 2 * (last - first)),
        attributes=attributes | {"whole": layer},
    )
    it, saved = built(local), saved_of()
    if first < last:
        close(
            it.forward({}, saved, slices.part_of(x, (2, thirds))), y[..., 2 * first : 2 * last], "y"
        )
        back = it.backward({}, {}, saved, np.ascontiguousarray(dy[..., 2 * first : 2 * last]))
        close(back, slices.part_of(dx, (2, thirds)), "dx")


def mistakes_are_found():
    """A halo that is one row short, gradients that are not sent back, one sum too many: all are noticed."""

    def short(self, weights, saved, x):
        y = forward(self, weights, saved, x)
        if any(r > rank for r, _ in self.borrowed):
            y[(*(slice(None),) * self.axis, -1)] = 0
        return y

    def stay(self, weights, gradients, saved, dy):
        kept_back, self.lent, self.borrowed = (self.lent, self.borrowed), [], []
        dx = backward(self, weights, gradients, saved, dy)
        self.lent, self.borrowed = kept_back
        return dx

    forward, backward = halo.Halo.forward, halo.Halo.backward
    table = {"kind": "conv", "channels": 3, "kernel": 3, "padding": 1}
    (layer,) = build("sequential", {"input": [2, 12, 5], "layers": [table]}).layers
    for name, right, wrong in (("forward", forward, short), ("backward", backward, stay)):
        setattr(halo.Halo, name, wrong)
        off = comm.allreduce(compare_spatial(layer, 1, 12, (3, 1, 1)), MPI.MAX)
        setattr(halo.Halo, name, right)
        assert off > 1e-3, (name, off)


if __name__ == "__main__":
    for check in (
        exchanges,
        halos,
        overlapping,
        spatial,
        batch_norms,
        split_products,
        embeddings,
        masks,
        *([mistakes_are_found] * (p > 1)),
    ):
        begin = MPI.Wtime()
        check()
        if rank == 0:
            print(f"{check.__name__}: {MPI.Wtime() - begin:.1f} s", flush=True)
    sizes = comm.gather(comm.size)
    if rank == 0:
        print(f"all right on {len(sizes)} ranks")
