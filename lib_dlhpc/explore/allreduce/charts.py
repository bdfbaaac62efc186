"""How the charts of the allreduce lesson name and mark the algorithms, and the causes of their time."""

from lib_dlhpc.results.palette import SERIES

# No causes of time, so the series' colors; dash and symbol distinguish the lines without them.
LINES = {
    "recursive_doubling": (SERIES[1], [1, 0], "circle"),
    "rabenseifner": (SERIES[0], [9, 3], "square"),
    "ring": (SERIES[2], [2, 2], "triangle-up"),
    "torus_2d": (SERIES[3], [7, 2, 2, 2], "diamond"),
    "binomial": (SERIES[4], [4, 4], "cross"),
    "hierarchical": (SERIES[5], [1, 2], "triangle-down"),
    "MPI_Allreduce": (SERIES[6], [1, 1], "cross"),
}
NAMES = {"rabenseifner": "Rabenseifner", "torus_2d": "2-D torus"}
CAUSES = {"latency": SERIES[4], "bandwidth": SERIES[0], "reduction": SERIES[2]}
KINDS = {  # of messages
    "reduce": (SERIES[0], [1, 0], "circle"),
    "copy": (SERIES[1], [5, 4], "square"),
}


def name_of(algorithm: str) -> str:
    """Return how texts call an algorithm."""
    return NAMES.get(algorithm, algorithm.replace("_", " "))
