"""Tensor parallelism: layers with large weights are sharded by columns or by rows.

A column split (of a convolution: by filters) needs the full input and gives each rank some features; a row split
(by channels) takes these and gives partial sums, which an allreduce reduces. A pair of both needs one allreduce
forward and one backward (Shoeybi et al. 2019, "Megatron-LM", section 3). In between, layers that treat features
independently work on the rank's shard. With sequence parallelism all else is split by position: the allreduce
becomes a reduce-scatter before it and an all-gather after (Korthikanti et al. 2022, section 4.2).

Invariants: the gradient of a replicated output is replicated; that of a sharded one is sharded alike.
"""

from functools import lru_cache
from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.state_space import features_of
from lib_dlhpc.layout.cuts import Range, Ranges, even, even_parts, length, scaled
from lib_dlhpc.layout.graph import WHOLE, Graph, ShardSpec
from lib_dlhpc.layout.repeated_blocks import add_in_blocks
from lib_dlhpc.spec.model import Layer, Model

SEQUENCE = 0  # axis of the positions in a sample of (positions, features)


@lru_cache(maxsize=16)  # stages, recomputation and microbatches leave it as it is
def split_tensors(model: Model, ranks: int, rank: int, split: str, sequence: bool) -> Graph:
    """Return the graph of rank `rank` of `ranks`, by strategy.split and sequence_parallel.

    Raises SpecError if no layer can be split over this number of ranks.
    """
    graph = Graph(model, "tensor", ranks, rank)
    graph.held["input"] = ShardSpec("input", model.input_shape)
    one = _Splitter(graph, split, sequence)
    add_in_blocks(graph, one.add)
    one.end()
    if not any("part" in layer.attributes for layer in graph.layers):
        raise SpecError(
            f"strategy.tensor = {ranks}: {model.name or 'the model'} has no layer that can be split over"
            f" {ranks} ranks; legal: up to the features of its widest dense, convolution or attention layer."
        )
    return graph


def too_few(model: Model, ranks: int) -> str:
    """Return which heads or experts are fewer than tensor ranks, so that each has all of them; "" if none are."""
    for layer in model.layers:
        way = layer.traits.tensor
        if way in ("heads", "experts", "groups") and layer.attributes[way] < ranks:
            many = layer.attributes[way]
            whole = f"{layer.name} has {many} {way}, so each rank holds and computes all of them"
            return f"{whole}; up to {many} ranks divide them"
    return ""


class _Splitter:
    """The rules, layer by layer."""

    def __init__(self, graph: Graph, split: str, sequence: bool) -> None:
        self.graph, self.split, self.sequence = graph, split, sequence
        self.ranks, model = graph.ranks, graph.model
        self.tied = {layer.attributes.get("tied") for layer in model.layers} - {None, ""}

    def add(self, home: int, layer: Layer) -> None:
        """Append the local form of a layer, and the communication before and after it."""
        source = self.graph.held[layer.inputs[0]]
        way, features = layer.traits.tensor, source.axis == _features(source.shape) != WHOLE
        if way == "table" and self._splits_table(layer):
            self._table(home, layer)
        elif way == "product" and layer.attributes.get("groups", 1) == 1:
            self._product(home, layer)
        elif way == "heads" and features:
            self._heads(home, layer, source)
        elif features and self._divides_groups(layer):
            self._groups(home, layer, source)
        elif way == "features" and features and self._features_stay(layer):
            self._by_feature(home, layer, source)
        elif way == "experts" and layer.attributes["experts"] >= self.ranks:
            self._experts(home, layer)
        elif self._by_position(layer):
            self._at_positions(home, layer)
        else:
            inputs = tuple(self.whole(home, name) for name in layer.inputs)
            self.graph.append(home, inputs, ShardSpec("", layer.output_shape))

    def _readers(self, layer: Layer) -> list[Layer]:
        model = self.graph.model
        return [model.layers[number] for number in model.readers.get(layer.name, ())]

    def end(self) -> None:
        """Gather the output of the network; logits stay split, and the loss is computed from their parts.

        Source: Shoeybi et al. 2019, "Megatron-LM", section 3, the fused output layer with the cross-entropy loss.
        """
        last = len(self.graph.model.layers) - 1
        layer = self.graph.model.layers[last]
        held = self.graph.held[layer.name]
        if layer.kind == "dense" and layer.mask_bytes and held.axis == _features(held.shape):
            self.graph.exchange(last, held, held, "loss", "log_softmax", "none", held.axis)
        else:
            self.whole(last, layer.name)

    def whole(self, home: int, name: str) -> ShardSpec:
        """Return a layer's output such that every rank has all of it."""
        held = self.graph.held[name]
        if held.axis == WHOLE:
            return held
        gives = ShardSpec("", held.shape)
        return self.graph.exchange(home, held, gives, "gather", "all_gather", "slice", held.axis)

    # -- products --------------------------------------------------------------------------------

    def _product(self, home: int, layer: Layer) -> None:
        source = self.graph.held[layer.inputs[0]]
        inputs, outputs = source.shape[_features(source.shape)], _outputs(layer)
        split_input = source.axis == _features(source.shape) and source.axis != WHOLE
        rows = split_input if self.split == "paired" else self.split == "row"
        tied = bool(layer.attributes.get("tied"))
        if rows and inputs >= self.ranks and not tied:
            self._row(home, layer, source)
        elif outputs >= self.ranks and self._heads_fit(layer):
            self._column(home, layer)
        else:
            entered = self.whole(home, layer.inputs[0])
            self.graph.append(home, (entered,), ShardSpec("", layer.output_shape))

    def _column(self, home: int, layer: Layer) -> None:
        """Each rank computes some outputs; the gradient of the input is an allreduce."""
        graph, entered = self.graph, self._entered(home, self.graph.held[layer.inputs[0]])
        ranges = self._output_ranges(layer)
        mine, many = length(ranges[graph.rank]), _outputs(layer)
        weight, bias = layer.traits.weight_axes[0], layer.attributes["bias"]
        part = {"bias": (0, ranges)} if bias else {}
        if not layer.attributes.get("tied"):
            part["weight"] = (weight, ranges)
        each = (layer.parameters // many) if many else 0
        gives = ShardSpec("", layer.output_shape, _features(layer.output_shape), ranges)
        changed: dict[str, Any] = {layer.traits.output_option: mine}
        graph.append(home, (entered,), gives, mine / many, part, each * mine, **changed)

    def _entered(self, home: int, source: ShardSpec) -> ShardSpec:
        """Return all of an input of which each rank gives a part of the gradient."""
        if source.axis != WHOLE:
            gives = ShardSpec("", source.shape)
            way = ("collect", "all_gather", "reduce_scatter")
            return self.graph.exchange(home, source, gives, *way, source.axis)
        if source.name == "input":
            return source
        return self.graph.exchange(home, source, source, "copy", "none", "all_reduce", WHOLE)

    def _row(self, home: int, layer: Layer, source: ShardSpec) -> None:
        """Each rank reads some inputs; the output is an allreduce, to which the first rank adds the bias."""
        graph, axis = self.graph, _features(source.shape)
        if source.axis != axis:
            source = self.whole(home, layer.inputs[0])
            ranges = even_parts(source.shape[axis], self.ranks)
            gives = ShardSpec("", source.shape, axis, ranges)
            back = "none" if layer.inputs[0] == "input" else "all_gather"
            source = graph.exchange(home, source, gives, "slice", "slice", back, axis)
        mine, many = length(source.ranges[graph.rank]), source.shape[axis]
        outputs, bias = _outputs(layer), layer.attributes["bias"]
        part: dict[str, tuple[int, tuple[Ranges, ...]]] = {
            "weight": (layer.traits.weight_axes[1], source.ranges)
        }
        if bias:
            part["bias"] = (0, (((0, outputs),), *((),) * (self.ranks - 1)))
        bias = bias and graph.rank == 0
        weights = (layer.parameters - outputs * layer.attributes["bias"]) // many * mine
        partial = graph.append(
            home,
            (source,),
            ShardSpec("", layer.output_shape),
            mine / many,
            part,
            weights + outputs * bias,
            stored=0,
            bias=bias,
        )
        graph.held[layer.name] = self._summed(home, layer, partial)

    def _summed(
        self, home: int, layer: Layer, sums: ShardSpec, stored: int | None = None
    ) -> ShardSpec:
        """Reduce the partial sums of an output: allreduce, or reduce-scatter to the rank's own positions.

        stored: elements of the sum that are stored for backward; those of the layer by default.
        """
        stored = layer.stored if stored is None else stored
        if self.sequence and len(layer.output_shape) == 2:
            gives = self._positions(sums.shape)
            stored = stored // layer.output_shape[0] * length(gives.ranges[self.graph.rank])
            return self.graph.exchange(
                home, sums, gives, "reduce", "reduce_scatter", "all_gather", SEQUENCE, stored
            )
        return self.graph.exchange(home, sums, sums, "reduce", "all_reduce", "none", WHOLE, stored)

    def _output_ranges(self, layer: Layer) -> tuple[Ranges, ...]:
        """Return which outputs each rank has; before attention, whole heads of queries, keys and values."""
        readers = self._readers(layer)
        if layer.attributes.get("tied"):
            return even_parts(_outputs(layer), self.ranks)
        if len(readers) == 1 and self._divides_groups(readers[0]):
            of = readers[0].attributes
            return tuple(features_of(of, *each) for each in even(of["groups"], self.ranks))
        if len(readers) == 1 and readers[0].traits.tensor == "heads":
            options = readers[0].attributes
            if readers[0].traits.several_inputs:
                each_head = _outputs(layer) // options["heads"]
                heads_of, _ = _split_heads(readers[0], self.ranks)
                return tuple(scaled((part,), each_head) for part in heads_of)
            heads, kv_heads = options["heads"], options["kv_heads"]
            size = _outputs(layer) // (heads + 2 * kv_heads)
            return tuple(
                scaled((queries, _moved(keys, heads), _moved(keys, heads + kv_heads)), size)
                for queries, keys in zip(*_split_heads(readers[0], self.ranks), strict=True)
            )
        return even_parts(_outputs(layer), self.ranks)

    def _heads_fit(self, layer: Layer) -> bool:
        """Return whether each rank has a head, where the layer is read by attention."""
        readers = self._readers(layer)
        if any(each.traits.replicated for one in readers for each in (one, *self._readers(one))):
            return False
        if not (reads := [reader for reader in readers if reader.traits.tensor == "heads"]):
            return True
        heads = reads[0].attributes["heads"]
        kv_heads = reads[0].attributes.get("kv_heads", heads)
        if kv_heads < min(heads, self.ranks):
            raise SpecError(
                f"strategy.tensor = {self.ranks}: {reads[0].name} has {kv_heads} heads of keys and values for its"
                f" {heads} heads of queries, and they are not replicated over ranks; legal: 1 to {kv_heads}."
            )
        shared = [reads[0].inputs[number] for number in reads[0].traits.shared_inputs]
        return len(readers) == 1 and bool(heads >= self.ranks) and layer.name not in shared

    # -- all else --------------------------------------------------------------------------------

    def _heads(self, home: int, layer: Layer, source: ShardSpec) -> None:
        """Each rank has some heads; an input that all heads read is whole on each."""
        graph, (heads, kv_heads) = self.graph, _split_heads(layer, self.ranks)
        shared = [layer.inputs[number] for number in layer.traits.shared_inputs]
        others = (
            self._entered(home, graph.held[name]) if name in shared else graph.held[name]
            for name in layer.inputs[1:]
        )
        many, mine = layer.attributes["heads"], length((heads[graph.rank],))
        own: dict[str, Any] = {"heads": mine, "scores": heads[graph.rank]}
        if "kv_heads" in layer.attributes:
            own["kv_heads"] = length((kv_heads[graph.rank],))
        ranges = tuple(scaled((part,), layer.output_shape[-1] // many) for part in heads)
        if layer.output_shape == layer.input_shape:  # queries, keys and values pass
            ranges = source.ranges
        gives = ShardSpec("", layer.output_shape, 1, ranges)
        graph.append(home, (source, *others), gives, mine / many, sums=True, **own)

    def _divides_groups(self, layer: Layer) -> bool:
        """Return whether each rank has groups of a state-space layer's heads, which share what they read."""
        return bool(layer.traits.tensor == "groups" and layer.attributes["groups"] >= self.ranks)

    def _groups(self, home: int, layer: Layer, source: ShardSpec) -> None:
        """Each rank has the heads of some groups."""
        of, groups = layer.attributes, even_parts(layer.attributes["groups"], self.ranks)
        mine = length(groups[self.graph.rank])
        share, width = mine / of["groups"], layer.output_shape[-1] // of["groups"]
        gives = ShardSpec("", layer.output_shape, 1, tuple(scaled(span, width) for span in groups))
        own = {"parameters": round(layer.parameters * share), "heads": round(of["heads"] * share)}
        self.graph.append(home, (source,), gives, share, groups=mine, **own)

    def _experts(self, home: int, layer: Layer) -> None:
        """Each rank serves some experts, for all positions; the sum of their outputs is an allreduce.

        All ranks route alike. The gradient of the scores is that of the rank's own experts, to be summed too.
        """
        graph, count = self.graph, layer.attributes["experts"]
        positions, *scores = layer.inputs
        inputs = (
            self._entered(home, graph.held[positions]),
            *(self._entered(home, self.whole(home, name)) for name in scores),
        )
        ranges = even_parts(count, self.ranks)
        served = ranges[graph.rank][0]
        mine = length((served,))
        partial = graph.append(
            home,
            inputs,
            ShardSpec("", layer.output_shape),
            mine / count,
            dict.fromkeys(layer.traits.expert_parameters, (0, ranges)),
            layer.parameters // count * mine,
            stored=layer.stored * mine // count,
            served=served,
            routed=layer.attributes["routed"] * mine / count,
        )
        graph.held[layer.name] = self._summed(home, layer, partial, stored=0)

    def _by_feature(self, home: int, layer: Layer, source: ShardSpec) -> None:
        """Each output feature depends on one input feature, or each input feature gives several."""
        inputs = tuple(self.graph.held[name] for name in layer.inputs)
        axis = _features(layer.output_shape)
        many = layer.output_shape[axis] // source.shape[source.axis]
        ranges = tuple(scaled(each, many) for each in source.ranges)
        names = layer.traits.feature_parameters
        own = len(names) * length(ranges[self.graph.rank])
        gives = ShardSpec("", layer.output_shape, axis, ranges)
        self.graph.append(
            home, inputs, gives, part=dict.fromkeys(names, (0, ranges)), parameters=own
        )

    def _features_stay(self, layer: Layer) -> bool:
        """Return whether the inputs are split alike, and each feature's elements lie together in the output."""
        first, *others = (self.graph.held[name] for name in layer.inputs)
        together = len(first.shape) >= 3 or len(first.shape) == len(layer.output_shape)
        return together and all(first.same_split(other) for other in others)

    def _splits_table(self, layer: Layer) -> bool:
        options = layer.attributes
        shared = layer.name in self.tied or options.get("tied")
        large = shared or options["vocabulary"] > options["features"]
        return bool(large and options["vocabulary"] >= self.ranks)

    def _table(self, home: int, layer: Layer) -> None:
        """Each rank embeds some words and gives zeros for the others; the reduction has all."""
        rows = even_parts(layer.attributes["vocabulary"], self.ranks)
        mine, own = length(rows[self.graph.rank]), not layer.attributes.get("tied")
        partial = self.graph.append(
            home,
            (self.whole(home, layer.inputs[0]),),
            ShardSpec("", layer.output_shape),
            part={"weight": (0, rows)} if own else {},
            parameters=mine * layer.attributes["features"] * own,
            stored=0,
            vocabulary=mine,
        )
        self.graph.held[layer.name] = self._summed(home, layer, partial)

    def _positions(self, shape: tuple[int, ...]) -> ShardSpec:
        return ShardSpec("", shape, SEQUENCE, even_parts(shape[0], self.ranks))

    def _by_position(self, layer: Layer) -> bool:
        split = any(
            held.axis == SEQUENCE and len(held.shape) == 2
            for held in (self.graph.held[name] for name in layer.inputs)
        )
        return split and layer.traits.sequence

    def _at_positions(self, home: int, layer: Layer) -> None:
        """Sequence parallelism: the rank's own positions."""
        inputs = tuple(self._at_own_positions(home, name) for name in layer.inputs)
        gives = self._positions(layer.output_shape)
        if "positions" not in layer.attributes or "tokens" in layer.attributes:
            self.graph.append(home, inputs, gives, sums=True)
            return
        rows = list(gives.ranges)
        table = layer.attributes["positions"]
        rows[-1] = ((rows[-1][0][0], table),)  # a table may be longer than the sequence
        mine = length(rows[self.graph.rank])
        self.graph.append(
            home,
            inputs,
            gives,
            part={"weight": (0, tuple(rows))},
            parameters=mine * layer.output_shape[-1],
            positions=mine,
        )

    def _at_own_positions(self, home: int, name: str) -> ShardSpec:
        """Return an input at the rank's own positions; a vector of the sample, which all positions read, is whole."""
        held = self.graph.held[name]
        return (
            self._entered(home, held) if len(held.shape) == 1 else self._own_positions(home, name)
        )

    def _own_positions(self, home: int, name: str) -> ShardSpec:
        held = self.graph.held[name]
        if held.axis == SEQUENCE:
            return held
        held = self.whole(home, name)
        gives = self._positions(held.shape)
        return self.graph.exchange(home, held, gives, "slice", "slice", "all_gather", SEQUENCE)


def _features(shape: tuple[int, ...]) -> int:
    """Return the axis of the features: channels come first, features of positions last."""
    return 0 if len(shape) >= 3 else len(shape) - 1


def _outputs(layer: Layer) -> int:
    return layer.output_shape[_features(layer.output_shape)]


def _split_heads(layer: Layer, ranks: int) -> tuple[Ranges, Ranges]:
    """Return the heads of queries of each rank, and of keys and values: whole groups."""
    heads = layer.attributes["heads"]
    kv_heads = layer.attributes.get("kv_heads", heads)
    keys = even(kv_heads, ranks)
    return scaled(keys, heads // kv_heads), keys


def _moved(each: Range, by: int) -> Range:
    return each[0] + by, each[1] + by
