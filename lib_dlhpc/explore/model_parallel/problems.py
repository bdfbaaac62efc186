"""Problems of module 04, model parallelism."""

from lib_dlhpc.explore.model_parallel import pipeline, products
from lib_dlhpc.explore.model_parallel.pipeline import Pipe
from lib_dlhpc.explore.model_parallel.products import Products
from lib_dlhpc.teaching.problems import PAGE, Cases, Problem, Step

draw: Cases = globals().get("draw", PAGE)

P, V = draw.any([8, 6, 12, 16]), 2
M = P * draw.any([2, 3, 4])
TENSOR = draw.any([Products(gpus=8), Products(gpus=4), Products(gpus=16)])
buffer = 2 * TENSOR.tokens * TENSOR.width

PROBLEMS = [
    Problem(
        "A bubble",
        f"{P} equal stages run {M} microbatches with GPipe and free messages. How large is the bubble,"
        " compared with the work?",
        100 * pipeline.formula(Pipe(ranks=P, microbatches=M, batch=M)),
        Step("Passes that a stage waits while the pipeline fills: p - 1", P - 1),
        Step("Passes that it computes, forward: m", M),
        Step("Bubble over work: (p - 1) / m, and the same backward", 100 * (P - 1) / M, "%"),
    ),
    Problem(
        "Interleaved",
        f"The same stages are interleaved, each in {V} chunks. How large is the bubble now?",
        100
        * pipeline.formula(
            Pipe(ranks=P, microbatches=M, batch=M, schedule="interleaved, 2 chunks")
        ),
        Step("A chunk takes this share of a stage: 1 / v", 1 / V),
        Step(
            "Passes of a chunk that a stage waits, in passes of a stage: (p - 1) / v", (P - 1) / V
        ),
        Step("Bubble over work: (p - 1) / (v m)", 100 * (P - 1) / (V * M), "%"),
    ),
    Problem(
        "Stored microbatches",
        f"{P} stages run {M} microbatches with 1F1B. For how many microbatches at most does rank 2 (counted from 0)"
        " store activations?",
        pipeline.kept(Pipe(ranks=P, microbatches=M, batch=M, schedule="1F1B"))[2],
        Step("1F1B: at most p - r", P - 2),
    ),
    Problem(
        "What a GPU sends",
        f"Two matmuls are split by columns, then rows, over {TENSOR.gpus} GPUs: X has {TENSOR.tokens:,} rows"
        f" of {TENSOR.width:,} numbers of 2 B. Forward"
        f" and backward each allreduce a matrix like X, with a ring. How much does a GPU send in a step?",
        products.bytes_sent(TENSOR),
        Step("Bytes of X", buffer, "B"),
        Step(
            "A ring sends of each: 2 (p - 1) / p", 2 * (TENSOR.gpus - 1) / TENSOR.gpus * buffer, "B"
        ),
        Step("Two of them", 4 * (TENSOR.gpus - 1) / TENSOR.gpus * buffer, "B"),
    ),
]
