"""The numbers that an exam question gives."""

import re

from lib_dlhpc.teaching.numbers import UNIT, in_si


def given(text: str, *pieces: str) -> list[float]:
    """Return the number that a question gives at {} of each piece of its text, in SI units."""
    number = rf"(-?\d[\d,]*(?:\.\d+)?)(?: ?({UNIT}\b))?"
    found = [re.search(re.escape(piece).replace(r"\{\}", number), text) for piece in pieces]
    assert all(found), (text, pieces)
    return [in_si(each[1], each[2] or "") for each in found if each]
