"""A temporary folder that goes when nobody needs it, and also when this process is killed.

A page's kernel may end without a word. A shell waits at the other end of a pipe, which the system closes
when the kernel is gone, and removes the folder then. Where there is no such shell (Windows) the folder of a
kernel that is killed stays.
"""

import os
import shutil
import subprocess
import tempfile
import weakref
from pathlib import Path

SHELL = "/bin/sh"
LATE = 30  # s in which ranks end that still write into it


class Folder:
    """A new folder, or one that is there, such as a run's.

    `remove` may be called any number of times, and is when nothing refers to it any more.
    """

    def __init__(self, name: str, path: Path | None = None) -> None:
        self.path = path or Path(tempfile.mkdtemp(prefix=f"dlhpc-{name}-"))
        self.remove = weakref.finalize(self, _remove, self.path, _watcher(self.path))


def _watcher(path: Path) -> "subprocess.Popen[bytes] | None":
    if not os.access(SHELL, os.X_OK):
        return None
    nothing = subprocess.DEVNULL
    return subprocess.Popen(
        [SHELL, "-c", f'read -r _; rm -rf -- "$0" || {{ sleep {LATE}; rm -rf -- "$0"; }}', str(path)],
        stdin=subprocess.PIPE, stdout=nothing, stderr=nothing, start_new_session=True,
    )  # fmt: skip


def _remove(path: Path, watcher: "subprocess.Popen[bytes] | None") -> None:
    shutil.rmtree(path, ignore_errors=True)
    if watcher is not None and watcher.stdin is not None:
        watcher.stdin.close()
        watcher.wait()
