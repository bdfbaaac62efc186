"""How often the exchanges of two stages meet, where ZeRO 2 or 3 exchange with each microbatch of a pipeline.

The longest path of p stages and m microbatches of v chunks has v m + p - 1 passes. On a stage they come one after
another, and d stages further they come d passes later, so v m - d meet those of a stage at a distance of d. The other
passes are in the ramps, where the pipeline fills and drains: the first and the last are alone. Of the p - 1 - d passes
between, half meet: the last microbatches arrive closer together, as stages before them have drained. That half is
observed, in the timelines of events where each node holds two stages. So

    (v m - d + (p - 1 - d) / 2) / (v m + p - 1)

of the exchanges on the path meet those of the other stage. With ZeRO 3 a ramp of ZB-H1 is a third as long, as weight
gradients fill it; with ZeRO 2 these alone exchange, and all stages do so at once. The all-gathers that follow the
update of ZeRO 2 meet as well.

The law is exact for stages of equal weights of which each node holds two, if exchanges take longer than what they
overlap (tests/parallel/test_ramps.py). In the ramps of 1F1B with ZeRO 3 fewer than half of the passes meet.
"""

import numpy as np

from lib_dlhpc.spec.strategy import FORWARD, Strategy


def met(strategy: Strategy) -> tuple[float, ...]:
    """Return which part of the exchanges of a stage meets those of another one, by their distance; () if all do."""
    s, stages = strategy, int(strategy.pipeline)
    if s.zero < 2 or stages == 1 or s.mirrored:
        return ()
    # Exchanges of a chunk: of a microbatch, of a ramp from one stage to the next, after the update.
    each, ramp, after = 1, int(s.schedule != "zb-h1"), 1
    if s.zero == 3 and s.gather != FORWARD:  # two gathers, and gradients
        each, ramp, after = 3, 3 if ramp else 1, 0
    passes = int(s.chunks) * (each * int(s.microbatches) + after)
    apart = np.arange(stages)
    meets = passes - ramp * apart + ramp * (stages - 1 - apart) / 2
    return tuple(np.clip(meets / (passes + ramp * (stages - 1)), 0.0, 1.0).tolist())
