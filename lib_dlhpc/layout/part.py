"""Part: a stage of a network on one rank."""

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias

from lib_dlhpc.records import dataclass
from lib_dlhpc.spec.model import Model

Likeness: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class Part:
    """A stage on one rank.

    model: its local layers. Outputs of the previous stage are in it as layers of kind
    "receive", with the name of the layer that made them; weights of an embedding on another stage
    as a layer of kind "table". sends: the inputs of the next stage, including those forwarded.
    """

    model: Model
    stage: int
    receives: tuple[str, ...] = ()
    sends: tuple[str, ...] = ()
    shared: Mapping[str, tuple[int, ...]] = field(default_factory=dict, hash=False)
    """Stages that hold each layer's weights, this one included, where there are several."""

    def elements(self, names: tuple[str, ...]) -> int:
        """Return the elements of a sample's outputs of these names on this rank."""
        return sum(self.model.output_elements[name] for name in names)

    @cached_property
    def likeness(self) -> Likeness:
        """What the part is, but for the names of its layers; parts that share a table are like none of another stage.

        What like parts hold is the same.
        """
        layers = self.model.layers
        at = {layer.name: number for number, layer in enumerate(layers)}
        # As `Model.blocks`, which the model would keep: caches hold thousands of parts.
        blocks = [layer.name.rpartition(".")[0] for layer in layers]
        return (
            tuple([layer.likeness for layer in layers]),
            tuple(
                [
                    number - at[name] if name in at else name
                    for number, layer in enumerate(layers)
                    for name in layer.inputs
                ]
            ),
            tuple([one != other for one, other in pairwise(blocks)]),
            tuple([at[name] for name in self.sends]),
            self.model.input_shape,
            self.model.in_blocks,
            (self.stage, *self.shared.items()) if self.shared else (),
        )
