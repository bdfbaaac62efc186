"""An imported network."""

from dataclasses import dataclass

import tomli_w

from lib_dlhpc.spec.model import Model


@dataclass(frozen=True)
class Imported:
    """A network of another tool as a model; notes: what its source says that no count depends on."""

    model: Model
    source: str
    notes: tuple[str, ...] = ()

    def toml(self) -> str:
        """Return the [model] section of an experiment, with source and notes as comments."""
        comments = [
            f"Imported from {self.source}: {self.model.parameters:,} parameters.",
            *self.notes,
        ]
        table = {"model": {"family": self.model.family, **self.model.options}}
        lines = [f"# {line}" for comment in comments for line in comment.splitlines()]
        return "\n".join(lines) + "\n" + tomli_w.dumps(table)
