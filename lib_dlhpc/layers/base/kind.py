"""A layer as data, what its kind declares, and the kinds by name: one file of layers/ each."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, fields
from functools import cached_property
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, NewType

from lib_dlhpc.errors import SpecError
from lib_dlhpc.records import dataclass, remembered

Shape = tuple[int, ...]
Factor = NewType("Factor", float)  # an option that is 0 or more; a float is a fraction below 1
FOLDER = Path(__file__).parent.parent


@dataclass(frozen=True)
class Layer:
    """One layer of a network; counts are per sample.

    `inputs` names the layers whose outputs it reads; "input" is the sample itself. Shapes exclude
    the batch dimension: (channels, height, width) for images, (positions, features) for sequences.
    `forward_flop` counts matrix arithmetic only (convolution, dense, attention, LSTM), a multiply-add
    as 2 FLOP; element-wise layers count 0 FLOP and are priced by the bytes they move.
    `stored` elements are stored for the backward pass in the precision of the computation;
    `mask_bytes` do not depend on it: dropout masks (1 byte an element) and the logits of a
    language model (4 bytes an element). frozen: its weights are not trained. narrow: the format in which its
    products read operands (spec/low_precision.py), of an exchange that of the product beside it; "": that of the
    computation.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    input_shape: Shape
    output_shape: Shape
    parameters: int = 0
    forward_flop: float = 0.0
    stored: int = 0
    mask_bytes: int = 0
    attributes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    frozen: bool = False
    narrow: str = ""

    @property
    def gradients(self) -> int:
        """Gradients of backward, each the work of a forward pass: of the inputs, and of weights that are trained."""
        if self.frozen and self.traits.lookup:
            return 0
        return 1 if self.frozen and self.traits.splits_backward else 2

    @property
    def has_experts(self) -> bool:
        """Whether it is a mixture of experts, which replicas may share."""
        return self.traits.tensor == "experts"

    @property
    def trained(self) -> int:
        """Parameters that are trained."""
        return 0 if self.frozen else self.parameters

    @property
    def backward_flop(self) -> float:
        """FLOP of the backward pass."""
        return self.gradients * self.forward_flop

    @remembered
    def traits(self) -> "type[Kind]":
        """What its kind declares."""
        return KINDS[self.kind]

    @remembered
    def likeness(self) -> int:
        """A number shared by layers that differ only in the digits of their names and in what they read."""
        counts = (self.parameters, self.forward_flop, self.stored, self.mask_bytes, self.frozen)
        name, shapes = _DIGITS.sub("", self.name), (self.input_shape, self.output_shape)
        key = (name, self.kind, *shapes, *counts, self.narrow, _frozen(self.attributes))
        return _LIKENESSES.setdefault(key, len(_LIKENESSES))

    def __getstate__(self) -> dict[str, Any]:
        """Return its fields alone, for copies and pickles: in other processes likenesses are other numbers."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def elsewhere(self, name: str, inputs: tuple[str, ...], **attributes: Any) -> "Layer":
        """Return a layer like this one in another place; name: with the same letters; attributes: like its own."""
        made = Layer(  # dataclasses.replace would take longer than all the rest
            name,
            self.kind,
            inputs,
            self.input_shape,
            self.output_shape,
            self.parameters,
            self.forward_flop,
            self.stored,
            self.mask_bytes,
            {**self.attributes, **attributes} if attributes else self.attributes,
            self.frozen,
            self.narrow,
        )
        object.__setattr__(made, "likeness", self.likeness)
        return made


_LIKENESSES: dict[tuple[Any, ...], int] = {}
# Names that the first instances have are stored once for all (PEP 412); names that come later triple a layer's memory.
_FIRST = Layer("", "", (), (), ())
for _name in ("traits", "likeness"):
    object.__setattr__(_FIRST, _name, None)
_DIGITS = re.compile(r"\d+")
# Not unions, which would be made anew for each of many attributes.
_PLAIN, _SEQUENCES = (str, int, float), (list, tuple)


def _frozen(value: Any) -> Any:
    """Return an attribute as something hashable; layers by their likeness."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, _SEQUENCES):
        return tuple(map(_frozen, value))
    if isinstance(value, Layer):
        return value.likeness
    if isinstance(value, (dict, Mapping)):  # the first is quicker to see
        return tuple(
            [
                (key, each if isinstance(each, _PLAIN) else _frozen(each))
                for key, each in value.items()
            ]
        )
    return value


class Site(NamedTuple):
    """Where a layer is appended: its name, the shapes that it reads, and the layers before it."""

    name: str
    shapes: tuple[Shape, ...]
    layers: Mapping[str, Layer]

    @property
    def shape(self) -> Shape:
        """The shape of the first input."""
        return self.shapes[0]

    def at_least(self, dimensions: int) -> Shape:
        """Return the shape of the first input; raise SpecError if it has fewer dimensions."""
        if len(self.shape) < dimensions:
            raise SpecError(
                f"{self.name}: needs an input with {dimensions} or more dimensions, not {self.shape}."
            )
        return self.shape

    def check_tied(self, tied: str, weights: int) -> None:
        """Raise SpecError if `tied` is not "" and names no layer before this one with that many weights."""
        if tied and (tied not in self.layers or self.layers[tied].parameters != weights):
            raise SpecError(f"{self.name}: tied = {tied!r} does not hold {weights} weights.")


class Counts(NamedTuple):
    """Counts of a layer per sample. stored: elements stored for backward; None: those of the output."""

    output: Shape
    parameters: int = 0
    forward_flop: float = 0.0
    stored: int | None = None
    mask_bytes: int = 0
    attributes: Mapping[str, Any] = {}


class Kind:
    """A kind of layer: its counts, how it may be split, and its passes in numpy.

    A subclass stands in a file of layers/ with the name of the kind, and states what differs from these defaults.

        describe(site, *options) -> Counts             shape, parameters, FLOP, stored elements
        shapes                                         shapes of its weights, by name
        start(weights, rng)                            initialize the weights
        forward(weights, saved, x) -> y                and save what backward needs
        backward(weights, gradients, saved, dy) -> dx  write the gradients; the layer may overwrite dy
        input_gradient(weights, saved, dy) -> dx       where backward splits; neither may overwrite dy
        weight_gradient(gradients, saved, dy)          dy is None where the layer has `own_operands`

    A kind without `forward` can be predicted but not trained. Images and volumes have channels first and samples
    last, all other arrays samples first (base/saved.py).
    """

    # Stored activations: what backward reads. A layer that works in place has one array for both.
    backward_reads = frozenset({"input", "output"})
    elementwise = False  # the gradient of the input overwrites that of the output
    # Cost: what it moves.
    view = False  # nothing: the same elements in another shape
    message = False  # a message between ranks, priced by its group
    stand_in = False  # for a layer of another stage
    lookup = False  # only the rows of its output, not all parameters
    product = False  # limited by the rate of matrix products
    # Inputs that are computed in 16 bits where other products have a narrow format.
    wide_inputs: tuple[int, ...] = ()
    kernels = 1  # that a framework issues for its forward pass
    # Backward has two parts, `input_gradient` and `weight_gradient`, which may be computed apart: their products cost
    # the same, and the kernels beside them (`beside`) are in the first. What the second reads is the layer's input and
    # dy, or the layer's own: as many elements as `operands`, in place of what forward stored.
    splits_backward = own_operands = False
    # Selective recomputation recomputes it.
    selective = False
    # Light recomputation recomputes it, from an input that backward reads too; and products that expand these inputs.
    light = False
    expanded_inputs: tuple[int, ...] = ()
    # Tensor parallelism: "product" by columns or rows of the weights, "heads", "groups" of heads, "table" by rows of
    # a table, "features" where features are independent, "experts" one by one. Sequence parallelism: whether positions
    # are independent. Spatial parallelism: "rows" where rows are independent, "windows" where an output reads a window
    # of rows.
    tensor = ""
    sequence = False
    spatial = ""
    output_option = "features"  # of a product: names its outputs
    weight_axes = (1, 0)  # of a product: the axes of outputs and inputs
    feature_parameters: tuple[str, ...] = ()  # of "features": one number a feature each
    replicated = False  # each rank computes all of it, and of the products that it reads
    shared_inputs: tuple[int, ...] = ()  # of "heads": inputs that all heads read
    expert_parameters: tuple[str, ...] = ()  # of "experts": stacked, one entry an expert each
    padding_value = 0.0  # of "windows"
    # Training: dimensions of a sample; none given, any. 3 stands for 3 or more.
    dimensions: tuple[int, ...] = ()
    several_inputs = False
    batch_statistics = False  # depends on all samples of a batch

    describe: ClassVar[Callable[..., Counts]]

    def __init__(self, layer: Layer) -> None:
        pass

    def __init_subclass__(cls) -> None:
        if not cls.__module__.startswith("lib_dlhpc.layers.base."):
            KINDS.add(cls.__module__.rpartition(".")[2], cls)

    @staticmethod
    def extra_traffic(layer: Layer, size: int) -> float:
        """Return the elements of `size` B that an accelerator's kernels move beside input, output and stored ones."""
        return 0.0

    @staticmethod
    def attended(layer: Layer) -> tuple[float, float]:
        """Return the elements of a sample that attention reads: queries, and keys and values."""
        queries = float(prod(layer.output_shape))
        return queries, prod(layer.input_shape) - queries

    @classmethod
    def beside(cls, layer: Layer, size: int) -> tuple[float, float]:
        """Return the bytes of a sample that kernels beside its products move, in forward and in backward.

        size: B of an element in the run's precision.
        """
        return 0.0, 0.0

    @classmethod
    def starts(cls, layer: Layer) -> tuple[int, int]:
        """Return how often in a forward pass a product starts on an idle accelerator, and any kernel."""
        return 1, 1

    @classmethod
    def issues(cls, layer: Layer) -> tuple[int, int]:
        """Return the kernels that a framework issues for a forward pass, and the products with weights among them."""
        return cls.kernels, 1

    @classmethod
    def accumulates(cls, layer: Layer) -> int:
        """Return the kernels that a framework issues in backward to add up gradients of experts' biases."""
        return 0

    @staticmethod
    def host_waits(layer: Layer) -> bool:
        """Return whether a framework's host waits for what the layers before a forward pass have computed."""
        return False

    @classmethod
    def operands(cls, layer: Layer) -> tuple[float, float]:
        """Return the elements of a sample that products with weights read: activations forward, gradients backward.

        0: it has no such product.
        """
        return 0.0, 0.0

    @staticmethod
    def numpy_flop(layer: Layer) -> float:
        """Return the FLOP of a sample that the numpy passes compute forward."""
        return layer.forward_flop

    @staticmethod
    def numpy_traffic(layer: Layer) -> float:
        """Return the elements that the numpy passes move beside input and output."""
        return 0.0

    @classmethod
    def working_elements(cls, layer: Layer) -> float:
        """Return the elements that backward holds at once beside the stored ones; 0: as many as it reads and writes."""
        return 0.0

    @classmethod
    def leaving_elements(cls, layer: Layer) -> float:
        """Return the elements of a sample that input gradients hold at their end beside its own operands."""
        return 0.0

    @staticmethod
    def light_elements(layer: Layer) -> float:
        """Return the stored elements that light recomputation makes again within the layer's own backward pass."""
        return 0.0

    @staticmethod
    def repeated_flop(layer: Layer) -> float:
        """Return the FLOP of its forward pass that the kernel of its backward pass repeats; below 0: that it skips."""
        return 0.0

    @staticmethod
    def computed_part(layer: Layer) -> float:
        """Return which part of its FLOP fused attention computes; 0: it is another layer."""
        return 0.0

    @staticmethod
    def rate_key(layer: Layer) -> str:
        """Return the name of its measured rate: the kind, unless an option changes the cost."""
        return layer.kind


class _Kinds(Mapping[str, type[Kind]]):
    """The kinds by name; a file is imported when its kind is first asked for."""

    def __init__(self) -> None:
        self.loaded: dict[str, type[Kind]] = {}

    def add(self, name: str, kind: type[Kind]) -> None:
        self.loaded[name] = kind

    @cached_property
    def _files(self) -> tuple[str, ...]:
        files = (name for name in os.listdir(FOLDER) if name.endswith(".py"))
        return tuple(sorted(name.removesuffix(".py") for name in files if name[0].isalpha()))

    def __getitem__(self, name: str) -> type[Kind]:
        if name not in self.loaded:
            if name not in self._files:
                raise KeyError(name)
            import_module(f"lib_dlhpc.layers.{name}")
        return self.loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self.loaded or name in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._files, *self.loaded}))

    def __len__(self) -> int:
        return len({*self._files, *self.loaded})


KINDS = _Kinds()
