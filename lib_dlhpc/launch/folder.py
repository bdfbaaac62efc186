"""A run folder: one run at a time, with its lock, status files and errors."""

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from lib_dlhpc.errors import SpecError, reason_of
from lib_dlhpc.lifetime.files import remove_unfinished, write_status

STATUS, RESULT, LOG = "status.json", "result.json", "log.txt"
LOST = "Its processes are gone; the launching process was killed before it could record why."
BLOCKS = 1 << 14  # B: with less free space a rank may fail without writing an error file


class JobError(RuntimeError):
    """A failed run; the text names rank and place."""


def clear(folder: Path) -> None:
    """Remove the previous run's result, error files and unfinished files."""
    remove_unfinished(folder)
    for old in (*folder.glob("error-*.json"), *folder.glob("rank-*.json")):
        old.unlink()
    (folder / RESULT).unlink(missing_ok=True)


def lock(log: BinaryIO, folder: Path) -> None:
    """Lock the log. Raises SpecError if a run is in progress: its mpiexec holds the log open, and with it the lock."""
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock
    except ImportError:  # Windows has no such lock
        return
    try:
        flock(log, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        log.close()
        raise SpecError(
            f"{folder}: a run is in progress there; wait for it, or end its mpiexec, whose pid is in status.json."
        ) from None


def ranks_held(folder: Path) -> int | None:
    """Return the number of ranks of a folder's last run; None if unknown."""
    for name in ("job.json", STATUS, RESULT):
        if ranks := read(folder / name).get("ranks"):
            return int(ranks)
    return None


def held(folder: Path) -> bool:
    """Whether a process holds the log: ranks, their launcher, or the submitter. Raises ImportError on Windows."""
    from fcntl import LOCK_NB, LOCK_SH, flock

    try:
        with open(folder / LOG, "rb") as log:
            flock(log, LOCK_SH | LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def run_status(folder: Path) -> dict[str, Any]:
    """Return the status of a folder's run; "failed" if its processes are gone without a final status."""
    table = read(folder / STATUS)
    with suppress(ImportError):
        if table.get("state") == "running" and not held(folder):
            whole = (folder / RESULT).exists()
            table |= {"state": "done"} if whole else {"state": "failed", "reason": LOST}
    return table


def metrics(folder: Path) -> list[dict[str, Any]]:
    """Return rank 0's metrics so far."""
    try:
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        return []
    rows = []
    for line in lines[:-1]:  # the last may be incomplete
        with suppress(ValueError):  # as may one where a run was killed and resumed
            rows.append(json.loads(line))
    return rows


def errors(folder: Path) -> list[dict[str, Any]]:
    """Return the failed ranks' errors, the root cause first: others end because of it."""
    found = [json.loads(path.read_text("utf-8")) for path in folder.glob("error-*.json")]
    return sorted(found, key=lambda error: (error["echo"], error["time"]))


def why_failed(folder: Path, status: int | None) -> str:
    """Return which rank failed first, and where; else mpiexec's exit status and the last line of output."""
    failed = errors(folder)
    if failed:
        first = failed[0]
        at = [f"step {first['step']}"] if first["step"] >= 0 else []
        at += [f"layer {first['layer']}"] if first["layer"] else []
        place = f" ({', '.join(at)})" if at and "step" not in first["text"] else ""
        who = first.get("where") or f"rank {first['rank']}"
        return f"{who}: {first['kind']}: {first['text']}{place}"
    log = (folder / LOG).read_text("utf-8", "replace")
    last = (log.strip() or _no_output(folder)).splitlines()[-1]
    what = "it" if (folder / "task.json").exists() else "mpiexec"
    return f"{what} ended with status {status}: {last}"


def _no_output(folder: Path) -> str:
    """Return why there may be no output at all."""
    full = shutil.disk_usage(folder).free < BLOCKS
    return f"no output, because there is no space left in {folder}" if full else "no output"


def read(path: Path) -> dict[str, Any]:
    """Read a JSON table of a run folder; empty if the file does not exist."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise SpecError(f"{path}: cannot be read: {reason_of(error)}.") from None
    return table if isinstance(table, dict) else {}


def write(path: Path, table: dict[str, Any], private: bool = False) -> None:
    """Write a JSON table atomically, even on a full disk; private: readable by the owner only.

    Raises OSError with the file's name.
    """
    write_status(path, json.dumps(table), mode=0o600 if private else 0o666)
