"""A data frame of columns, by whichever library is installed."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

LIBRARIES = ("pandas", "polars")  # in the order of preference; both are optional


def frame(columns: Mapping[str, Sequence[Any]]) -> Any:
    """Return a pandas DataFrame, or a polars one where pandas is missing.

    Raises ModuleNotFoundError without either. `polars.DataFrame(result.to_columns())` picks the library itself.
    """
    for library in LIBRARIES:
        try:
            module = import_module(library)
        except ModuleNotFoundError as error:
            if error.name != library:
                raise
            continue
        return module.DataFrame(dict(columns))
    raise ModuleNotFoundError(
        "A data frame needs pandas or polars: pip install pandas", name="pandas"
    )
