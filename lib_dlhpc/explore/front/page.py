"""The front door as one HTML file: made when it is first asked for, kept until the package changes.

front_page()   the file; making it takes about twenty seconds, once (python -m lib_dlhpc.explore.front.page)
"""

import json
import re
from functools import cache
from hashlib import sha256
from html import escape
from importlib.metadata import metadata
from pathlib import Path
from statistics import median
from string import Template
from typing import Any

from lib_dlhpc import __version__
from lib_dlhpc.explore import course
from lib_dlhpc.explore.blocks import built

HERE = Path(__file__).parent
PACKAGE = Path(__file__).parents[2]
THEME = HERE.parent / "server" / "voila" / "templates" / "dlhpc" / "static" / "theme.css"
SWITCH = THEME.with_suffix(".js")  # the button that changes it
MADE_FROM = (".py", ".toml", ".csv")  # beside what is in this folder
RENDER = "voila/render/"
ARXIV = re.compile(r"arXiv:? ?(\d{4}\.\d{4,5})")
LICENSE = "BSD-3-Clause"
LEAD = (
    "See where every millisecond of a training step goes: predicted, simulated, and run for real on your laptop."
    " No GPU needed."
)
TITLE = "lib_dlhpc: describe a deep-learning training run once, then predict, simulate and run it"


@cache
def front_page() -> Path:
    """Return the page, made anew where a file that it is made from differs, wherever the package is installed."""
    rooms = [place for place in PACKAGE.iterdir() if place.name not in ("course", "explore")]
    files = [file for room in rooms for file in room.rglob("*.*") if file.suffix in MADE_FROM]
    files += [*HERE.rglob("*.*"), THEME, SWITCH]
    texts = [file.read_bytes() for file in sorted(files) if file.suffix != ".pyc"]
    return built.kept("front", "html", sha256(b"\0".join(texts)).hexdigest(), written)


def written() -> str:
    """Return the page as text."""
    from lib_dlhpc.explore.front import results

    rows = results.proof()
    within = sum(row["error"] <= 0.1 for row in rows)
    data = {
        "steps": results.steps(),
        "networks": results.NETWORKS,
        "start": results.START,
        "proof": [
            [row["id"], row["group"], round(row["ratio"], 4), row["miss"], row["short"]]
            for row in rows
            if row["ratio"] is not None
        ],
    }
    known = results.published()
    parts = {
        "lead": LEAD,
        "theme": THEME.read_text(encoding="utf-8"),
        "style": static("front.css"),
        "script": static("front.js") + SWITCH.read_text(encoding="utf-8"),
        "data": json.dumps(data, separators=(",", ":")).replace("</", "<\\/"),
        "path": "".join(map(card, course.PATH)),
        "modules": str(len(course.PATH)),
        "labs": "".join(map(lab_item, course.LABS)),
        "lab_count": str(len(course.LABS)),
        "explorer": RENDER + course.EXPLORER,
        "render": RENDER,
        **about(),
        "first": RENDER + course.PATH[0].file,
        "minutes": str(course.PATH[0].minutes),
        "predicted": f"{known['predicted']:.1f}",
        "published": f"{known['published']:.0f}",
        "share": f"{100 * known['predicted'] / known['published']:.2f}",
        "rows": str(len(rows)),
        "within": f"{100 * within / len(rows):.0f}",
        "median": f"{100 * median(row['error'] for row in rows):.1f}",
        "missed": str(sum(row["miss"] for row in rows)),
        "table": "".join(map(table_row, rows)),
    }
    return Template(static("front.html")).substitute(parts)


def about() -> dict[str, str]:
    """Return version, license, how to cite (as in CITATION.cff), and a link to the source where a release has one."""
    found = metadata("lib_dlhpc").json
    urls = dict(each.split(", ", 1) for each in found.get("project_url", []))
    source = escape(urls.get("Source", ""))
    return {
        "version": __version__,
        "license": LICENSE,
        "source": f', <a href="{source}">source</a>' if source else "",
        "cite": f"the lib_dlhpc developers: <i>{TITLE}</i>, version {__version__}, {LICENSE}.",
    }


def lab_item(folder: str) -> str:
    """Return a lab as an item of a list: its title, minutes and module."""
    lab = course.LABS[folder]
    (module,) = (module for module in course.PATH if folder in module.labs)
    return (
        f'<li><a href="voila/labs/{folder}/README.md">{escape(lab.title)}</a> <span>{lab.minutes} min,'
        f' <a href="{RENDER}{module.file}">module {module.number}</a></span></li>'
    )


def card(module: course.Module) -> str:
    """Return a module as a card: its picture, number, minutes, question, what it builds on, its labs."""
    from lib_dlhpc.explore.front import thumbnails

    picture = getattr(thumbnails, module.folder)()
    labs = "".join(
        f'<span class="lab">Lab: {escape(course.LABS[lab].title)}</span>' for lab in module.labs
    )
    needs = f" · after {', '.join(sorted(module.needs))}" if module.needs else ""
    return (
        f'<a class="module" href="{RENDER}{module.file}" data-number="{module.number}">{picture}'
        f'<span class="text"><small>{module.number}{needs} · {module.minutes}&nbsp;min</small>'
        f"<b>{escape(module.title)}</b>"
        f'<span class="asks">{escape(module.question)}</span><span class="done" hidden></span></span>{labs}</a>'
    )


def table_row(row: dict[str, Any]) -> str:
    """Return a published row: its source, its class, what was measured, both values, the error, and why it misses."""
    cells = (
        row["group"],
        row["quantity"],
        row["published"],
        row["predicted"],
        f"{row['signed']:+z.0%}",
        row["reason"],
    )
    inside = "".join(f"<td>{escape(str(cell))}</td>" for cell in cells)
    name, source = escape(row["id"]), ARXIV.sub(_linked, escape(row["source"]))
    return f'<tr id="{name}"><th scope="row">{name}<small>{source}</small></th>{inside}</tr>'


def _linked(paper: re.Match[str]) -> str:
    return f'<a href="https://arxiv.org/abs/{paper[1]}">{paper[0]}</a>'


def static(name: str) -> str:
    """Return a file of this folder as text."""
    return (HERE / "static" / name).read_text(encoding="utf-8")


if __name__ == "__main__":
    print(front_page())
