"""The door for teachers: what there is for a class, with links to what this server has."""

from html import escape

from lib_dlhpc.explore import course
from lib_dlhpc.explore.front.page import RENDER
from lib_dlhpc.explore.front.shell import shell

BOARD = "class/board"
LEAD = (
    "Open a module in front of a room, see on a board what everyone guessed, and find timing, misconceptions and"
    " solutions in the notes."
)
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
# names of files begin so
COURSE = ("README", "syllabus_", "classes_", "policies", "projects", "outcomes")
PAPER = (
    "In the source of this package, <code>make course</code> writes exams, concept tests, problems, design problems and"
    " cases, with answers apart; <code>make slides</code> writes a deck for each module and lab, as PowerPoint and for"
    " a browser; and <code>make student</code> writes a hand-out without solutions."
)
COLUMNS = ' class="notes"'
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
    shown = "".join(
        f"<h3>{heading}</h3>{_list(links, COLUMNS)}"
        for heading, links in _grouped(base, notes).items()
    )
    rows = "".join(_row(base, module) for module in course.PATH)
    body = f"""<h1>Teach</h1><p>{LEAD}</p>
<h2>Modules: guess first, or all open</h2>
<p>A figure is covered until its question is answered or skipped. In a class, <code>?gates=on</code> takes <i>Skip</i>
away; in a workshop, <code>?gates=off</code> opens everything.</p>
<div class="scroll"><table class="ways"><thead><tr><th scope="col">module</th><th scope="col">minutes</th>
<th scope="col">class</th><th scope="col">workshop</th></tr></thead><tbody>{rows}</tbody></table></div>
<h2>A board for a class</h2>{board if in_class else ""}<p>{SERVE}</p>
<h2>On paper, and slides</h2><p>{PAPER}</p>
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


def _grouped(base: str, notes: dict[str, str]) -> dict[str, dict[str, str]]:
    """Return title -> address of the notes for a course, for a class, and those of modules and labs, by heading."""
    found: dict[str, dict[str, str]] = {
        "For a course": {},
        "For a class": {},
        "Modules": {},
        "Labs": {},
    }
    for title, address in notes.items():
        file = address.rpartition("/")[2]
        heading = "For a course" if file.startswith(COURSE) else "For a class"
        if file[0].isdigit() or file.startswith("lab_"):
            heading = "Modules" if file[0].isdigit() else "Labs"
        found[heading][title.removesuffix(SUFFIX)] = f"{base}{address}"
    return {heading: links for heading, links in found.items() if links}


def _list(links: dict[str, str], kind: str = "") -> str:
    items = "".join(f'<li><a href="{to}">{escape(name)}</a></li>' for name, to in links.items())
    return f"<ul{kind}>{items}</ul>" if items else ""
