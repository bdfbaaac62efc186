"""A lab in a notebook: findings as a list, the learner's cell as a file, and that file on MPI ranks.

show(findings)                        what holds and what does not
save(step, Path("step.py"))           the whole cell that defines `step`
run_ranks(Path("checks.py"), ...)     what `mpiexec -n 4 python checks.py ...` prints

Checks import this in a terminal and on ranks, too, so widgets are imported where they are made.
"""

import linecache
import os
import subprocess
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.labs.attempts import attempted, report
from lib_dlhpc.labs.findings import Finding, mark, summary
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.launch.mpi import run_to_end

if TYPE_CHECKING:
    import ipywidgets

PATIENCE = 180  # s until ranks that do not end are given up
EDGE = {True: "#009e73", False: "#d55e00", None: "#888"}  # never the only sign
ITEM = "margin: 6px 0; padding: 0 10px; border-left: 4px solid"
LINES = "white-space: pre-wrap; word-break: normal; overflow-wrap: anywhere"
SAID = {True: "holds", False: "does not hold", None: "not looked at yet"}


def show(findings: Sequence[Finding], title: str = "", below: str = "") -> "ipywidgets.HTML":
    """Record the findings as an attempt; return them as a list on the page. below: one more sentence, as text."""
    below = " ".join(filter(None, (below, attempted(findings, title))))
    items = "\n".join(
        f'<li style="{ITEM} {EDGE[each.right]}">{mark(each)} <b>{escape(each.law)}</b>'
        f" <span>({SAID[each.right]})</span><br>"
        f"{escape(each.words)}</li>"
        for each in findings
    )
    head = f"<p><b>{escape(title)}</b></p>\n" if title else ""
    last = f"\n<p>{escape(below)}</p>" if below else ""
    listed = f'<ul class="dlhpc-findings" role="status" style="list-style: none; padding: 0">{items}</ul>'
    return on_page(f"{head}{listed}\n<p>{escape(summary(findings))}</p>{last}")


def say(words: str) -> "ipywidgets.HTML":
    """Return text, lines kept, as a widget."""
    return on_page(f'<pre role="status" style="{LINES}">{escape(words)}</pre>')


def on_page(html: str) -> "ipywidgets.HTML":
    """Return HTML in the looks of the other results; print() writes its text."""
    from lib_dlhpc.explore.blocks.plain_text import Line
    from lib_dlhpc.explore.blocks.style import PAGE_STYLE

    page = Line(f"{PAGE_STYLE}{html}")
    page.add_class("dlhpc-results")
    return page


def save_and_check(
    folder: Path,
    names: Sequence[str],
    findings: Callable[[dict[str, Any], str], Sequence[Finding]],
    name: str,
    functions: Sequence[Callable[..., Any]],
) -> "ipywidgets.HTML":
    """Save the cells of the functions as step.py of a lab's folder; return what holds as text on the page.

    names: of the functions, in their order; findings(functions by their names, name) says what holds.
    """
    try:
        save(functions[0], folder / "step.py", *functions[1:])
        return say(report(findings(dict(zip(names, functions, strict=True)), name)))
    except (LabError, SpecError) as error:
        return say(str(error))


def save_and_run(
    folder: Path, name: str, functions: Sequence[Callable[..., Any]], ranks: int
) -> "ipywidgets.HTML":
    """Save the cells of the functions as step.py of a lab's folder; return what its checks print on MPI ranks."""
    try:
        file = save(functions[0], folder / "step.py", *functions[1:])
        return say(run_ranks(folder / "checks.py", str(file), name, ranks=ranks))
    except (LabError, SpecError) as error:
        return say(str(error))


def save(function: Callable[..., Any], path: Path, *others: Callable[..., Any]) -> Path:
    """Write the cells (or the file) that define `function`, `others` and what they call of their kind to `path`.

    Raises LabError if the source of one is not known.
    """
    cells: dict[str, str] = {}
    todo, seen = [function, *others], set()
    while todo:
        each = todo.pop(0)
        if each in seen:
            continue
        seen.add(each)
        file = each.__code__.co_filename
        cells[file] = "".join(linecache.getlines(file)).strip()
        if not cells[file]:
            raise LabError(f"{each.__name__}: its source is not known; run its cell again.")
        todo += _called(each)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text("\n\n\n".join(cells.values()) + "\n", encoding="utf-8")
    os.replace(temporary, path)
    return path


def _called(function: Callable[..., Any]) -> list[Callable[..., Any]]:
    """Return the functions of the same notebook (or file) that a function names."""
    names: set[str] = set()
    codes = [function.__code__]
    for code in codes:
        names.update(code.co_names)
        codes += [each for each in code.co_consts if isinstance(each, CodeType)]
    known = [function.__globals__.get(name) for name in sorted(names)]
    return [
        each
        for each in known
        if isinstance(each, FunctionType) and each.__globals__ is function.__globals__
    ]


def run_ranks(worker: Path, *arguments: str, ranks: int = 4, patience: float = PATIENCE) -> str:
    """Run `mpiexec -n RANKS python WORKER ARGUMENTS` and return what it prints.

    Raises LabError with the last lines where it fails or does not end, SpecError where MPI is missing.
    """
    try:
        run = run_to_end(ranks, str(worker), *arguments, patience=patience)
    except subprocess.TimeoutExpired:
        raise LabError(
            f"{ranks} ranks did not end within {patience:g} s: does one of them wait for a call that another"
            " never makes? The check on emulated ranks says which."
        ) from None
    if run.returncode:
        output = "\n".join((run.stdout + run.stderr).strip().splitlines()[-12:])
        raise LabError(f"The ranks ended with an error:\n{output}")
    return run.stdout.strip()
