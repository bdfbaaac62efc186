"""Versions by their step, number and metrics: "accuracy > 0.9"."""

import operator
import re
from collections.abc import Iterable, Sequence

from lib_dlhpc.errors import listed
from lib_dlhpc.storage.snapshots.files import SnapshotError
from lib_dlhpc.storage.snapshots.version import Version

COMPARE = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
}
CONDITION = re.compile(r"\s*([^<>=!]+?)\s*(>=|<=|==|!=|>|<|=)\s*(\S+)\s*")


def search(versions: Sequence[Version], conditions: Iterable[str]) -> list[Version]:
    """Return the versions that meet all conditions; one without a metric does not.

    Raises SnapshotError for a condition that cannot be read, or of a metric that none has.
    """
    found = list(versions)
    legal = sorted({"step", "number"} | {name for version in versions for name in version.metrics})
    for condition in conditions:
        match = CONDITION.fullmatch(condition)
        try:
            name, sign, value = match.groups() if match else ("", "", "")
            wanted = float(value)
        except ValueError:
            raise SnapshotError(
                f"{condition!r}: expected a condition such as 'accuracy > 0.9'."
            ) from None
        if name not in legal:
            head = f"{condition!r}: no version has a {name};"
            raise SnapshotError(listed(head, name, legal, "they have"))
        found = [
            version
            for version in found
            if (known := _values(version)).get(name) is not None
            and COMPARE[sign](known[name], wanted)
        ]
    return found


def _values(version: Version) -> dict[str, float]:
    return {**version.metrics, "step": version.step, "number": version.number}
