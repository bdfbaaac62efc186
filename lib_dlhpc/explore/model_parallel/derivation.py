"""Derivations of module 04: the bubble of a pipeline, and what shrinks it."""

from lib_dlhpc.explore.model_parallel.pipeline import Pipe, formula, kept
from lib_dlhpc.explore.slides.derivation import written

P, M, CHUNKS = 8, 32, 2
bubble = (P - 1) / M
plain = Pipe(ranks=P, microbatches=M, batch=M, schedule="1F1B")
shorter = (P - 1) / (CHUNKS * M)
of_step = (P - 1) / (M + P - 1)
stored = kept(plain)[0]

DERIVATIONS = written(
    globals(),
    (bubble, formula(plain)),
    (shorter, formula(plain._replace(schedule="interleaved, 2 chunks"))),
)
