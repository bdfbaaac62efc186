"""The passes of one part under construction."""

from dataclasses import dataclass, field
from functools import cached_property

from lib_dlhpc.layout import Part
from lib_dlhpc.program import Collective, Instruction, Template


@dataclass
class Passes:
    """Instructions of a part for one microbatch; `last` is the pass that completes the gradients."""

    part: Part
    forward: list[Instruction] = field(default_factory=list)
    backward: list[Instruction] = field(default_factory=list)
    last: list[Instruction] = field(default_factory=list)
    hidden: list[Collective] = field(default_factory=list)
    """Collectives of a backward pass that always overlap its matmuls."""
    weights: list[Instruction] | None = None
    """The pass of weight gradients, where backward leaves them out."""
    first: list[Instruction] | None = None
    """The first forward pass of a step, where it differs from the others."""
    before: "Passes | None" = None
    """What these were made from; the templates of passes that stayed the same are shared."""
    chunk: int = 0  # of its rank

    def copy(self, chunk: int) -> "Passes":
        """Return the same passes of a chunk of a rank, to be changed."""
        lists = [*self.forward], [*self.backward], [*self.last], [*self.hidden]
        return Passes(self.part, *lists, before=self, chunk=chunk)

    @cached_property
    def forward_pass(self) -> Template:
        """The forward pass, complete."""
        if self.before is not None and self.forward == self.before.forward:
            return self.before.forward_pass
        return Template(tuple(self.forward))

    @cached_property
    def first_pass(self) -> Template:
        """The first forward pass, complete."""
        return Template(tuple(self.first or ()))

    @cached_property
    def backward_pass(self) -> Template:
        """The backward pass, complete."""
        if self.before is not None and self.backward == self.before.backward:
            return self.before.backward_pass
        return Template(tuple(self.backward))

    @cached_property
    def last_pass(self) -> Template:
        """The pass that completes the gradients, complete."""
        return self.backward_pass if self.last == self.backward else Template(tuple(self.last))

    @cached_property
    def weights_pass(self) -> Template:
        """The pass of weight gradients, complete."""
        return Template(tuple(self.weights or ()))
