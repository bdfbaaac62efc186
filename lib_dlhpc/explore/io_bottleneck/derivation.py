"""Derivations of module 07: the slowest of three limits, and what least recently used hits."""

from math import log

from lib_dlhpc.explore.io_bottleneck.limits import Setting, experiment, found
from lib_dlhpc.explore.slides.derivation import Derivation, Step
from lib_dlhpc.prediction.caching import least_recently_used
from lib_dlhpc.spec.units import format_quantity as show

PER_FILE, CACHED = 3, 0.5
tier = experiment(Setting()).machine.storage["lustre"]
operations, bandwidth = float(tier.metadata_rate), float(tier.bandwidth)
least = PER_FILE * bandwidth / operations
hits = CACHED + (1 - CACHED) * log(1 - CACHED)

DERIVATIONS = [
    Derivation(
        "Derivation: which limit feeds the GPUs",
        [
            Step(
                r"R\,o \le \Lambda, \qquad R\,b \le B",
                "R samples per second need o operations and b bytes each. Servers do Λ operations, and B bytes.",
            ),
            Step(
                r"R\,\tau \le N_r",
                "Each sample takes a reader for τ seconds, and there are only N readers.",
            ),
            Step(
                r"R = \min\Big(\frac{\Lambda}{o},\; \frac{B}{b},\; \frac{N_r}{\tau}\Big)",
                "All three hold at once, so the lowest decides.",
            ),
            Step(
                r"\frac{\Lambda}{o} = \frac{B}{b^{*}} \;\Rightarrow\; b^{*} = \frac{o\,B}{\Lambda}",
                "Smaller files than this are limited by metadata, larger ones by bytes.",
            ),
            Step(
                r"t_{\text{wait}} = \max\Big(0,\; \frac{G}{R} - t_{\text{step}}\Big)",
                "A step reads G samples meanwhile. Only what takes longer than the step is exposed.",
            ),
        ],
        f"{operations:,.0f} operations/s, {show(bandwidth, 'B/s')}, o = {PER_FILE}: files below {show(least, 'B')} wait"
        f" for metadata; an ImageNet file has {show(Setting().size, 'B')}.",
        "Little's law is the second line: readers in use are the rate times the time of a sample. Ask before the"
        " fourth line: files of 100 kB, will twice the bandwidth help? Not at all. Ask after the last: which two ways"
        " are there to get rid of the wait without a faster file system? Packed files, so that o is zero, or reading"
        " from other nodes.",
        operations / PER_FILE,
        float(found(Setting()).rate),
    ),
    Derivation(
        "Derivation: what LRU hits",
        [
            Step(
                r"D(u, v) = u + v - u\,v",
                "What is read between two uses: the last u of an epoch, the first v of the next. u v is in both.",
            ),
            Step(
                r"u + v - u\,v < c \;\Leftrightarrow\; u < \frac{c - v}{1 - v}",
                "LRU holds the last c of all samples. A sample is a hit if less was read meanwhile.",
            ),
            Step(
                r"h = \int_0^{c} \frac{c - v}{1 - v}\,dv",
                "u and v are random in 0 to 1. From v = c on, nothing hits any more.",
            ),
            Step(
                r"h = \int_0^{c} \Big(1 - \frac{1 - c}{1 - v}\Big)\,dv = c + (1-c)\,\ln(1-c)",
                "Split the fraction and integrate.",
            ),
        ],
        f"Half of the data in the cache: LRU hits {hits:.0%}, a cache that never evicts {CACHED:.0%}.",
        "Random order, everything read once per epoch. Ask before the first line: you cache half of the data, which"
        " share of the reads hits? Nearly all say one half. Ask after the second: where in the epoch are the hits? At"
        " its start; then LRU has thrown out what comes next. The page simulates it beside the formula.",
        hits,
        float(least_recently_used(CACHED)),
    ),
]
