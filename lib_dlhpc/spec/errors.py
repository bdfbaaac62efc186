"""SpecError under its former path."""

from lib_dlhpc.errors import SpecError as SpecError
from lib_dlhpc.errors import suggest as suggest
