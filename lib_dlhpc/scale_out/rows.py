"""Rows of a sweep as files, one for each chunk: CSV, or Parquet where pyarrow is installed."""

import csv
from importlib.util import find_spec
from pathlib import Path

from lib_dlhpc.errors import SpecError, listed
from lib_dlhpc.extras import missing
from lib_dlhpc.lifetime.files import replacing
from lib_dlhpc.scale_out.work import Arrays

FORMATS = ("csv", "parquet")


def check_format(format: str) -> None:
    """Raise SpecError for an unknown format, or one whose package is not installed."""
    if format not in FORMATS:
        raise SpecError(listed(f"format = {format!r}:", format, FORMATS))
    if format == "parquet" and find_spec("pyarrow") is None:
        raise SpecError(f"format = 'parquet': {missing('pyarrow')}")


def write_rows(folder: Path, number: int, columns: Arrays, format: str) -> None:
    """Write the file of a chunk; numbers in CSV are as Python prints them, so that they are read back to the bit.

    Raises FileNotFoundError without the folder: who made it has removed it, as the sweep has ended.
    """
    with replacing(folder / f"part-{number:06d}.{format}") as temporary:
        if format == "parquet":
            import pyarrow
            from pyarrow import parquet

            parquet.write_table(pyarrow.table(dict(columns)), temporary)
            return
        with open(temporary, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*(each.tolist() for each in columns.values()), strict=True))
