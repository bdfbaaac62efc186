"""A temporary folder that goes when nobody needs it, and also when this process is killed (lifetime/guard.py)."""

import weakref
from pathlib import Path

from lib_dlhpc.lifetime import owned


class Folder:
    """A new folder, or one that is there, such as a run's.

    `remove` may be called any number of times, and is when nothing refers to it any more.
    """

    def __init__(self, name: str, path: Path | None = None) -> None:
        self.path = owned.make_folder(f"dlhpc-{name}-") if path is None else owned.own_folder(path)
        self.remove = weakref.finalize(self, owned.remove_folder, self.path)
