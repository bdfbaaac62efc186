"""Types of numpy arrays, by what their elements are."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Array: TypeAlias = NDArray[Any]  # numbers of several types: times and counts, a column of a table
