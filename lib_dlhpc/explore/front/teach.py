"""The door for teachers: what there is for a class, with links to what this server has."""

from html import escape

from lib_dlhpc.explore import course
from lib_dlhpc.explore.front.page import RENDER
from lib_dlhpc.explore.front.shell import shell

BOARD = "class/board"
SERVE = (
    "<code>dlhpc class serve</code> serves these pages to a room, collects the answers of those who agree, and prints"
    " the address of the teacher's board: where everyone is, how they guessed, which mistakes are common."
)
NO_NOTES = (
    "Timing by the minute, misconceptions, rubrics and solutions of each module and lab are in the folder"
    " <code>instructor_notes/</code> of the source of this package. A server that others reach does not show"
    " them, nor does an installed package: they have the solutions."
)
SUFFIX = ": notes for instructors"  # of their titles
TEXTS = {
    "modules, with their questions": f"{RENDER}README.md",
    "labs, with their instructions": "voila/labs/README.md",
    "glossary": f"{RENDER}glossary.md",
    "accuracy of the predictions": "voila/docs/guide/trust.md",
}


def teach_page(base: str, notes: dict[str, str], in_class: bool) -> bytes:
    """Return the page. notes: title -> address of each of the instructor notes, where they may be shown."""
    board = f'<p><a href="{base}{BOARD}">The board of this class</a>, for who has its key.</p>'
    texts = _list({name: f"{base}{address}" for name, address in TEXTS.items()})
    named = {title.removesuffix(SUFFIX): f"{base}{address}" for title, address in notes.items()}
    shown = _list(named, ' class="notes"')
    rows = "".join(_row(base, module) for module in course.PATH)
    body = f"""<h1>Teach</h1>
<h2>A class</h2>{board if in_class else ""}<p>{SERVE}</p>
<h2>Guess first, or all open</h2>
<p>A figure is covered until its question is answered or skipped. In a class, <code>?gates=on</code> takes <i>Skip</i>
away; in a workshop, <code>?gates=off</code> opens everything.</p>
<div class="scroll"><table><thead><tr><th scope="col">module</th><th scope="col">minutes</th><th scope="col">class</th>
<th scope="col">workshop</th></tr></thead><tbody>{rows}</tbody></table></div>
<h2>Instructor notes</h2>{shown or f"<p>{NO_NOTES}</p>"}
<h2>Texts</h2>{texts}"""
    return shell("Teach", body, base)


def _row(base: str, module: course.Module) -> str:
    address = f"{base}{RENDER}{module.file}"
    name = f"{module.number} {escape(module.title)}"
    ways = "".join(
        f'<td><a href="{address}?gates={gates}" aria-label="{name}: {words}">{words}</a></td>'
        for gates, words in (("on", "guess first"), ("off", "all open"))
    )
    return f'<tr><th scope="row"><a href="{address}">{name}</a></th><td>{module.minutes}</td>{ways}</tr>'


def _list(links: dict[str, str], kind: str = "") -> str:
    items = "".join(f'<li><a href="{to}">{escape(name)}</a></li>' for name, to in links.items())
    return f"<ul{kind}>{items}</ul>" if items else ""
