"""Snapshots: deduplicated versions of a training state in one folder.

store.py              SnapshotStore(folder): save, save_async, load, newest, log, branch, tag, diff, find, gc, verify
version.py            Version: the record of a state and its place in the tree of versions
chunks.py             content-addressed chunks of a stream of arrays
objects.py            the files that hold the chunks
reading.py            arrays read back, every byte verified
async_save.py         asynchronous saving
refs.py               branches and tags: names for versions
lineage.py            the tree of versions as text;  diff.py: differences of two;  search.py: by step and metrics
garbage_collection.py garbage collection;  verify.py: every byte is verified
plan.py               where a run saves its snapshots;  checkout.py: a version becomes a run folder
files.py              atomic file writes; one writer at a time

    objects/NAME             chunks of arrays; the name is the hash of its table of contents
    versions/ID.json         the record of a version; the id is the hash of its content and of its parent's id
    branches/NAME, tags/NAME the id of a version; a version is published when a name reaches it
    format, lock
"""

from lib_dlhpc.storage.snapshots.async_save import Saving
from lib_dlhpc.storage.snapshots.chunks import Stream
from lib_dlhpc.storage.snapshots.files import SnapshotError
from lib_dlhpc.storage.snapshots.store import SnapshotStore, open_snapshots
from lib_dlhpc.storage.snapshots.version import Version

__all__ = ["Saving", "SnapshotError", "SnapshotStore", "Stream", "Version", "open_snapshots"]
