"""Files that are whole or not there: written under a temporary name in the same folder, then renamed."""

import gzip
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lib_dlhpc.spec.errors import SpecError

Tell = Callable[[str], None]  # is given a sentence for each thing that a reader assumed or left out


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a path to write a file to, or a folder; it becomes `path` at the end, and goes if there is an error.

    What was at `path` is replaced: whoever calls has looked whether it may be.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        if path.is_dir() and not path.is_symlink():
            old = path.with_name(f".{path.name}.{os.getpid()}.old")
            os.rename(path, old)  # a folder that holds something cannot be renamed onto
            os.rename(temporary, path)
            shutil.rmtree(old)
        else:
            os.replace(temporary, path)
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)


def read_text(path: Path) -> str:
    """Return the text of a file, unpacked if it is gzip. Raises SpecError if it cannot be read."""
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise SpecError(f"{path}: cannot be read: {why}.") from None
    return data.decode("utf-8-sig", errors="replace")
