"""Chakra traces for tests: published ones, crafted ones, and what a reader of the format alone sees of ours."""

import io
from pathlib import Path

from lib_dlhpc.timeline.chakra import write_trace
from lib_dlhpc.timeline.chakra.schema import schema

SAMPLES = Path(__file__).resolve().parents[1] / "data" / "chakra"


def written(folder, *ranks, groups=None):
    write_trace(folder, enumerate(ranks), groups or {})
    return folder


def strip_ours(folder):
    """Remove from all files of a folder what only lib_dlhpc writes."""
    messages = schema()
    for path in folder.glob("*.et"):
        file, out = io.BytesIO(path.read_bytes()), io.BytesIO()
        messages.write(messages.parse(messages.metadata, file), out)
        while (node := messages.parse(messages.node, file)) is not None:
            kept = [each for each in node.attr if not each.name.startswith("dlhpc.")]
            del node.attr[:]
            node.attr.extend(kept)
            messages.write(node, out)
        path.write_bytes(out.getvalue())
