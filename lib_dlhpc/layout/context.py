"""Context parallelism: the tokens of a sequence are divided over ranks that hold the same weights.

Each layer works on the rank's own tokens. Only attention reads those of others: it keeps its place in the network, and
its ranks exchange around its work (parallel/context.py). The ranks are neighbors among the replicas, so gradients are
summed and the state is sharded over all of them, as in Megatron: `data` groups hold data x context ranks.

In a ring, and where keys and values are gathered, a rank has the i-th part of the sequence from its front and from
its end: with a causal mask all compute as much (Grattafiori et al. 2024, "The Llama 3 herd of models", section 3.3.2).
"""

from dataclasses import replace
from functools import lru_cache
from math import lcm, prod

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base.merged import GATHERED
from lib_dlhpc.layout.cuts import Ranges
from lib_dlhpc.layout.groups import group, place
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.model import Layer, Model

EACH_TOKEN = ("product", "table", "experts")  # ways to split that leave tokens independent
IN_BLOCKS = ("ring", GATHERED)


def check_context(experiment: Experiment) -> None:
    """Raise SpecError for a network whose sequences cannot be divided so."""
    s, model = experiment.strategy, experiment.model
    ranks, way = int(s.context), s.context_exchange
    if ranks == 1:
        return
    asked = f"strategy.context = {ranks}"
    if len(model.input_shape) != 1:
        raise SpecError(
            f"{asked}: samples of shape {model.input_shape} are not sequences of tokens; the legal value is 1."
        )
    pieces = ranks * (2 if way in IN_BLOCKS else 1)
    if model.input_shape[0] % pieces:
        raise SpecError(
            f"{asked} with strategy.context_exchange = {way!r}: the {model.input_shape[0]} tokens of a sequence must be"
            f" a multiple of {pieces}."
        )
    for layer in model.layers:
        if not _divides(layer):
            raise SpecError(
                f"{asked}: {layer.name} ({layer.kind}) does not treat each token by itself; the legal value is 1."
            )
        options, many = layer.attributes, ranks * int(s.tensor)
        kv = options.get("kv_heads", options.get("heads", 0))
        if way not in IN_BLOCKS and kv % many:
            raise SpecError(
                f"{asked} with strategy.context_exchange = 'heads': strategy.tensor x strategy.context = {many} must"
                f" divide the {kv} heads of keys and values of {layer.name}; or take 'ring' or 'gather'."
            )


def own_tokens(length: int, ranks: int, place: int, way: str) -> Ranges:
    """Return which of `length` tokens one of `ranks` ranks has."""
    if way in IN_BLOCKS:
        part = length // (2 * ranks)
        return tuple((at * part, (at + 1) * part) for at in (place, 2 * ranks - 1 - place))
    part = length // ranks
    return ((place * part, (place + 1) * part),)


@lru_cache(maxsize=64)
def split_context(model: Model, ranks: int, place: int, way: str) -> Model:
    """Return a network of which each layer has the tokens of one rank.

    `tokens` of a layer are those of the rank. `context` of attention: the ranks, the place among them, the way of
    exchange.
    """
    if ranks == 1:
        return model
    length = model.input_shape[0]
    options = {"tokens": own_tokens(length, ranks, place, way), "sequence": length}
    layers = (_own(layer, ranks, options, (ranks, place, way)) for layer in model.layers)
    return replace(model, layers=tuple(layers), input_shape=(length // ranks,))


def ring_blocks(layer: Layer) -> int:
    """Return in how many equal blocks a layer is computed, between which its ranks exchange; 1: it is not."""
    ranks, _, way = layer.attributes.get("context", (1, 0, ""))
    return int(ranks) if way in IN_BLOCKS else 1


def gathers_keys(layer: Layer) -> bool:
    """Return whether the ranks gather the keys and values of a layer, repeated for each head of queries."""
    return bool(layer.attributes.get("context", ("",))[-1] == GATHERED)


def key_elements(layer: Layer) -> float:
    """Return the elements of a sample of the keys and values of a rank's tokens, as its ranks exchange them."""
    _, elements = layer.traits.attended(layer)
    return max(elements, 2.0 * prod(layer.output_shape)) if gathers_keys(layer) else elements


def _own(layer: Layer, ranks: int, options: dict[str, object], context: object) -> Layer:
    attributes = {**layer.attributes, **options}
    # Attention, not the normalization of its heads.
    if layer.traits.tensor == "heads" and layer.traits.product:
        attributes["context"] = context
    if "routed" in attributes:
        attributes["routed"] /= ranks
    before, after = (
        (shape[0] // ranks, *shape[1:]) for shape in (layer.input_shape, layer.output_shape)
    )
    return replace(
        layer,
        input_shape=before,
        output_shape=after,
        forward_flop=layer.forward_flop / ranks,
        stored=layer.stored // ranks,
        mask_bytes=layer.mask_bytes // ranks,
        attributes=attributes,
    )


def _divides(layer: Layer) -> bool:
    """Return whether a layer treats each token by itself, or is attention."""
    kind = layer.traits
    # A capacity of an expert counts all tokens of a sequence.
    if len(layer.output_shape) != 2 or layer.attributes.get("capacity"):
        return False
    return kind.sequence or kind.tensor in (*EACH_TOKEN, "heads")


def context_group(experiment: Experiment, rank: int) -> tuple[int, ...]:
    """Return the ranks that have the same samples as this one, in order of their place."""
    ranks, data = int(experiment.strategy.context), group(experiment, rank, "data")
    first = place(experiment, rank).data // ranks * ranks
    return data[first : first + ranks]


def in_step_replicas(experiment: Experiment) -> int:
    """Return how many neighbors of a data group exchange within a pass: they share tokens, or experts."""
    return lcm(int(experiment.strategy.context), int(experiment.strategy.experts))
