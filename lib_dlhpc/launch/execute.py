"""Execute the notebook of a run folder, cell by cell: python -m lib_dlhpc.launch.execute FOLDER.

The run folder holds the notebook under its own name, with the outputs of all executed cells.
"""

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

from lib_dlhpc.launch.notebook import SOURCE, read_notebook, with_parameters
from lib_dlhpc.launch.task import done, failed, read_task

COLOR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def execute(folder: Path) -> int:
    """Execute the notebook of a run folder; return 0, or 1 if a cell failed, after recording which one."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, DeadKernelError

    task = read_task(folder)
    assert task is not None
    source = Path(task.path)
    table = read_notebook(folder / "job" / SOURCE)
    own = table["cells"]
    if task.parameters:
        table = with_parameters(table, task.parameters, source.name)
    numbers = _numbers(own, table["cells"])
    node = nbformat.reads(json.dumps(table), as_version=4)
    target, at = folder / source.name, 0

    def keep(**_: Any) -> None:
        temporary = target.with_name(f".{target.name}.tmp")
        nbformat.write(node, temporary)
        os.replace(temporary, target)

    def begins(cell_index: int, **_: Any) -> None:
        nonlocal at
        at = cell_index
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # nbclient's handler waits for the cell
        if numbers[at]:
            print(f"cell {numbers[at]} of {len(own)}", flush=True)

    keep()
    client = NotebookClient(
        node,
        timeout=None,
        kernel_name="python3",
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(source.parent)}},
        on_cell_start=begins,
        on_cell_executed=keep,
    )
    try:
        client.execute()
    except (CellExecutionError, DeadKernelError) as error:
        where = f"cell {numbers[at]}" if numbers[at] else "the parameters"
        _record(folder, f"{where} of {source.name}", error)
        return 1
    finally:
        keep()
    done(folder, notebook=target.name, cells=len(own))
    return 0


def _record(folder: Path, where: str, error: Exception) -> None:
    """Record the error of a cell, and print it."""
    kind, text = getattr(error, "ename", "DeadKernel"), getattr(error, "evalue", str(error))
    failed(folder, where, kind, _plain(text))
    print(_plain(str(error)), file=sys.stderr, flush=True)


def _numbers(own: list[Any], cells: list[Any]) -> list[int]:
    """Return each cell's number in the submitted notebook; 0 for a cell that the job added."""
    numbers = {id(cell): number for number, cell in enumerate(own, 1)}
    return [numbers.get(id(cell), 0) for cell in cells]


def _plain(text: str) -> str:
    """Return a kernel's text without ANSI escape codes."""
    return COLOR.sub("", text)


def main(folder: Path) -> int:
    """Execute; a leftover kernel and its ranks are ended by the parent (batch.py)."""
    beside = str(Path(sys.executable).parent)  # this environment's mpiexec, for cells
    os.environ["PATH"] = os.pathsep.join([beside, os.environ.get("PATH", "")])
    return execute(folder)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
