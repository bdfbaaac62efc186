"""Snapshots: versions of a training state in one folder, each sharing with the others what has not changed.

store.py      SnapshotStore(folder): save, save_async, load, newest, log, branch, tag, diff, find, gc, verify
version.py    Version: what is written down of a state, and where it stands in the tree of versions
chunks.py     a stream of arrays, cut into pieces that are named by what is in them
objects.py    the files that hold the pieces
reading.py    arrays read back, every byte verified
behind.py     written while training goes on
refs.py       branches and tags: names for versions
lineage.py    the tree of versions as text;  diff.py: what two differ in;  search.py: by step and metrics
sweep.py      what no name reaches is removed;  verify.py: every byte is looked at
plan.py       where the snapshots of a run go;  out.py: a version becomes a run folder
files.py      a file is there whole or not at all; one writer at a time

    objects/NAME             pieces of arrays; the name is the hash of its table of contents
    versions/ID.json         what a version holds; the id is the hash of its content and of its parent's id
    branches/NAME, tags/NAME the id of a version; a version counts from the moment a name reaches it
    format, lock
"""

from lib_dlhpc.storage.snapshots.behind import Saving
from lib_dlhpc.storage.snapshots.chunks import Stream
from lib_dlhpc.storage.snapshots.files import SnapshotError
from lib_dlhpc.storage.snapshots.store import SnapshotStore, open_snapshots
from lib_dlhpc.storage.snapshots.version import Version

__all__ = ["Saving", "SnapshotError", "SnapshotStore", "Stream", "Version", "open_snapshots"]
