"""Derivations of module 04: the bubble of a pipeline, and what shrinks it."""

from lib_dlhpc.explore.model_parallel.pipeline import Pipe, formula, kept
from lib_dlhpc.explore.slides.derivation import Example, written

P, M, CHUNKS = 8, 32, 2
bubble = (P - 1) / M
plain = Pipe(ranks=P, microbatches=M, batch=M, schedule="1F1B")
shorter = (P - 1) / (CHUNKS * M)

DERIVATIONS = written(
    __file__,
    Example(
        f"{P} stages, {M} microbatches: the bubble is {bubble:.1%} of the work and {(P - 1) / (M + P - 1):.1%} of the"
        " step.",
        bubble,
        formula(plain),
    ),
    Example(
        f"{P} stages, {M} microbatches, {CHUNKS} chunks: {shorter:.1%} instead of {bubble:.1%} of the work; the first"
        f" rank of 1F1B stores {kept(plain)[0]:.0f} microbatches, not {M}.",
        shorter,
        formula(plain._replace(schedule="interleaved, 2 chunks")),
    ),
)
