"""Write a hand-out without the labs that are given later: links to them become words.

    git archive --prefix=lib_dlhpc/ HEAD | python instructor_notes/hand_out.py build/student.tar.gz 02_overlap ...

The archive comes without these labs. The standard library is enough: no environment is needed.
"""

import gzip
import io
import re
import sys
import tarfile
from collections.abc import Sequence
from typing import BinaryIO

PAGES = (".md", ".ipynb")


def words_for_links(text: str, labs: Sequence[str]) -> str:
    """Return a page in which links to labs that are given later are words."""
    for lab in labs:
        text = re.sub(rf"\[([^][]+)\]\([^()\s]*\b{re.escape(lab)}/[^()\s]*\)", r"\1 (later)", text)
    return text


def hand_out(source: BinaryIO, file: str, labs: Sequence[str]) -> None:
    """Copy a tar archive to a gzipped one, the pages without links to `labs`."""
    with (
        tarfile.open(fileobj=source, mode="r|") as given,
        open(file, "wb") as raw,
        gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|") as written,
    ):
        for each in given:
            data = given.extractfile(each) if each.isfile() else None
            if data is None:
                written.addfile(each)
                continue
            content = data.read()
            if each.name.endswith(PAGES):
                content = words_for_links(content.decode("utf-8"), labs).encode("utf-8")
                each.size = len(content)
            written.addfile(each, io.BytesIO(content))


if __name__ == "__main__":
    hand_out(sys.stdin.buffer, sys.argv[1], sys.argv[2:])
