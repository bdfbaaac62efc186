"""Mixture of experts: each position is routed to its top feed-forward networks."""

from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base.copies import copies
from lib_dlhpc.layers.base.kind import Counts, Factor, Kind, Layer, Site
from lib_dlhpc.layers.base.routing import NO_LIMIT, Routing, most, routed, scores_gradient
from lib_dlhpc.layers.base.saved import Array, Rng, Saved, Shapes, Tensors, chunks, parts
from lib_dlhpc.layers.gelu import gelu, gelu_slope

# Streams on which matmuls of experts are issued (NVIDIA, TransformerEngine: num_cublas_streams).
STREAMS = 4


@dataclass
class Load:
    """What training has routed so far, without repeated passes."""

    chosen: Array  # positions that chose each expert, (experts,)
    dropped: int = 0  # choices
    # Positions of this rank's experts, pass by pass.
    received: list[int] = field(default_factory=list)


class AtHome:
    """All experts are on this rank: positions stay."""

    def begin(self, saved: Saved, counts: Array) -> Array:
        """Return the rows that arrive for each expert of this rank; counts: that leave for each of all experts."""
        return counts

    def dispatch(self, saved: Saved, rows: Array) -> Array:
        """Return the rows of this rank's experts; rows: of all experts, in their order."""
        return rows

    def combine(self, saved: Saved, rows: Array) -> Array:
        """Return each row to where it came from."""
        return rows


class Experts(Kind):
    """y = sum of w GELU(x W1 + b1) W2 + b2 over the chosen experts of a position, with weights w by its scores.

    The inputs are positions (batch, positions, features) and their scores (batch, positions, experts); see
    base/routing.py. w travels with the position, so that no expert's output is stored: with t = dy W2^T its gradient is
    t . GELU(x W1 + b1) + dy . b2. A position without any expert left has an output of 0.
    """

    several_inputs = True
    product = splits_backward = own_operands = True
    wide_inputs = (1,)
    tensor = "experts"
    expert_parameters: tuple[str, ...] = ("expand", "expand_bias", "contract", "contract_bias")
    inward: tuple[str, ...] = ("expand",)  # weights of the products that read a row
    outward = "contract"  # of the last, which reads "active"
    function, slope, biased = staticmethod(gelu), staticmethod(gelu_slope), True
    gradients_within = 1  # of `features` elements a row
    dimensions = (2,)

    @staticmethod
    def describe(
        site: Site,
        experts: int,
        chosen: int,
        features: int,
        capacity: Factor = NO_LIMIT,
        groups: int = 1,
        chosen_groups: int = 0,
    ) -> Counts:
        """Return the counts; each position is routed to its top `chosen` networks of hidden size `features`.

        groups: of equally many experts, of which a position has its `chosen_groups` best; 0: all.

        capacity: the positions of a sample that an expert takes, relative to an equal share; more are dropped. 0: no
        limit. The counted load is balanced: all experts have the same number of positions (Fedus et al. 2022, "Switch
        transformers", section 2.2, adds a loss for that).
        """
        pairs = pairs_of(site, experts, chosen, capacity)
        check_groups(site.name, experts, chosen, groups, chosen_groups)
        positions, width = site.shape
        return Counts(
            (positions, width),
            parameters=experts * (2 * width * features + features + width),
            forward_flop=4.0 * pairs * width * features,
            stored=pairs * (2 * features + width),
            attributes={
                "experts": experts,
                "chosen": chosen,
                "features": features,
                "capacity": capacity,
                "groups": groups,
                "chosen_groups": chosen_groups,
                "routed": pairs,
            },
        )

    @staticmethod
    def numpy_traffic(layer: Layer) -> float:
        """Return the elements of copied positions, and of what GELU reads and writes."""
        options = layer.attributes
        return float(options["routed"] * (4 * layer.output_shape[-1] + 4 * options["features"]))

    @staticmethod
    def light_elements(layer: Layer) -> float:
        """Return the outputs of the activation: its kernel in backward reads the inputs, and writes them once more."""
        return float(layer.attributes["routed"] * layer.attributes["features"])

    @classmethod
    def beside(cls, layer: Layer, size: int) -> tuple[float, float]:
        """Return what copies of rows and the activation move, each a kernel that reads and writes memory.

        Positions are copied to rows in the order of their experts, and rows are summed at their positions; backward
        mirrors both. Rows that travel are ordered by expert once more where they arrive, and back before they go home
        (Megatron-LM's all-to-all dispatcher); if each device gets one copy, the exchange itself gathers and sums them
        (DeepEP), and a copy becomes its rows where it arrives. The activation reads and writes its arrays, and in
        backward the gradients, too.
        """
        options, width = layer.attributes, layer.output_shape[-1]
        rows, inner = options["routed"], options["routed"] * options["features"]
        first, stop = options.get("own", (0, 1))
        ends, arrived = 2 * (prod(layer.output_shape) + rows * width), float(rows * width)
        if options.get("gathered"):
            ends, arrived = 0, copies(layer, options["experts"] // (stop - first))
        copied = ends + (2 * (arrived + rows * width) if stop - first > 1 else 0)
        many = cls.gradients_within
        moved = copied + (many + 1) * inner, copied + (2 * many + 1) * inner
        return float(size * moved[0]), float(size * moved[1])

    @classmethod
    def starts(cls, layer: Layer) -> tuple[int, int]:
        """Return the rounds of products, and those with the kernels beside them.

        Each expert has its own two products, and STREAMS of them run at once.
        """
        rounds = 2 * -(-cls._here(layer) // STREAMS)
        return rounds, rounds + cls._beside_products(layer)

    @classmethod
    def issues(cls, layer: Layer) -> tuple[int, int]:
        """Return the kernels that are issued, and the products among them: two of each expert, one after another.

        Casts to fp8 are one of each product, too (NVIDIA, TransformerEngine 2.9: a loop over the experts in both).
        """
        products = 2 * cls._here(layer)
        return products + cls._beside_products(layer), products

    @staticmethod
    def host_waits(layer: Layer) -> bool:
        """Return whether the host waits for the number of rows of each expert: unless a capacity gives it.

        (NVIDIA, Megatron-LM core 0.16: MoEAlltoAllTokenDispatcher, and TEGroupedMLP, which lists them; with
        moe_pad_expert_input_to_capacity they do not.)
        """
        return not layer.attributes["capacity"]

    @staticmethod
    def _here(layer: Layer) -> int:
        """Return the number of experts that a rank computes."""
        options = layer.attributes
        first, stop = options.get("own", options.get("served", (0, options["experts"])))
        return int(stop - first)

    @classmethod
    def _beside_products(cls, layer: Layer) -> int:
        """Return the kernels of the activation and of copies of rows, see `beside`."""
        options = layer.attributes
        ends = 0 if options.get("gathered") else 2
        return 1 + ends + (2 if "own" in options and cls._here(layer) > 1 else 0)

    @classmethod
    def operands(cls, layer: Layer) -> tuple[float, float]:
        """Return of each row its elements and what the last product reads, and the gradients of all products."""
        rows, width = layer.attributes["routed"], layer.output_shape[-1]
        inner = layer.attributes["features"]
        return rows * (width + inner), rows * (width + cls.gradients_within * inner)

    @classmethod
    def working_elements(cls, layer: Layer) -> float:
        """Return the gradients of the output, and of each row: of its output, its input and within its network."""
        options, width = layer.attributes, layer.output_shape[-1]
        row = 2 * width + cls.gradients_within * options["features"]
        within = float(prod(layer.output_shape) + options["routed"] * row)
        return max(within, cls.leaving_elements(layer))

    @classmethod
    def leaving_elements(cls, layer: Layer) -> float:
        """Return the gradients of the output, and of each row that goes home: a row that travels is in memory three
        times, as it leaves, as it arrives, and by expert."""
        options, times = layer.attributes, 3 if "own" in layer.attributes else 1
        return float(prod(layer.output_shape) + options["routed"] * times * layer.output_shape[-1])

    def __init__(self, layer: Layer) -> None:
        options = layer.attributes
        positions, self.width = layer.input_shape
        self.experts, self.chosen = options["experts"], options["chosen"]
        # Those to which this rank sends positions, and those of them that it has.
        self.served = options.get("served", (0, self.experts))
        first, stop = options.get("own", self.served)
        self.limit = most(positions, self.experts, self.chosen, options["capacity"])
        self.groups = options["groups"], options["chosen_groups"]
        self.features = options["features"]
        self.shapes = self.shapes_of(stop - first)
        self.travel: Any = AtHome()
        self.load = Load(np.zeros(self.experts, np.int64))

    def shapes_of(self, experts: int) -> Shapes:
        """Return the shapes of the weights of a number of experts."""
        shapes: Shapes = {
            "expand": (experts, self.width, self.features),
            "expand_bias": (experts, self.features),
            "contract": (experts, self.features, self.width),
            "contract_bias": (experts, self.width),
        }
        return {name: shapes[name] for name in self.expert_parameters}

    def start(self, weights: Tensors, rng: Rng) -> None:
        """Initialize the weights: He et al. 2015, equation 10."""
        for name, inputs in (("expand", self.width), ("contract", self.features)):
            weights[name][...] = rng.normal(0, np.sqrt(2 / inputs), weights[name].shape)
            if self.biased:
                weights[f"{name}_bias"].fill(0)

    def forward(self, weights: Tensors, saved: Saved, x: Array, scores: Array) -> Array:
        """Return y of the shape of x."""
        routing = routed(scores, self.chosen, self.limit, *self.groups)
        order, counts = self._by_expert(routing)
        here = self.travel.begin(saved, counts)
        if saved.context.training and not saved.context.recomputing:
            self._count(routing, here)
        sent = np.empty((len(order), self.width + 1), x.dtype)
        sent[:, :-1] = x.reshape(-1, self.width)[order // self.chosen]
        sent[:, -1] = routing.weights.reshape(-1)[order]
        rows = self.travel.dispatch(saved, sent)
        del sent
        saved.values.update(rows=rows, here=here, order=order, **routing._asdict())
        out = self.networks(weights, saved, rows[:, :-1], here)
        out *= rows[:, -1:]
        return self._sum(saved, self.travel.combine(saved, out), order, x.shape)

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx and the gradient of the scores."""
        back = self._rows_back(weights, saved, dy)
        self.weight_gradient(gradients, saved, None)
        return self._home(saved, back, dy.shape)

    def input_gradient(self, weights: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx and the gradient of the scores; all that travels does so here."""
        found = self._home(saved, self._rows_back(weights, saved, dy), dy.shape)
        products = (f"d {name}" for name in (*self.inward, self.outward))
        for name in saved.values.keys() - {"rows", "active", "here", *products}:
            del saved.values[name]
        return found

    def weight_gradient(self, gradients: Tensors, saved: Saved, dy: Array | None) -> None:
        """Write the gradients of the weights of this rank's experts, of rows that are here; dy is not read."""
        values = saved.values
        reads = dict.fromkeys(self.inward, values["rows"][:, :-1])
        reads[self.outward] = values.pop("active")
        del values["rows"]
        for name, x in reads.items():
            dy = values.pop(f"d {name}")
            for expert, own in slices(values["here"]):
                np.matmul(x[own].T, dy[own], out=gradients[name][expert])
                if f"{name}_bias" in gradients:
                    np.sum(dy[own], axis=0, out=gradients[f"{name}_bias"][expert])

    def _rows_back(self, weights: Tensors, saved: Saved, dy: Array) -> Array:
        """Return the gradients of this rank's rows and of their weights; save those of the networks' products."""
        order = saved.values["order"]
        g = self.travel.dispatch(saved, dy.reshape(-1, self.width)[order // self.chosen])
        return self.networks_back(weights, saved, g)

    def _home(self, saved: Saved, back: Array, shape: tuple[int, ...]) -> Any:
        """Return the gradients of the positions and of their scores; back: of this rank's rows."""
        values = saved.values
        order, routing = values["order"], Routing(*(values[name] for name in Routing._fields))
        back = self.travel.combine(saved, back)
        dweights = np.zeros_like(routing.weights)
        dweights.reshape(-1)[order] = back[:, -1]
        return self._sum(saved, back[:, :-1], order, shape), scores_gradient(routing, dweights)

    def networks(self, weights: Tensors, saved: Saved, x: Array, here: Array) -> Array:
        """Return the outputs of the experts for their rows, `here` of each."""
        hidden, out = np.empty((len(x), self.features), x.dtype), np.empty_like(x)
        for expert, own in slices(here):
            np.matmul(x[own], weights["expand"][expert], out=hidden[own])
            if self.biased:
                hidden[own] += weights["expand_bias"][expert]
        active = np.empty_like(hidden)
        for y, part in chunks(active, hidden):
            y[...] = self.function(part)
        for expert, own in slices(here):
            np.matmul(active[own], weights["contract"][expert], out=out[own])
            if self.biased:
                out[own] += weights["contract_bias"][expert]
        saved.values.update(hidden=hidden, active=active)
        return out

    def networks_back(self, weights: Tensors, saved: Saved, g: Array) -> Array:
        """Return the gradients of the rows and of their weights; g: of their sums' terms.

        In place of what only this reads, the gradients of what each product gives are saved.
        """
        values = saved.values
        rows, here, active = (values[name] for name in ("rows", "here", "active"))
        hidden = values.pop("hidden")
        back, t = np.empty_like(rows), np.empty_like(active)
        for expert, own in slices(here):
            np.matmul(g[own], weights["contract"][expert].T, out=t[own])
            back[own, -1] = np.einsum("ij,ij->i", t[own], active[own])
            if self.biased:
                back[own, -1] += g[own] @ weights["contract_bias"][expert]
        g *= rows[:, -1:]
        t *= rows[:, -1:]
        for part, of in chunks(t, hidden):
            part *= self.slope(of)
        values["d contract"], values["d expand"] = g, t
        for expert, own in slices(here):
            np.matmul(t[own], weights["expand"][expert].T, out=back[own, :-1])
        return back

    def _by_expert(self, routing: Routing) -> tuple[Array, Array]:
        """Return the choices that stay and are served here, expert by expert, and how many each expert has.

        A choice is a number: position times `chosen`, plus its rank among the position's experts.
        """
        first, stop = self.served
        experts = routing.experts.reshape(-1)
        some = routing.stays.reshape(-1) & (first <= experts) & (experts < stop)
        stays = np.flatnonzero(some)
        order = stays[np.argsort(experts[stays], kind="stable")]
        return order, np.bincount(experts[order] - first, minlength=stop - first)

    def _sum(self, saved: Saved, rows: Array, order: Array, shape: tuple[int, ...]) -> Array:
        """Return for each position the sum of its rows."""
        total = saved.array(shape, rows.dtype)
        total.fill(0)
        flat = total.reshape(prod(shape[:-1]), self.width)
        for number in range(self.chosen):  # a position occurs once among its n-th choices
            some = np.flatnonzero(order % self.chosen == number)
            for at in (some[part] for part in parts(rows)):
                flat[order[at] // self.chosen] += rows[at]
        return total

    def _count(self, routing: Routing, here: Array) -> None:
        self.load.chosen += np.bincount(routing.experts.reshape(-1), minlength=self.experts)
        self.load.dropped += int(np.count_nonzero(~routing.stays))
        self.load.received.append(int(here.sum()))


def pairs_of(site: Site, experts: int, chosen: int, capacity: float) -> int:
    """Return how many pairs of position and expert a sample has; raise SpecError for what cannot be routed."""
    positions, width = site.at_least(2)
    if not 1 <= chosen <= experts:
        raise SpecError(f"{site.name}: chosen = {chosen}; legal: 1 to the {experts} experts.")
    scores = (positions, experts)
    if site.shapes[1:] != (scores,):
        raise SpecError(
            f"{site.name}: reads {', '.join(map(str, site.shapes))}; legal: positions and their scores,"
            f" {(positions, width)} and {scores}."
        )
    pairs = chosen * positions
    limit = most(positions, experts, chosen, capacity)
    return min(pairs, experts * limit) if limit else pairs


def check_groups(name: str, experts: int, chosen: int, groups: int, chosen_groups: int) -> None:
    """Raise SpecError for groups of experts that are not equal, or of which too few are chosen."""
    if groups < 1 or experts % groups:
        raise SpecError(f"{name}: groups = {groups}: it must divide the {experts} experts.")
    least = -(-chosen * groups // experts)
    if chosen_groups and not least <= chosen_groups <= groups:
        raise SpecError(
            f"{name}: chosen_groups = {chosen_groups}; legal: {least} to the {groups} groups, or 0: all."
        )


def slices(counts: Array) -> Any:
    """Yield each expert and the slice of its rows."""
    ends = np.cumsum(counts).tolist()
    return enumerate(slice(first, stop) for first, stop in pairwise([0, *ends]))
