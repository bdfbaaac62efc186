"""filled(text, names): a text with its numbers, whose names stand in braces."""

from collections.abc import Mapping
from string import Formatter
from typing import Any

from lib_dlhpc.spec.units import format_quantity
from lib_dlhpc.teaching.problems import SI


def filled(text: str, names: Mapping[str, Any]) -> str:
    """Return a text with what its names in braces stand for.

    `{size:B}` and `{rate:B/s 4}` are quantities with their unit, the latter with four digits; others are as in
    str.format.
    """
    return _Quantities().vformat(text, (), names)


class _Quantities(Formatter):
    def format_field(self, value: Any, format_spec: str) -> Any:
        unit, *digits = format_spec.split()[:2] or [""]
        if unit in SI:
            return format_quantity(float(value), unit, *map(int, digits))
        return super().format_field(value, format_spec)
