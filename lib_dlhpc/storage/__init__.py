"""Real, small counterparts of a large machine's I/O systems.

pack.py         pack(tree, target): a folder of files becomes a few partitions with an index
unfinished.py   where it is written before all of it is there
packed.py       open_store(target, comm): a PackedStore; its files by name, on one process or over ranks
placement.py    which ranks hold which partition; remote.py: questions and answers while the ranks compute
loading.py      partitions into memory, front to back, before anybody reads; memory.py: how much is free
reading.py      packed files from memory and from other ranks, all checked; writing.py: output files, written once
verify.py       verify(target): every problem of a packed store
in_memory.py    what an open file of a store is; why it has no file descriptor
filesystem.py   the store as an fsspec file system, dlhpc://
mount.py        mounted(store, prefix): plain open, os.stat, os.listdir on the prefix go to the store
posix.py        the manners of a file system, for both; calls.py, patches.py: Python's file functions in other hands
partition.py    many files in one, mapped into memory; index.py: which file is where; names.py: what they may be called
checksum.py     of every read; codecs.py: zlib and zstd where they help
snapshots/      SnapshotStore(folder): versions of a training state that share what has not changed
lab/            what the lab on input stands on: calls of a loader, counted
errors.py       StoreError and those that a file system knows as well
"""

from lib_dlhpc.storage.errors import StoreError
from lib_dlhpc.storage.pack import pack
from lib_dlhpc.storage.packed import PackedStore, Stat, open_store
from lib_dlhpc.storage.verify import verify

__all__ = ["PackedStore", "Stat", "StoreError", "open_store", "pack", "verify"]
