"""InFlight: the collectives and moves that a pass has posted and not yet waited for."""

from lib_dlhpc.program.instructions import Collective, Instruction, Transfer, Wait, sums
from lib_dlhpc.schedules.checks import ProofError


class InFlight:
    """Posted and not waited for: keys by stream, and the streams with sums of gradients."""

    def __init__(self) -> None:
        self.keys: dict[str, set[str]] = {}
        self.sums: set[str] = set()

    def follow(self, where: str, each: Instruction | None) -> None:
        """Follow an instruction. Raises ProofError for a wait for nothing."""
        if isinstance(each, Collective | Transfer) and each.stream:
            self.keys.setdefault(each.stream, set()).add(each.key)
            if sums(each):
                self.sums.add(each.stream)
        elif isinstance(each, Wait) and each.key:
            if each.key not in self.keys.get(each.stream, ()):
                raise ProofError(f"{where}: waits for {each.key!r}, which was not posted.")
            self.keys[each.stream].remove(each.key)
        elif isinstance(each, Wait):
            self.keys.pop(each.stream, None)
            self.sums.discard(each.stream)

    @property
    def streams(self) -> list[str]:
        """The streams with anything in flight."""
        return sorted(stream for stream, keys in self.keys.items() if keys)
