"""Sliding windows of convolutions and pools."""

from lib_dlhpc.errors import SpecError


def slide(
    name: str,
    space: list[int],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
) -> tuple[int, ...]:
    """Return the output extent of a sliding window along each dimension."""
    for extent, width, pad in zip(space, kernel, padding, strict=True):
        if width > extent + 2 * pad:
            raise SpecError(
                f"{name}: kernel = {width} is larger than its input, {extent} with padding {pad}; "
                f"legal: 1 to {extent + 2 * pad}."
            )
        if 2 * pad > width:
            raise SpecError(
                f"{name}: padding = {pad} is more than half of kernel = {width}; "
                f"legal: 0 to {width // 2}."
            )
    return tuple(
        (extent + 2 * pad - width) // step + 1
        for extent, width, step, pad in zip(space, kernel, stride, padding, strict=True)
    )
