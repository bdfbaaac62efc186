"""analyze(timeline): efficiency metrics, wait states and findings of a trace.

calls.py                receives matched with sends, calls matched to collectives
communication_matrix.py bytes from each rank to each other; message sizes
regions.py              seconds by name and rank, with and without what lies within
busy.py                 when each rank computes
waits.py                late senders, late receivers, waits at collectives
efficiency.py           POP efficiencies
replay.py               the run on an ideal network, from calls; buckets.py from exchanges and waits
significance.py         when a difference is more than scatter
finding.py              Finding: what is wrong, where, and how much it costs
late.py                 findings from waits; imbalance.py: computation; links.py: messages; disks.py: storage
no_findings.py          why nothing is found
analysis.py             analyze: all of this
report.py               an analysis in words and as a dictionary
"""

from lib_dlhpc.timeline.analysis.analysis import Analysis, analyze
from lib_dlhpc.timeline.analysis.finding import Finding, Place

__all__ = ["Analysis", "Finding", "Place", "analyze"]
