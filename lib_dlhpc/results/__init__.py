"""What the verbs return: a short repr, a table in notebooks, a data frame, a chart.

result.py    Result: the base of all results; Summary: one in a few words and a table
frames.py    frame: a pandas or polars data frame of columns
html.py      as_html: a Summary as a table that screen readers can follow
charts.py    stacked bars, lines, Gantt and others, in Altair; imported by `plot` alone
palette.py   the color of each term and of each kind of event
"""

from lib_dlhpc.results.frames import frame
from lib_dlhpc.results.result import Columns, Result, Summary, percent, shown

__all__ = ["Columns", "Result", "Summary", "frame", "percent", "shown"]
