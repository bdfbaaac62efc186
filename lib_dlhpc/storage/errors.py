"""Errors of a store; those that a file system has are also the OSErrors that `open` raises."""

from lib_dlhpc.errors import SpecError


class StoreError(SpecError):
    """An invalid store, or tree to be packed: names the file and, if known, the partition."""


class NoSuchFile(StoreError, FileNotFoundError):
    """The store has nothing under this name."""


class IsFolder(StoreError, IsADirectoryError):
    """The name is a folder's where a file was expected."""


class NotFolder(StoreError, NotADirectoryError):
    """The name is a file's where a folder was expected."""


class AlreadyThere(StoreError, FileExistsError):
    """A file is write-once; this name exists."""


class RankLost(StoreError):
    """A rank did not answer in time; `rank` is its number."""

    def __init__(self, message: str, rank: int) -> None:
        super().__init__(message)
        self.rank = rank
