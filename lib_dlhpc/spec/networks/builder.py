"""A builder of layer lists: infers shapes and counts parameters, FLOP and stored activations.

One convention defines what is stored for the backward pass. Convolutions, dense layers,
normalizations, sums, pools and concatenations store their output. ReLU, leaky ReLU, tanh, sigmoid
and dropout work in place on their input. GELU and PReLU need both input and output. A dropout
stores a mask of one byte an element.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import Any

from lib_dlhpc.spec.errors import SpecError, suggest
from lib_dlhpc.spec.model import Layer, Model
from lib_dlhpc.spec.networks.windows import slide

Size = int | tuple[int, ...]

MOST_LAYERS = 100_000  # thirty times ResNet-1001: more is a typing error


class Builder:
    """A network under construction.

    Each method appends one layer and returns its name. It reads the last layer, or the one that
    `after` names. Shapes are per sample, channels first. The default name of a layer is its kind,
    numbered within the enclosing block: "stage1.block2.conv3".
    Methods raise SpecError if a layer does not fit its input.
    """

    def __init__(self, *input_shape: int) -> None:
        self.input_shape = input_shape
        self.last = "input"
        self._layers: dict[str, Layer] = {}
        self._scope = ""
        self._numbers: dict[str, int] = {}

    def model(self, name: str, family: str = "", options: Mapping[str, Any] | None = None) -> Model:
        """Return the finished network."""
        layers = tuple(self._layers.values())
        return Model(name, layers, self.input_shape, family or name, dict(options or {}))

    @contextmanager
    def block(self, name: str) -> Iterator[None]:
        """Prefix the names of layers appended inside with `name` and a dot."""
        outer, self._scope = self._scope, f"{self._scope}{name}."
        try:
            yield
        finally:
            self._scope = outer

    def shape(self, after: str = "") -> tuple[int, ...]:
        """Return the output shape of a layer: the last one, or the one that `after` names."""
        source = after or self.last
        if source == "input":
            return self.input_shape
        if source not in self._layers:
            legal = ["input", *self._layers]
            raise SpecError(
                f"layer {source!r} does not exist before its use; legal: {', '.join(legal[-8:])}."
                f"{suggest(source, legal)}"
            )
        return self._layers[source].output_shape

    # -- layers with weights ---------------------------------------------------------------------

    def conv(
        self,
        channels: int,
        kernel: Size,
        stride: Size = 1,
        padding: Size = 0,
        groups: int = 1,
        bias: bool = True,
        name: str = "",
        after: str = "",
    ) -> str:
        """Convolution; its dimension is that of the input without channels."""
        name = self._name("conv", name)
        inputs, *space = self._at_least(2, name, after)
        kernel, stride, padding = self._window(name, space, kernel, stride, padding)
        for count, what in ((inputs, "input channels"), (channels, "channels")):
            if count % groups:
                raise SpecError(f"{name}: groups = {groups} must divide its {count} {what}.")
        weights = channels * (inputs // groups) * prod(kernel)
        output = (channels, *slide(name, space, kernel, stride, padding))
        return self._append(
            "conv",
            name,
            after,
            output,
            parameters=weights + channels * bias,
            forward_flop=2.0 * weights * prod(output[1:]),
            attributes={
                "channels": channels,
                "kernel": kernel,
                "stride": stride,
                "padding": padding,
                "groups": groups,
                "bias": bias,
            },
        )

    def dense(
        self,
        features: int,
        bias: bool = True,
        keep: bool = True,
        fp32: bool = False,
        tied: str = "",
        name: str = "",
        after: str = "",
    ) -> str:
        """Product with a weight matrix, at each position of a sequence or of one vector.

        keep = false: only a dropout or a sum reads the output, so it is not stored for backward.
        fp32 = true: the output is stored in 4 bytes an element, independent of the precision.
        tied: the embedding whose transposed weights this layer shares.
        """
        name = self._name("dense", name)
        shape = self._at_least(1, name, after)
        if len(shape) > 2:
            raise SpecError(f"{name}: a dense layer cannot read shape {shape}; flatten it first.")
        weights, output = shape[-1] * features, (*shape[:-1], features)
        if tied:
            owner = self._layers.get(tied)
            if owner is None or owner.parameters != weights:
                raise SpecError(f"{name}: tied = {tied!r} does not hold {weights} weights.")
        return self._append(
            "dense",
            name,
            after,
            output,
            parameters=(0 if tied else weights) + features * bias,
            forward_flop=2.0 * weights * prod(shape[:-1]),
            stored=prod(output) if keep and not fp32 else 0,
            mask_bytes=4 * prod(output) if fp32 else 0,
            attributes={"features": features, "bias": bias, "tied": tied},
        )

    def embedding(
        self, vocabulary: int, features: int, keep: bool = False, name: str = "", after: str = ""
    ) -> str:
        """Table lookup: a vector of features for each token of the input."""
        name = self._name("embedding", name)
        shape = self._at_least(1, name, after)
        return self._append(
            "embedding",
            name,
            after,
            (*shape, features),
            parameters=vocabulary * features,
            stored=prod(shape) * features * keep,
            attributes={"vocabulary": vocabulary, "features": features},
        )

    def position_embedding(self, positions: int = 0, name: str = "", after: str = "") -> str:
        """Learned vector added at each position; `positions` is the length of the table."""
        name = self._name("position_embedding", name)
        shape = self._at_least(2, name, after)
        rows = positions or shape[0]
        if rows < shape[0]:
            raise SpecError(f"{name}: positions = {rows} is fewer than the sequence's {shape[0]}.")
        return self._append(
            "position_embedding",
            name,
            after,
            shape,
            parameters=rows * shape[-1],
            stored=0,
            attributes={"positions": rows},
        )

    def lstm(self, hidden: int, sequences: bool = True, name: str = "", after: str = "") -> str:
        """Long short-term memory with one bias a gate; stores gates, cell and output of each step.

        sequences = false returns only the last step's output.
        """
        name = self._name("lstm", name)
        shape = self._at_least(2, name, after)
        steps, features = shape
        weights = 4 * hidden * (features + hidden)
        return self._append(
            "lstm",
            name,
            after,
            (steps, hidden) if sequences else (hidden,),
            parameters=weights + 4 * hidden,
            forward_flop=2.0 * steps * weights,
            stored=6 * steps * hidden,
            attributes={"hidden": hidden, "sequences": sequences},
        )

    def batch_norm(self, name: str = "", after: str = "") -> str:
        """Normalization of each channel over batch and space, with scale and shift."""
        shape = self.shape(after)
        return self._append(
            "batch_norm", self._name("batch_norm", name), after, shape, parameters=2 * shape[0]
        )

    def layer_norm(self, name: str = "", after: str = "") -> str:
        """Normalization of each position over its features, with scale and shift."""
        shape = self.shape(after)
        return self._append(
            "layer_norm", self._name("layer_norm", name), after, shape, parameters=2 * shape[-1]
        )

    # -- activations -----------------------------------------------------------------------------

    def relu(self, name: str = "", after: str = "") -> str:
        """max(0, x), in place."""
        return self._append("relu", self._name("relu", name), after, self.shape(after), stored=0)

    def leaky_relu(self, slope: float = 0.2, name: str = "", after: str = "") -> str:
        """x where x > 0, slope * x elsewhere, in place."""
        name = self._name("leaky_relu", name)
        attributes = {"slope": slope}
        return self._append(
            "leaky_relu", name, after, self.shape(after), stored=0, attributes=attributes
        )

    def prelu(self, name: str = "", after: str = "") -> str:
        """Leaky ReLU whose slope is learned for each channel."""
        shape = self.shape(after)
        return self._append("prelu", self._name("prelu", name), after, shape, parameters=shape[0])

    def gelu(self, name: str = "", after: str = "") -> str:
        """x times the normal distribution function at x."""
        return self._append("gelu", self._name("gelu", name), after, self.shape(after))

    def tanh(self, name: str = "", after: str = "") -> str:
        """Hyperbolic tangent, in place."""
        return self._append("tanh", self._name("tanh", name), after, self.shape(after), stored=0)

    def sigmoid(self, name: str = "", after: str = "") -> str:
        """1 / (1 + exp(-x)), in place."""
        name = self._name("sigmoid", name)
        return self._append("sigmoid", name, after, self.shape(after), stored=0)

    def softmax(self, name: str = "", after: str = "") -> str:
        """Exponentials that sum to one over the features."""
        return self._append("softmax", self._name("softmax", name), after, self.shape(after))

    def dropout(
        self, rate: float = 0.5, keep: bool = False, name: str = "", after: str = ""
    ) -> str:
        """Zero a fraction of the elements, in place; keep = true: store the output for backward."""
        name, shape = self._name("dropout", name), self.shape(after)
        return self._append(
            "dropout",
            name,
            after,
            shape,
            stored=prod(shape) * keep,
            mask_bytes=prod(shape) if rate else 0,
            attributes={"rate": rate},
        )

    # -- attention -------------------------------------------------------------------------------

    def attention(
        self,
        heads: int,
        causal: bool = False,
        dropout: float = 0.0,
        name: str = "",
        after: str = "",
    ) -> str:
        """Self-attention over queries, keys and values, concatenated in the input.

        The input is (positions, 3 * features). A causal mask does not halve the
        counted products. Stores the softmax, its dropout mask and copy, and the output
        (Korthikanti et al. 2022, section 4.1).
        """
        name = self._name("attention", name)
        shape = self._at_least(2, name, after)
        positions, features = shape[0], shape[-1] // 3
        if shape[-1] % 3:
            raise SpecError(
                f"{name}: reads queries, keys and values concatenated; {shape[-1]} features are not divisible"
                " by three."
            )
        if features % heads:
            raise SpecError(
                f"{name}: heads = {heads} must divide the {features} features of a query (a transformer's"
                f" hidden = {features})."
            )
        scores = heads * positions**2
        return self._append(
            "attention",
            name,
            after,
            (positions, features),
            forward_flop=4.0 * positions**2 * features,
            stored=scores * (2 if dropout else 1) + positions * features,
            mask_bytes=scores if dropout else 0,
            attributes={"heads": heads, "causal": causal, "dropout": dropout},
        )

    def experts(
        self,
        experts: int,
        chosen: int,
        features: int,
        name: str = "",
        after: tuple[str, str] = ("", ""),
    ) -> str:
        """Mixture of experts: each position is routed to its top `chosen` feed-forward networks.

        after: the positions, and their router scores. features: hidden size of an expert.
        The load is balanced: all experts have the same number of positions (Fedus et al. 2022, "Switch
        transformers", section 2.2, adds a loss for that).
        """
        name = self._name("experts", name)
        positions, width = self.shape(after[0])
        if not 1 <= chosen <= experts:
            raise SpecError(f"{name}: chosen = {chosen}; legal: 1 to the {experts} experts.")
        taken = chosen * positions
        return self._append(
            "experts",
            name,
            after,
            (positions, width),
            parameters=experts * (2 * width * features + features + width),
            forward_flop=4.0 * taken * width * features,
            stored=taken * (2 * features + width),
            attributes={"experts": experts, "chosen": chosen, "features": features},
        )

    # -- pools and shapes ------------------------------------------------------------------------

    def max_pool(
        self,
        kernel: Size,
        stride: Size | None = None,
        padding: Size = 0,
        name: str = "",
        after: str = "",
    ) -> str:
        """Largest element of each window; the default stride is the kernel size."""
        return self._pool("max_pool", kernel, stride, padding, name, after)

    def avg_pool(
        self,
        kernel: Size,
        stride: Size | None = None,
        padding: Size = 0,
        name: str = "",
        after: str = "",
    ) -> str:
        """Mean of each window, zero padding included; stride as for max_pool."""
        return self._pool("avg_pool", kernel, stride, padding, name, after)

    def _pool(
        self, kind: str, kernel: Size, stride: Size | None, padding: Size, name: str, after: str
    ) -> str:
        name = self._name(kind, name)
        channels, *space = self._at_least(2, name, after)
        kernel, stride, padding = self._window(
            name, space, kernel, kernel if stride is None else stride, padding
        )
        output = (channels, *slide(name, space, kernel, stride, padding))
        attributes = {"kernel": kernel, "stride": stride, "padding": padding}
        return self._append(kind, name, after, output, attributes=attributes)

    def global_avg_pool(self, name: str = "", after: str = "") -> str:
        """Mean of each channel over space."""
        name = self._name("global_avg_pool", name)
        return self._append("global_avg_pool", name, after, self._at_least(2, name, after)[:1])

    def flatten(self, name: str = "", after: str = "") -> str:
        """The same elements in one dimension."""
        name = self._name("flatten", name)
        return self._append("flatten", name, after, (prod(self.shape(after)),), stored=0)

    def gather(self, positions: int, name: str = "", after: str = "") -> str:
        """Some positions of a sequence, such as its masked words."""
        name = self._name("gather", name)
        shape = self._at_least(2, name, after)
        if positions > shape[0]:
            raise SpecError(f"{name}: positions = {positions} is more than the {shape[0]} given.")
        attributes = {"positions": positions}
        return self._append("gather", name, after, (positions, *shape[1:]), attributes=attributes)

    def upsample(self, factor: int, name: str = "", after: str = "") -> str:
        """Repeat each element `factor` times along each dimension of space."""
        name = self._name("upsample", name)
        channels, *space = self._at_least(2, name, after)
        output = (channels, *(factor * extent for extent in space))
        return self._append("upsample", name, after, output, attributes={"factor": factor})

    def pixel_shuffle(self, factor: int, name: str = "", after: str = "") -> str:
        """Rearrange channels into `factor` times higher resolution (Shi et al. 2016)."""
        name = self._name("pixel_shuffle", name)
        channels, *space = self._at_least(2, name, after)
        if channels % factor ** len(space):
            raise SpecError(
                f"{name}: factor = {factor} needs channels divisible by {factor ** len(space)}, "
                f"not {channels}."
            )
        output = (channels // factor ** len(space), *(factor * extent for extent in space))
        return self._append(
            "pixel_shuffle", name, after, output, stored=0, attributes={"factor": factor}
        )

    def add(self, inputs: tuple[str, ...], name: str = "") -> str:
        """Sum of layers of equal shape."""
        name = self._name("add", name)
        shapes = [self.shape(source) for source in inputs]
        if len(set(shapes)) > 1:
            raise SpecError(f"{name}: cannot add shapes {', '.join(map(str, shapes))}.")
        return self._append("add", name, inputs, shapes[0])

    def concat(self, inputs: tuple[str, ...], name: str = "") -> str:
        """Concatenation along channels, copied into one array."""
        name = self._name("concat", name)
        shapes = [self.shape(source) for source in inputs]
        if len({shape[1:] for shape in shapes}) > 1:
            raise SpecError(f"{name}: cannot concatenate shapes {', '.join(map(str, shapes))}.")
        output = (sum(shape[0] for shape in shapes), *shapes[0][1:])
        return self._append("concat", name, inputs, output)

    # -- helpers ---------------------------------------------------------------------------------

    def _append(
        self,
        kind: str,
        name: str,
        after: str | tuple[str, ...],
        output: tuple[int, ...],
        *,
        parameters: int = 0,
        forward_flop: float = 0.0,
        stored: int | None = None,
        mask_bytes: int = 0,
        attributes: Mapping[str, Any] | None = None,
    ) -> str:
        if len(self._layers) == MOST_LAYERS:
            raise SpecError(f"{name}: a network has at most {MOST_LAYERS:,} layers.")
        inputs = after if isinstance(after, tuple) else (after or self.last,)
        self._layers[name] = Layer(
            name,
            kind,
            inputs,
            self.shape(inputs[0]),
            output,
            parameters,
            forward_flop,
            prod(output) if stored is None else stored,
            mask_bytes,
            attributes or {},
        )
        self.last = name
        return name

    def _name(self, kind: str, name: str) -> str:
        if not name:
            number = self._numbers[self._scope + kind] = (
                self._numbers.get(self._scope + kind, 0) + 1
            )
            name = f"{kind}{number}"
        name = self._scope + name
        if name in self._layers or name == "input":
            raise SpecError(f"two layers are called {name!r}; give each its own name.")
        return name

    def _at_least(self, rank: int, name: str, after: str) -> tuple[int, ...]:
        shape = self.shape(after)
        if len(shape) < rank:
            raise SpecError(f"{name}: needs an input with {rank} or more dimensions, not {shape}.")
        return shape

    def _window(
        self, name: str, space: list[int], *sizes: Size
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Return kernel, stride and padding with one entry for each dimension of space."""
        full = [(size,) * len(space) if isinstance(size, int) else tuple(size) for size in sizes]
        for size in full:
            if len(size) != len(space):
                raise SpecError(
                    f"{name}: {list(size)} must have {len(space)} entries, one a dimension."
                )
        return full[0], full[1], full[2]
