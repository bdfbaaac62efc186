"""Which share of the run was computation, and what limits it: the efficiencies of the POP project.

With the seconds c(r) that rank r computes, the time T of the run, and its time T' on an ideal network:

    parallel = load balance x communication        mean c / T
    load balance                                   mean c / max c
    communication = serialization x transfer       max c / T
    serialization                                  max c / T'
    transfer                                       T' / T

C. Rosas, J. Giménez, J. Labarta, "Scalability prediction for fundamental performance factors", Supercomputing
Frontiers and Innovations 1(2), 2014, section 2; names as in "POP Standard Metrics for Parallel Performance
Analysis" (pop-coe.eu). How T' is found: replay.py.
"""

from dataclasses import dataclass

from lib_dlhpc.timeline.analysis import buckets, replay
from lib_dlhpc.timeline.analysis.busy import Busy
from lib_dlhpc.timeline.analysis.calls import Calls


@dataclass(frozen=True)
class Efficiency:
    """Factors of 0 to 1, and the time on an ideal network, s."""

    load_balance: float
    serialization: float
    transfer: float
    ideal_seconds: float

    @property
    def communication(self) -> float:
        """What of the time the rank computes that computes most."""
        return self.serialization * self.transfer

    @property
    def parallel(self) -> float:
        """What of the time the ranks compute on average."""
        return self.load_balance * self.communication


def efficiency(found: Calls, busy: Busy) -> Efficiency:
    """Return the efficiencies of a run; all are 0 where nothing is computed."""
    seconds, span = busy.seconds, busy.end - busy.begin
    most = min(float(seconds.max(initial=0.0)), span)  # but for rounding it is so
    if not most:
        return Efficiency(0.0, 0.0, 0.0, span)
    ideal = (replay if busy.calls else buckets).ideal_seconds(found, busy)
    ideal = min(max(ideal, most), span)
    return Efficiency(min(float(seconds.mean()) / most, 1.0), most / ideal, ideal / span, ideal)
