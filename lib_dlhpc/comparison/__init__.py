"""Compare one experiment's predicted, simulated and measured step time.

comparison.py  compare(experiment, ranks): a Comparison, term by term, with bands and a verdict
sweep.py       the same for each of several settings;  sweep_text.py: in a terminal
placed.py      the experiment mapped onto this machine, with the numbers of `dlhpc calibrate`
short.py       the experiment cut to as many steps as a measurement needs
steady.py      the cost of a step in a real run: the median of its steady steps, by cause
load.py        load by other processes, and when it is too high for a verdict
here.py        one sentence: the predicted step time on this machine
verdict.py     the term with the largest error, and its likely cause
text.py        the table and the bars in a terminal; plain values for JSON
"""

from lib_dlhpc.comparison.comparison import Comparison, compare
from lib_dlhpc.comparison.sweep import Sweep, sweep
from lib_dlhpc.prediction.measured.bands import bands

__all__ = ["Comparison", "Sweep", "bands", "compare", "sweep"]
