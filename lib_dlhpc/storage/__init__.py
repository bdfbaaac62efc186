"""Real, small counterparts of an HPC system's I/O stack.

pack.py         pack(tree, target): a folder of files becomes a few partitions with an index
unfinished.py   locked temporary folder, renamed when complete
packed.py       open_store(target, comm): a PackedStore; its files by name, on one process or over ranks
placement.py    which ranks hold which partition; remote.py: requests between ranks that compute
loading.py      sequential preloading of partitions into memory; memory.py: available memory
reading.py      packed files from memory and from other ranks, verified; writing.py: output files, write-once
verify.py       verify(target): every problem of a packed store
in_memory.py    file objects without a file descriptor
filesystem.py   the store as an fsspec file system, dlhpc://
mount.py        mounted(store, prefix): plain open, os.stat, os.listdir on the prefix go to the store
posix.py        POSIX semantics, for both; calls.py, patches.py: replacements of Python's file functions
partition.py    many files in one, memory-mapped; index.py: file locations; names.py: legal file names
checksum.py     of every read; codecs.py: zlib and zstd where they help
snapshots/      SnapshotStore(folder): deduplicated versions of a training state
lab/            base of the input lab: a loader's file calls, counted
errors.py       StoreError and its OSError subclasses
"""

from lib_dlhpc.storage.errors import StoreError
from lib_dlhpc.storage.pack import pack
from lib_dlhpc.storage.packed import PackedStore, Stat, open_store
from lib_dlhpc.storage.verify import verify

__all__ = ["PackedStore", "Stat", "StoreError", "open_store", "pack", "verify"]
