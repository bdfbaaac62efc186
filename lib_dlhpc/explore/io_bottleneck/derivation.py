"""Derivations of module 07: the slowest of three limits, and what least recently used hits."""

from math import log

from lib_dlhpc.explore.io_bottleneck.limits import Setting, experiment, found
from lib_dlhpc.explore.slides.derivation import written
from lib_dlhpc.prediction.storage.caching import least_recently_used

PER_FILE, CACHED = 3, 0.5
tier = experiment(Setting()).machine.storage["lustre"]
operations, bandwidth = float(tier.metadata_rate), float(tier.bandwidth)
least = PER_FILE * bandwidth / operations
hits = CACHED + (1 - CACHED) * log(1 - CACHED)
image = Setting().size

DERIVATIONS = written(
    globals(),
    (operations / PER_FILE, float(found(Setting()).rate)),
    (hits, float(least_recently_used(CACHED))),
)
