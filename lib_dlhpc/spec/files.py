"""TOML files of an experiment: read within limits, and the machine that one of them describes."""

import re
import tomllib
from pathlib import Path
from typing import Any

from lib_dlhpc.errors import SpecError

LARGEST_FILE = 1_000_000  # bytes; a real experiment is a few kilobytes


def parsed(source: str) -> dict[str, Any]:
    """Return the tables of a TOML text; raises SpecError."""
    if len(source) > LARGEST_FILE:
        raise SpecError(f"The experiment has {len(source):,} characters; limit: {LARGEST_FILE:,}.")
    try:
        # tomllib is quadratic in the length of a dotted key; no experiment has such keys.
        if any(part.count(".") > 20 for part in re.split(r"[=,{}\[\]\n]", source)):
            raise RecursionError
        return tomllib.loads(source)
    except RecursionError:
        raise SpecError("Tables or lists are nested too deeply for an experiment.") from None
    except ValueError as error:  # also raised for a number of thousands of digits
        json = " It looks like JSON: `dlhpc import model` reads a config.json."
        hint = json if source.lstrip().startswith("{") else ""
        raise SpecError(f"Not valid TOML: {error}.{hint}") from None


def text_of(path: str | Path) -> str:
    """Return the text of a file; raises SpecError if it is too long, OSError, and ValueError if it is not UTF-8."""
    with open(path, "rb") as file:
        data = file.read(LARGEST_FILE + 1)
    if len(data) <= LARGEST_FILE:
        return data.decode("utf-8")
    raise SpecError(f"the file is longer than {LARGEST_FILE:,} bytes, the limit.")


def machine_named(name: str) -> Any:
    """Return the [machine] of a TOML file of that name, or the name, of a machine of the catalog.

    Raises SpecError, OSError, and ValueError for a file that is not UTF-8.
    """
    if not Path(name).is_file():
        return name
    tables = parsed(text_of(name))
    if "machine" not in tables:
        raise SpecError(f"{name}: [machine] is missing.")
    return tables["machine"]
