"""Messages of the library on a page: with the labels of the controls where files have the names of fields."""

import re

from lib_dlhpc.explore.explorer.controls import NAMED

FIELD = re.compile(
    r"\b(?P<field>(?:model|machine|dataset|strategy|storage|run)\.[a-z_]+)(?: (?P<is>=))?"
)


def labeled(text: str) -> str:
    """Return a message in the words of the page; fields that no control shows keep their names."""
    return FIELD.sub(_label, text)


def _label(found: re.Match[str]) -> str:
    return NAMED[found["field"]].label if found["field"] in NAMED else found[0]
