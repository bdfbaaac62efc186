"""The board as one HTML file.

board_page()   the file's bytes
"""

import json
from functools import cache
from pathlib import Path
from string import Template

from lib_dlhpc.explore.course import PATH
from lib_dlhpc.explore.front.page import THEME

STATIC = Path(__file__).parent / "static"


@cache
def board_page() -> bytes:
    """Return the page with its style and script; it fetches nothing but what it shows."""
    parts = {
        "theme": THEME.read_text(encoding="utf-8"),
        "style": (STATIC / "board.css").read_text(encoding="utf-8"),
        "titles": json.dumps({module.folder: module.heading for module in PATH}),
        "script": (STATIC / "board.js").read_text(encoding="utf-8"),
    }
    text = (STATIC / "board.html").read_text(encoding="utf-8")
    return Template(text).substitute(parts).encode()
