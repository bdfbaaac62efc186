"""Lab 14 judged in part: only the kernels that a law is about."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lib_dlhpc.labs.findings import seed_of
from lib_dlhpc.labs.fuse_attention import attention_laws, tile_laws, time_laws

BOTH = (False, True)  # shapes that the learner sees, and hidden ones


def judged(
    given: Mapping[str, Any], name: str, law: str, hidden: Sequence[bool] = BOTH
) -> Sequence[Any]:
    """Return the findings of the part that a law belongs to, on a learner's shapes."""
    seed = seed_of(name)

    def every(of: Callable[[int, bool], list[Any]]) -> list[Any]:
        return [each for which in hidden for each in of(seed, which)]

    if "atmul" in law:
        both = given["matmul"], given["matmul_moved"]
        return tile_laws.matmul_findings(*both, every(tile_laws.matmuls_of))
    if law.startswith("Softmax"):
        return tile_laws.softmax_findings(given["softmax"], every(tile_laws.softmaxes_of))
    if law.startswith(("Seconds", "Longest")):
        both = given["seconds"], given["longest"]
        return time_laws.time_findings(*both, every(time_laws.timed_of))
    both = given["attention"], given["attention_moved"]
    return attention_laws.attention_findings(*both, every(attention_laws.attentions_of))
