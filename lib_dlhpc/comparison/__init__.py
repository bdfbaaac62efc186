"""One experiment, every way there is to know its time: predicted, simulated, measured, side by side.

comparison.py  compare(experiment, ranks): a Comparison, term by term, with bands and a verdict
sweep.py       the same for each of several settings;  sweep_text.py: in a terminal
placed.py      the experiment on this machine, with what `dlhpc calibrate` measured
short.py       as many steps of it as it takes
steady.py      what a step of a real run costs: the median of its steady steps, by cause
load.py        what other processes take of the machine, and when that is too much for a verdict
here.py        what a run should take on this machine, in a sentence
bands.py       what a prediction may be off by where its machine was measured
verdict.py     which term is off most, and what that suggests
text.py        the table and the bars in a terminal; plain values for JSON
"""

from lib_dlhpc.comparison.bands import bands
from lib_dlhpc.comparison.comparison import Comparison, compare
from lib_dlhpc.comparison.sweep import Sweep, sweep

__all__ = ["Comparison", "Sweep", "bands", "compare", "sweep"]
