"""Texts of the course as pages: the glossary, the labs' instructions, what the documentation says of accuracy.

    voila/render/FILE.md     of the served folder, beside its notebooks, so that their relative links lead here
    voila/labs/..., docs     of the course's other folders
    voila/notes/...          the instructor notes of a clone, which have solutions: on no server that others reach

A link to a file that is no page is shown as plain words.
"""

import re
from html import escape, unescape
from pathlib import Path

from jupyter_server.base.handlers import JupyterHandler
from mistune.plugins.table import table_in_list
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from tornado.web import HTTPError

from lib_dlhpc.explore import course
from lib_dlhpc.explore.front.page import RENDER
from lib_dlhpc.explore.front.shell import shell

ADDRESS = r"voila/(render|labs|docs|notes)/([\w./-]+\.md)"
FOLDERS = {"labs": "labs", "docs": "docs", "notes": "instructor_notes"}
LINK = re.compile(r'<a href="(?!https?:|mailto:|#)([^"#]*)(#[^"]*)?"[^>]*>(.*?)</a>', re.DOTALL)
TITLE = re.compile(r"^#\s+(.+)$", re.MULTILINE)
TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
ROW = re.compile(r"<tr>.*?</tr>", re.DOTALL)
HEADING = re.compile(r'<h([1-6]) id="[^"]*">(.*?)<a class="anchor-link" href="#[^"]*">', re.DOTALL)
HEAD = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
CODE = re.compile(r"<pre>.*?</pre>", re.DOTALL)
OPTION = re.compile(r"(?<=\s)--[\w-]+")
WIDE = 4  # columns that no phone has room for
TRUST = "docs/guide/trust.md"  # where a folder lacks it: the front door has the same rows


class Markdown(JupyterHandler):
    """A text. root: the served folder, whose parent has the others. notes: whether those of instructors may be read."""

    def initialize(self, root: Path, notes: bool = False) -> None:
        self.root, self.notes = root, notes

    def get(self, part: str, name: str) -> None:
        file = None if part == "notes" and not self.notes else found(self.root, part, name)
        if file is None and f"{part}/{name}" == TRUST:
            self.redirect(f"{self.base_url}#trust")
            return
        if file is None:
            raise HTTPError(404)
        self.finish(page(file, self.root, self.base_url, self.notes))


def found(root: Path, part: str, name: str) -> Path | None:
    """Return the file of an address; None where there is none, or outside of its folder."""
    folder = root if part == "render" else root.parent / FOLDERS[part]
    try:
        file = (folder / name).resolve()
        return file if file.is_relative_to(folder.resolve()) and file.is_file() else None
    except OSError:  # a name that is longer than a file system takes
        return None


def page(file: Path, root: Path, base: str, notes: bool = False) -> bytes:
    """Return a text as a page. notes: whether those of instructors may be read, too."""
    text = file.read_text(encoding="utf-8")
    heading = TITLE.search(text)
    reader = MarkdownWithMath(renderer=IPythonRenderer(escape=False))
    table_in_list(reader)  # nbconvert reads tables outside of lists only
    html = reader.render(text)

    def linked(match: re.Match[str]) -> str:
        to, place, words = match[1], match[2] or "", match[3]
        address = address_of((file.parent / to).resolve(), root.resolve())
        if address.startswith("voila/notes/") and not notes:
            return words
        return f'<a href="{base}{address}{place}">{words}</a>' if address else words

    body = TABLE.sub(_framed, LINK.sub(linked, HEADING.sub(_anchored, html)))
    body = CODE.sub(lambda code: OPTION.sub(r'<span class="whole">\g<0></span>', code[0]), body)
    return shell(heading[1] if heading else file.stem, _above(file, root, base) + body, base)


def _above(file: Path, root: Path, base: str) -> str:
    """Return links from a lab to all labs and to its module; "" for a text that is no lab's."""
    lab = file.parent.name
    if lab not in course.LABS or file.parents[1] != root.parent / FOLDERS["labs"]:
        return ""
    (module,) = (each for each in course.PATH if lab in each.labs)
    return (
        f'<p class="up"><a href="{base}voila/labs/README.md">All labs</a> · <a href="{base}{RENDER}{module.file}">'
        f"Module {module.number}: {escape(module.title)}</a></p>"
    )


def _anchored(match: re.Match[str]) -> str:
    """Return a heading with the anchor that GitHub and Sphinx give it, to which the texts link."""
    level, words = match[1], match[2]
    plain = unescape(re.sub(r"<[^>]+>", "", words)).lower()
    to = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
    return f'<h{level} id="{to}">{words}<a class="anchor-link" href="#{to}">'


def _framed(table: re.Match[str]) -> str:
    """Return a table that scrolls by itself; of a wide one each row is a card on a phone, whose cells name columns."""
    heads = [re.sub(r"<[^>]+>", "", head).replace('"', "&quot;") for head in HEAD.findall(table[0])]
    if len(heads) < WIDE:
        return f'<div class="scroll">{table[0]}</div>'

    def named(row: re.Match[str]) -> str:
        names = iter(heads)
        return re.sub("<td", lambda _: f'<td data-column="{next(names, "")}"', row[0])

    cards = ROW.sub(named, table[0]).replace("<table>", '<table class="cards">', 1)
    return f'<div class="scroll">{cards}</div>'


def notes_of(root: Path) -> dict[str, str]:
    """Return title -> address of the instructor notes beside the served folder; none where they are not installed."""
    files = sorted((root.parent / FOLDERS["notes"]).glob("*.md"))
    texts = {file: TITLE.search(file.read_text(encoding="utf-8")) for file in files}
    return {
        (heading[1] if heading else file.stem): address_of(file, root)
        for file, heading in texts.items()
    }


def address_of(file: Path, root: Path) -> str:
    """Return the address of a notebook or a text; "" of a file that is no page."""
    if file.suffix in (".md", ".ipynb") and file.is_relative_to(root) and file.is_file():
        return f"voila/render/{file.relative_to(root).as_posix()}"
    for part, name in FOLDERS.items():
        folder = root.parent / name
        if file.suffix == ".md" and file.is_relative_to(folder) and file.is_file():
            return f"voila/{part}/{file.relative_to(folder).as_posix()}"
    return ""
