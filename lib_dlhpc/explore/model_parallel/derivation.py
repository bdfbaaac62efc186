"""Derivations of module 04: the bubble of a pipeline, and what shrinks it."""

from lib_dlhpc.explore.model_parallel.pipeline import Pipe, formula, kept
from lib_dlhpc.explore.slides.derivation import Derivation, Step

P, M, CHUNKS = 8, 32, 2
bubble = (P - 1) / M
plain = Pipe(ranks=P, microbatches=M, batch=M, schedule="1F1B")
shorter = (P - 1) / (CHUNKS * M)

DERIVATIONS = [
    Derivation(
        "Derivation: the bubble of a pipeline",
        [
            Step(
                r"t_{\text{start}} = (p-1)\,t_f",
                "The last of p equal stages waits until the first microbatch has passed the others.",
            ),
            Step(r"T_f = (p-1)\,t_f + m\,t_f", "Then m microbatches arrive without a gap."),
            Step(
                r"T = (m + p - 1)\,(t_f + t_b)",
                "Backward runs through the stages in the other direction, in the same way.",
            ),
            Step(
                r"T - m\,(t_f + t_b) = (p-1)\,(t_f + t_b)",
                "A GPU computes for m passes of each kind. It is idle for the rest: the bubble.",
            ),
            Step(
                r"\frac{\text{bubble}}{T} = \frac{p-1}{m+p-1}, \quad \frac{\text{bubble}}{\text{work}} = \frac{p-1}{m}",
                "As a share of the step, and of the work.",
            ),
        ],
        f"{P} stages, {M} microbatches: the bubble is {bubble:.1%} of the work and {(P - 1) / (M + P - 1):.1%} of the"
        " step.",
        "Fill the Gantt chart of three stages and four microbatches by hand before the first line. Ask: where in the"
        " chart is the bubble of the first stage, where that of the last? All have the same. Many divide by the work"
        " and call it a share of the step: keep both fractions on the board. 1F1B only reorders the passes, so its"
        " bubble is the same.",
        bubble,
        formula(plain),
    ),
    Derivation(
        "Derivation: what shrinks the bubble",
        [
            Step(
                r"m \ge \frac{p-1}{\varepsilon}",
                "More microbatches: for a bubble of at most ε of the work.",
            ),
            Step(
                r"B_{\text{micro}} = \frac{B}{m} \ge 1",
                "But a microbatch has at least one sample, and thin ones compute slowly.",
            ),
            Step(
                r"t_{\text{chunk}} = \frac{t_f + t_b}{v}",
                "Interleaving: each GPU has v chunks of the network, each 1/v as long.",
            ),
            Step(
                r"(p-1)\,\frac{t_f + t_b}{v} \;\Rightarrow\; \frac{\text{bubble}}{\text{work}} = \frac{p-1}{v\,m}",
                "The pipeline fills in chunks, so the wait shrinks. Messages grow by v.",
            ),
            Step(
                r"\text{stored} = m \;\text{(GPipe)}, \quad \min(m,\; p - r) \;\text{(1F1B)}",
                "Microbatches whose activations rank r stores: 1F1B makes room for a larger m.",
            ),
        ],
        f"{P} stages, {M} microbatches, {CHUNKS} chunks: {shorter:.1%} instead of {bubble:.1%} of the work; the first"
        f" rank of 1F1B stores {kept(plain)[0]:.0f} microbatches, not {M}.",
        "Ask before the third line: the batch may not grow and the bubble is too long, what is left? Let the class"
        " count messages with two chunks. Zero bubble goes further: it moves the weight gradients into the gaps. The"
        " module's schedule control shows each of them.",
        shorter,
        formula(plain._replace(schedule="interleaved, 2 chunks")),
    ),
]
