"""InFlight: the collectives and moves that a pass has posted and not yet waited for."""

from lib_dlhpc.program.instructions import Collective, Instruction, Transfer, Wait, sums
from lib_dlhpc.schedules.checks import ProofError


class InFlight:
    """Posted and not waited for: keys by stream, and the streams with sums of gradients."""

    def __init__(self) -> None:
        self.keys: dict[str, set[str]] = {}
        self.sums: set[str] = set()

    def follow(self, where: str, instruction: Instruction | None) -> None:
        """Follow an instruction. Raises ProofError for a wait for nothing."""
        if isinstance(instruction, Collective | Transfer) and instruction.stream:
            self.keys.setdefault(instruction.stream, set()).add(instruction.key)
            if sums(instruction):
                self.sums.add(instruction.stream)
        elif isinstance(instruction, Wait) and instruction.key:
            if instruction.key not in self.keys.get(instruction.stream, ()):
                raise ProofError(f"{where}: waits for {instruction.key!r}, which was not posted.")
            self.keys[instruction.stream].remove(instruction.key)
        elif isinstance(instruction, Wait):
            self.keys.pop(instruction.stream, None)
            self.sums.discard(instruction.stream)

    @property
    def streams(self) -> list[str]:
        """The streams with anything in flight."""
        return sorted(stream for stream, keys in self.keys.items() if keys)
