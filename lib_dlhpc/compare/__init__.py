"""One experiment, every way there is to know its time: predicted, simulated, measured, side by side.

comparison.py  compare(experiment, ranks): a Comparison, term by term, with bands and a verdict
placed.py      the experiment on this machine, with what `dlhpc calibrate` measured
short.py       as many steps of it as it takes
steady.py      what a step of a real run costs: the median of its steady steps, by cause
bands.py       what a prediction may be off by where its machine was measured
verdict.py     which term is off most, and what that suggests
text.py        the table and the bars in a terminal; plain values for JSON
"""

from lib_dlhpc.compare.bands import bands
from lib_dlhpc.compare.comparison import Comparison, compare

__all__ = ["Comparison", "bands", "compare"]
