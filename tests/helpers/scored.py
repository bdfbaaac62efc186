"""The published rows with their predictions, computed once in a test process: they take seconds."""

from functools import cache

from lib_dlhpc.prediction.validate import Validation, validate


@cache
def scored() -> Validation:
    """Return all of them; nobody changes them."""
    return validate()
