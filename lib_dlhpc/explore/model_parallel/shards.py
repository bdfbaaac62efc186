"""Two products as five matrices, X A = Y and Y B = Z: who has what of each, and the messages in between."""

from collections.abc import Iterator
from typing import Any

from lib_dlhpc.explore.blocks.charts import State, columns
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show

SPLITS = {"paired": "column, then row", "column": "columns twice", "row": "rows twice"}
ROWS, COLUMNS = 0, 1
# Along what X, A, Y, B and Z are sharded; None: every GPU has all of it.
SHARDS = {
    "paired": (None, COLUMNS, COLUMNS, ROWS, None),
    "column": (None, COLUMNS, None, COLUMNS, None),
    "row": (COLUMNS, ROWS, COLUMNS, ROWS, None),
}
# The messages of a step: behind which matrix, in which pass, what.
MESSAGES = {
    "paired": (("X", "backward", "sum"), ("B", "forward", "sum")),
    "column": (
        ("X", "backward", "sum"),
        ("Y", "forward", "gather"),
        ("Y", "backward", "sum and slice"),
        ("Y", "backward once more", "gather"),  # for the gradients of B
        ("B", "forward", "gather"),
        ("B", "backward", "slice"),
    ),
    "row": (
        ("X", "forward", "slice"),
        ("X", "backward", "gather"),
        ("A", "forward", "sum"),
        ("Y", "forward", "slice"),
        ("Y", "backward", "gather"),
        ("B", "forward", "sum"),
    ),
}
HELD = {None: "all of it on every GPU", ROWS: "by rows", COLUMNS: "by columns"}
PASSES = {"forward": "→", "backward": "←", "backward once more": "←"}
BYTES = 2  # of an element in bf16
WIDTH = 0.72  # of a drawn matrix, where one begins at every 1


def shards_state(split: str, gpus: int, rows: int, width: int) -> State:
    """Return the chart "product_parts": rows × width are the size of X."""
    wide = 4 * width
    shapes = ((rows, width), (width, wide), (rows, wide), (wide, width), (rows, width))
    sizes = dict(zip("XAYBZ", shapes, strict=True))
    lefts = [number + 0.14 for number in range(len(sizes))]
    axes = SHARDS[split] if gpus > 1 else (None,) * len(sizes)
    sent = [
        {
            "x": float("XAYBZ".index(before) + 1),
            "line": list(PASSES).index(when),
            "words": f"{PASSES[when]} {what}",
            "size": (size := BYTES * rows * (wide if before in "AY" else width)),
            "said": f"{when} {what}, {show(size, 'B')}",
            "before": before,
            "after": "XAYBZ"["XAYBZ".index(before) + 1],
        }
        for before, when, what in MESSAGES[split] * (gpus > 1)
    ]
    data = {
        "parts": columns(
            shard
            for left, name, axis in zip(lefts, sizes, axes, strict=True)
            for shard in _shards(left, name, sizes[name], axis, gpus)
        ),
        "names": columns(
            {"x": left + WIDTH / 2, "words": name, "size": f"{high:,} × {across:,}"}
            for left, (name, (high, across)) in zip(lefts, sizes.items(), strict=True)
        ),
        "messages": columns(sent),
    }
    held = ", ".join(f"{name} {HELD[axis]}" for name, axis in zip(sizes, axes, strict=True))
    said = "; ".join(f"{row['said']} between {row['before']} and {row['after']}" for row in sent)
    return data, (
        f"Split {SPLITS[split]} over {count(gpus, 'GPU')}: {held}."
        f" {f'Messages: {said}' if said else 'No messages'}."
    )


def _shards(
    left: float, name: str, size: tuple[int, int], axis: int | None, gpus: int
) -> Iterator[dict[str, Any]]:
    """Yield each GPU's shard of a matrix, or all of it once."""
    count, by = (1, COLUMNS) if axis is None else (gpus, axis)
    for rank in range(count):
        a, b = rank / count, (rank + 1) / count
        first, last = round(a * size[by]), round(b * size[by]) - 1
        yield {
            "left": left + WIDTH * (a if by == COLUMNS else 0),
            "right": left + WIDTH * (b if by == COLUMNS else 1),
            "top": a if by == ROWS else 0.0,
            "bottom": b if by == ROWS else 1.0,
            "mine": rank == 0,
            "words": "all" if axis is None else str(rank),
            "ink": "currentColor" if rank else "white",
            "details": f"{name}: {'every rank' if axis is None else f'rank {rank}'} has"
            f" {('rows', 'columns')[by]} {first:,} to {last:,}",
        }
