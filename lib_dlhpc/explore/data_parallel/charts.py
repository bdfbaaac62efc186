"""How the charts of the lesson on data parallelism mark their lines."""

from lib_dlhpc.results.palette import SERIES

# No causes of time, so the series' colors; dash and symbol distinguish the lines without them.
FIRST = (SERIES[0], [1, 0], "circle")
SECOND = (SERIES[1], [6, 3], "square")
LINES = {
    "during backward": FIRST,
    "after backward": SECOND,
    "weak": FIRST,
    "strong": SECOND,
    "ideal": (SERIES[6], [2, 3], "diamond"),
    "synchronous": FIRST,
    "asynchronous": SECOND,
    "local": (SERIES[2], [2, 2], "triangle-up"),
}
