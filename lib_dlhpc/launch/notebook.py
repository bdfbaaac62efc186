"""A notebook as a task, and its parameters; `execute` runs it in the job.

Parameters follow papermill: a cell with the tag `parameters` holds the defaults, and a new cell below it the given
values.
"""

import ast
import json
import keyword
import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lib_dlhpc.errors import SpecError, listed
from lib_dlhpc.launch.task import Task

SOURCE = "notebook.json"  # in the private script folder: as submitted
TAG, INJECTED = "parameters", "injected-parameters"
LARGEST_FILE = 50_000_000  # bytes


def notebook(path: str | Path, parameters: Mapping[str, Any] | None = None) -> Task:
    """Return a notebook, with values for its parameters, as a task. Raises SpecError for unknown parameters."""
    table = read_notebook(Path(path))
    if parameters:
        with_parameters(table, parameters, Path(path).name)
    return Task("notebook", os.path.abspath(path), parameters=dict(parameters or {}))


def read_notebook(path: Path) -> dict[str, Any]:
    """Return a notebook file as a table. Raises SpecError."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise SpecError(f"{path}: larger than {LARGEST_FILE} bytes.")
        table: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(table.get("cells"), list) or table.get("nbformat") != 4:
            raise ValueError("it is not a notebook of format 4")
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}.") from None
    except (ValueError, AttributeError) as error:
        raise SpecError(f"{path}: cannot be read as a notebook: {error}.") from None
    return table


def with_parameters(table: dict[str, Any], given: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the notebook with a cell of assignments below that of its parameters. Raises SpecError."""
    cells = [cell for cell in table["cells"] if INJECTED not in _tags(cell)]
    at = next((place for place, cell in enumerate(cells) if TAG in _tags(cell)), None)
    if at is None:
        raise SpecError(f"{name}: no cell has the tag {TAG!r}, so --set has nothing to set.")
    legal = _assigned("".join(cells[at]["source"]))
    lines = ["# Parameters of this job\n"]
    for key, value in given.items():
        if key not in legal:
            head = f"--set {key}: {name} has no such parameter;"
            raise SpecError(listed(head, key, legal or ["none"]))
        lines.append(f"{key} = {_literal(value, key)}\n")
    new = {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {"tags": [INJECTED]},
        "outputs": [],
        "source": lines,
    }
    if (table["nbformat"], table.get("nbformat_minor", 0)) >= (4, 5):
        new["id"] = INJECTED
    return {**table, "cells": [*cells[: at + 1], new, *cells[at + 1 :]]}


def keep_source(task: Task, folder: Path) -> None:
    """Copy the notebook as submitted: it may change before its job starts."""
    shutil.copyfile(task.path, folder / "job" / SOURCE)
    (folder / "job" / SOURCE).chmod(0o600)


def _assigned(text: str) -> list[str]:
    """Return the names that a cell assigns."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise SpecError(
            f"The cell with the tag {TAG!r}: {error.msg}, line {error.lineno}."
        ) from None
    targets = list[ast.expr]()
    for line in tree.body:
        if isinstance(line, ast.Assign):
            targets += line.targets
        elif isinstance(line, ast.AnnAssign):
            targets.append(line.target)
    return [
        each.id for each in targets if isinstance(each, ast.Name) and not keyword.iskeyword(each.id)
    ]


def _literal(value: Any, key: str) -> str:
    """Return a value as a Python literal. Raises SpecError for other than plain values."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_literal(each, key) for each in value)}]"
    if isinstance(value, dict):
        inside = (f"{str(name)!r}: {_literal(each, key)}" for name, each in value.items())
        return f"{{{', '.join(inside)}}}"
    raise SpecError(
        f"--set {key}: {value!r}: expected a number, text, true, false, a list or table."
    )


def _tags(cell: Mapping[str, Any]) -> list[str]:
    return list(cell.get("metadata", {}).get("tags", []))
