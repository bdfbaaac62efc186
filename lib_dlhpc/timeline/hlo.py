"""XLA's operations: which are collectives, and their bytes in the HLO text of a module.

The text is what --xla_dump_to and compiled.as_text() write, an operation on a line of its own:
%all-reduce.6 = (f32[128,784]{1,0}, f32[128]{0}) all-reduce(...).
"""

import math
import re

_COLLECTIVE = re.compile(
    r"(all-reduce|all-gather|reduce-scatter|(ragged-)?all-to-all|collective-(permute|broadcast))(-start)?(\.|$)"
)
_LINE = re.compile(r"^\s*(?:ROOT )?%?([\w.-]+) = (.*?) ([\w-]+)\(", re.MULTILINE)
_SHAPE = re.compile(r"\b(pred|[a-z]+(\d+)\w*)\[([\d,]*)\]")
# their shapes are of what goes in as well
UNCLEAR = ("all-gather-start", "collective-permute-start")


def is_collective(operation: str) -> bool:
    """Return whether an operation such as all-reduce.6 is a collective; a broadcast of XLA fills an array."""
    return bool(_COLLECTIVE.match(operation))


def collective_sizes(text: str) -> dict[str, int]:
    """Return by the name of each collective the bytes that come out on one device, where the text is clear."""
    return {
        name: sum(_bytes(*shape) for shape in _SHAPE.findall(shapes))
        for name, shapes, operation in _LINE.findall(text)
        if is_collective(operation) and operation not in UNCLEAR
    }


def _bytes(dtype: str, bits: str, dims: str) -> int:
    """Return the bytes of an array; pred has 8 bits, other types have theirs in their name."""
    width = 8 if dtype == "pred" else int(bits)
    return -(-math.prod(int(each) for each in dims.split(",") if each) * width // 8)
