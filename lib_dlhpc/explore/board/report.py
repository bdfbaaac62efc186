"""A learner's own report as one HTML file, which fetches nothing.

report_page(learner)   the file's bytes; of nobody, what to do to have one
"""

from html import escape
from typing import Any

from lib_dlhpc.classroom import record
from lib_dlhpc.classroom.learner import Learner
from lib_dlhpc.classroom.report import report
from lib_dlhpc.explore import course
from lib_dlhpc.explore.front.page import RENDER, THEME

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Your answers</title><link rel="icon" href="data:,">
<style>{theme}
body {{ font: 16px/1.5 var(--dl-font); color: var(--dl-ink); background: var(--dl-paper);
max-width: 60rem; margin: auto; padding: 1rem }} a {{ color: inherit }}
table {{ border-collapse: collapse; width: 100% }} th, td {{ text-align: left; vertical-align: top;
padding: .3rem .6rem; border-bottom: 1px solid var(--dl-line); overflow-wrap: anywhere }}</style>
</head><body><main><p><a href="./">What-if lab</a></p><h1>Your answers</h1>{body}</main></body></html>
"""
NOBODY = (
    "<p>Nothing of yours is kept. In a class, agree on its first page to keep your answers; on your own machine,"
    " type <code>dlhpc class join</code>.</p>"
)
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
        parts = [_review(made["review"]), *map(_module, made["modules"]), _labs(made["labs"])]
        body = "".join(parts) or "<p>Nothing has been answered yet.</p>"
    return PAGE.format(theme=THEME.read_text(encoding="utf-8"), body=body).encode()


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
    table = f"<table>{HEAD}{rows}</table>" if rows else ""
    return f"<h2>{_link(module)}</h2>{checks if module['checks'] else ''}{table}"


def _guess(guess: dict[str, Any]) -> str:
    right = "yes" if guess["right"] else "no"
    cells = (guess["asked"], guess["guess"] or "skipped", guess["result"], right)
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


def _labs(labs: list[dict[str, Any]]) -> str:
    listed = ""
    for lab in labs:
        state = "passed" if lab["passed"] else "; ".join(["not passed", *lab["does_not_hold_yet"]])
        words = f"{lab['title']}, {lab['part']}: {state} ({lab['attempts']} attempts)"
        listed += f"<li>{escape(words)}</li>"
    return f"<h2>Labs</h2><ul>{listed}</ul>" if listed else ""


def _link(row: dict[str, Any]) -> str:
    number, title = course.RECORDED.get(row["module"]), escape(row["title"])
    files = [module.file for module in course.PATH if module.number == number]
    return f'<a href="{RENDER}{files[0]}">{title}</a>' if files else title
