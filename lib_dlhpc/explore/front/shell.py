"""The frame of a page without a kernel: the header of all pages, text in one column, nothing fetched from elsewhere."""

from html import escape
from string import Template

from lib_dlhpc.explore import course
from lib_dlhpc.explore.front.page import RENDER, SWITCH, THEME, static

# What somebody who went astray may have been looking for: its name, its address, what it is.
PLACES = (
    ("Learn", "#learn", "all modules, in reading order"),
    ("Plan", RENDER + course.EXPLORER, "what a run would cost, and where its time would go"),
    ("Labs", "voila/labs/README.md", "what each assignment asks for"),
    ("Glossary", RENDER + "glossary.md", "terms, with the module that explains each"),
)


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


def error_page(status: str, title: str, said: str, base: str = "", of_course: bool = False) -> str:
    """Return a page in the looks of the others, which fetches nothing and runs no script.

    said: HTML. base: where the front door is, empty for who may not enter. of_course: whether there are its pages.
    """
    links = PLACES if of_course else [("All pages", "", "")] if base else []
    items = "".join(
        f'<li><a href="{base}{to}">{name}</a>{about and f": {about}"}</li>'
        for name, to, about in links
    )
    parts = {
        "status": status,
        "title": title,
        "theme": THEME.read_text(encoding="utf-8"),
        "style": static("shell.css"),
        "brand": f'<a class="brand" href="{base}">What-if lab</a>'
        if base
        else '<span class="brand">What-if lab</span>',
        "body": f"<p>{said}</p>" + (f"<ul>{items}</ul>" if items else ""),
        "code": f'<p class="soft">{status}</p>' if title != status else "",
    }
    return Template(static("error.html")).substitute(parts)
