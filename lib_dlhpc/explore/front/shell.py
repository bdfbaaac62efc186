"""The frame of a page without a kernel: the header of all pages, text in one column, nothing fetched from elsewhere."""

from html import escape
from string import Template

from lib_dlhpc.explore import course
from lib_dlhpc.explore.front.page import RENDER, SWITCH, THEME, static


def shell(title: str, body: str, base: str = "./", script: str = "") -> bytes:
    """Return a page. body: HTML of its main part. base: where the front door is. script: JavaScript at its end."""
    parts = {
        "title": escape(title),
        "base": escape(base),
        "explorer": RENDER + course.EXPLORER,
        "theme": THEME.read_text(encoding="utf-8"),
        "style": static("shell.css"),
        "script": SWITCH.read_text(encoding="utf-8") + script,
        "body": body,
    }
    return Template(static("shell.html")).substitute(parts).encode()
