"""Results that resident ranks store from one check to the next: a run on one rank is the same beside any others."""

from typing import Any

KNOWN: dict[str, Any] = {}  # on rank 0, by the file that computes it and what was asked for
