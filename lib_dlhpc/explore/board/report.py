"""A learner's own report as one HTML file, which fetches nothing.

report_page(learner)   the file's bytes; of nobody, what to do to have one
"""

from html import escape
from typing import Any

from lib_dlhpc.classroom import record
from lib_dlhpc.classroom.learner import Learner
from lib_dlhpc.classroom.report import report
from lib_dlhpc.explore import course
from lib_dlhpc.explore.front.page import RENDER
from lib_dlhpc.explore.front.shell import shell
from lib_dlhpc.spec.units import count

NOBODY = (
    "<p>Nothing of yours is kept as a record yet. <span id='done'>This browser keeps which questions"
    " you have answered, and your answers, for its own pages.</span></p><p>This page lists your guesses"
    " beside the results, and what to review, once you have a record:</p><ul><li>in a class, agree on its"
    " first page to keep your answers;</li><li>on your own machine, type <code>dlhpc class join</code> in"
    " a terminal.</li></ul>"
    f'<p><a href="{RENDER}{course.PATH[0].file}">Start with module {course.PATH[0].number}:'
    f" {escape(course.PATH[0].title)}</a></p>"
)
DONE = """
try {
  const pages = Object.values(JSON.parse(localStorage.getItem("dlhpc-progress")) ?? {}).filter(({ done }) => done);
  const sum = pages.reduce((all, { done }) => all + done, 0);
  if (sum) document.getElementById("done").append(` Answered: ${sum}, on ${pages.length} pages.`);
} catch { /* a browser may refuse */ }
"""
HEAD = (
    "<tr><th scope='col'>asked</th><th scope='col'>you</th><th scope='col'>it is</th>"
    "<th scope='col'>right</th></tr>"
)


def report_page(found: Learner | None) -> bytes:
    """Return the page of a learner."""
    if found is None:
        body = NOBODY
    else:
        made = report(record.entries(found.folder), course.title_of)
        parts = [
            _review(made["review"]),
            *map(_module, made["modules"]),
            _labs(made["labs"], made["hints"]),
        ]
        body = "".join(parts) or "<p>Nothing has been answered yet.</p>"
    return shell(
        "Your answers", f"<h1>Your answers</h1>{body}", script=DONE if found is None else ""
    )


def _review(rows: list[dict[str, Any]]) -> str:
    listed = "".join(
        f"<li>{_link(row)}, {escape(row['why'])}: {escape(row['asked'])}</li>" for row in rows
    )
    return f"<h2>Review again</h2><ul>{listed}</ul>" if listed else ""


def _module(module: dict[str, Any]) -> str:
    checks = (
        f"<p>{module['right_at_first_try']} of {module['checks']} checks right on the first try, "
        f"{module['right']} by now.</p>"
    )
    rows = "".join(map(_guess, module["guesses"]))
    table = f'<div class="scroll"><table>{HEAD}{rows}</table></div>' if rows else ""
    return f"<h2>{_link(module)}</h2>{checks if module['checks'] else ''}{table}"


def _guess(guess: dict[str, Any]) -> str:
    right = "yes" if guess["right"] else "no"
    cells = (guess["asked"], guess["guess"] or "skipped", guess["result"], right)
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


def _labs(labs: list[dict[str, Any]], hints: list[dict[str, Any]]) -> str:
    listed = ""
    for lab in labs:
        state = "passed" if lab["passed"] else "; ".join(["not passed", *lab["does_not_hold_yet"]])
        words = f"{lab['title']}, {lab['part']}: {state} ({count(lab['attempts'], 'attempt')})"
        listed += f"<li>{escape(words)}</li>"
    for hint in hints:
        words = f"{hint['title']}, {hint['topic']}: hints opened: {hint['opened']}"
        listed += f"<li>{escape(words)}</li>"
    return f"<h2>Labs</h2><ul>{listed}</ul>" if listed else ""


def _link(row: dict[str, Any]) -> str:
    number = course.RECORDED.get(row["module"])
    for module in course.PATH:
        if module.number == number:
            return f'<a href="{RENDER}{module.file}">{escape(module.heading)}</a>'
    return escape(row["title"])
