"""What goes wrong in a store, by name; the ones a file system knows are also the errors that `open` raises."""

from lib_dlhpc.spec.errors import SpecError


class StoreError(SpecError):
    """A store, or a tree to be packed, that cannot be: names the file and, where one is at fault, the partition."""


class NoSuchFile(StoreError, FileNotFoundError):
    """The store has nothing under this name."""


class IsFolder(StoreError, IsADirectoryError):
    """The name is a folder's where a file's was asked for."""


class NotFolder(StoreError, NotADirectoryError):
    """The name is a file's where a folder's was asked for."""


class AlreadyThere(StoreError, FileExistsError):
    """A file is written once; this name is taken."""


class RankLost(StoreError):
    """A rank did not answer in time; `rank` is its number."""

    def __init__(self, message: str, rank: int) -> None:
        super().__init__(message)
        self.rank = rank
