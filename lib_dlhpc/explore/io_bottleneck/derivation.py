"""Derivations of module 07: the slowest of three limits, and what least recently used hits."""

from math import log

from lib_dlhpc.explore.io_bottleneck.limits import Setting, experiment, found
from lib_dlhpc.explore.slides.derivation import Example, written
from lib_dlhpc.prediction.caching import least_recently_used
from lib_dlhpc.spec.units import format_quantity as show

PER_FILE, CACHED = 3, 0.5
tier = experiment(Setting()).machine.storage["lustre"]
operations, bandwidth = float(tier.metadata_rate), float(tier.bandwidth)
least = PER_FILE * bandwidth / operations
hits = CACHED + (1 - CACHED) * log(1 - CACHED)

DERIVATIONS = written(
    __file__,
    Example(
        f"{operations:,.0f} operations/s, {show(bandwidth, 'B/s')}, o = {PER_FILE}: files below {show(least, 'B')} wait"
        f" for metadata; an ImageNet file has {show(Setting().size, 'B')}.",
        operations / PER_FILE,
        float(found(Setting()).rate),
    ),
    Example(
        f"Half of the data in the cache: LRU hits {hits:.0%}, a cache that never evicts {CACHED:.0%}.",
        hits,
        float(least_recently_used(CACHED)),
    ),
)
