"""Derivation of module 02: what overlap hides of the allreduces."""

import numpy as np

from lib_dlhpc.explore.slides.derivation import written
from lib_dlhpc.prediction.communication.overlap import exposed_time

BACKWARD, BUCKETS, EACH = 0.150, 5, 0.020  # s, s of an allreduce
hidden = min((BUCKETS - 1) * EACH, (1 - 1 / BUCKETS) * BACKWARD)
ready = BACKWARD * np.arange(1, BUCKETS + 1) / BUCKETS
exposed = float(exposed_time(ready, np.full(BUCKETS, EACH), BACKWARD))

DERIVATIONS = written(globals(), (hidden, BUCKETS * EACH - exposed))
