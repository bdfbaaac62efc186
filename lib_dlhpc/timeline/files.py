"""The text of a trace, packed or not; how they are written is in lifetime/files.py."""

import zlib
from collections.abc import Callable
from pathlib import Path

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.unpack import gunzip

Tell = Callable[[str], None]  # receives a sentence for each thing that a reader assumed or omitted


def read_text(path: Path) -> str:
    """Return the text of a file, unpacked if it is gzip. Raises SpecError if it cannot be read."""
    try:
        data = path.read_bytes()
        text = gunzip(data) if data[:2] == b"\x1f\x8b" else data
    except (OSError, EOFError, ValueError, zlib.error) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise SpecError(f"{path}: cannot be read: {why}.") from None
    return text.decode("utf-8-sig", errors="replace")
