"""Modulation: features of all positions are scaled and shifted by a vector that depends on the sample."""

from typing import Literal

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base.kind import Counts, Kind, Site

PARTS = {"shift and scale": 2, "gate": 1}


class Modulate(Kind):
    """x (1 + scale) + shift, or x times a gate: adaLN-Zero (Peebles and Xie 2023, "DiT", section 3.2).

    It reads x of (positions, features), and a vector in which shift, scale or gate lie side by side, `features`
    elements each, `first` parts after the beginning. Priced as one kernel; not trained here.
    """

    backward_reads = frozenset({"input"})
    sequence = True
    several_inputs = True

    @staticmethod
    def describe(
        site: Site, first: int = 0, form: Literal["shift and scale", "gate"] = "shift and scale"
    ) -> Counts:
        """Return the counts; a gate's output is read by a sum only, so it is not stored."""
        x, *others = site.shapes
        end = (first + PARTS[form]) * x[-1]
        if len(x) != 2 or len(others) != 1 or len(others[0]) != 1 or others[0][0] < end:
            raise SpecError(
                f"{site.name}: reads {', '.join(map(str, site.shapes))}; legal: (positions, features), and a vector of"
                f" at least {end} elements."
            )
        return Counts(
            x, stored=0 if form == "gate" else None, attributes={"first": first, "form": form}
        )
