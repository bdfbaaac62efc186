"""Problems of module 04, model parallelism."""

import numpy as np

from lib_dlhpc.explore.model_parallel import pipeline, products
from lib_dlhpc.explore.model_parallel.pipeline import Pipe
from lib_dlhpc.explore.model_parallel.products import Products
from lib_dlhpc.prediction.bubbles import Passes, bubbles
from lib_dlhpc.prediction.pipelined import Ranks, pipeline_time
from lib_dlhpc.prediction.validate import results
from lib_dlhpc.teaching.problems import FADED, PAGE, WORKED, Cases, Problem, Step, Trap

draw: Cases = globals().get("draw", PAGE)

P, V = draw.any([8, 6, 12, 16]), 2
M = P * draw.any([2, 3, 4])
TENSOR = draw.any([Products(gpus=8), Products(gpus=4), Products(gpus=16)])
MORE = TENSOR._replace(gpus=4 * TENSOR.gpus)
buffer = 2 * TENSOR.tokens * TENSOR.width
done = 3 * 2 * 2 * TENSOR.tokens * TENSOR.width * 4 * TENSOR.width / MORE.gpus  # FLOP
F, B, W = draw.any([(10, 12, 9), (14, 17, 11), (20, 22, 15)])  # ms
idle = bubbles(P, Passes(F, B + W, W))
work = M * (F + B + W)
UNEQUAL = np.array(draw.any([(9, 12, 15, 11), (20, 16, 14, 18), (7, 7, 12, 8)]))  # ms
FEW = draw.any([6, 8, 10])
SPLIT, PARTS = draw.any([(8, 32), (8, 4), (4, 4)])  # rows of GPipe's table 2
published = float(results()[f"gpipe19-tpu-tr-k{SPLIT}-m{PARTS}"]["value"])
gain = SPLIT / (1 + (SPLIT - 1) / PARTS)


def faster(ranks: int, microbatches: int) -> float:
    """Return how many times as fast as one GPU the formula says that a pipeline is."""
    pipe = Pipe(ranks=ranks, microbatches=microbatches, batch=microbatches)
    return ranks / (1 + pipeline.formula(pipe))


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
        kind=WORKED,
    ),
    Problem(
        "Four times the GPUs",
        f"{MORE.gpus} GPUs split the same two matmuls. How much does a GPU send in a step now?",
        products.bytes_sent(MORE),
        Step("Bytes of X", buffer, "B"),
        Step("A ring sends of each: 2 (p - 1) / p", 2 * (MORE.gpus - 1) / MORE.gpus * buffer, "B"),
        Step("Two of them", 4 * (MORE.gpus - 1) / MORE.gpus * buffer, "B"),
        kind=FADED,
    ),
    Problem(
        "Work per byte sent",
        f"How many FLOP does each of the {MORE.gpus} GPUs compute per byte that it sends? A has four times as many"
        " columns as X, and B as many as X; each matmul is computed once forward and twice backward.",
        float(products.predicted(MORE).experiment.model.train_flop)
        / MORE.gpus
        / products.bytes_sent(MORE),
        Step("FLOP of a GPU: 3 passes × 2 matmuls × 2 × rows × width × 4 width / p", done, "FLOP"),
        Step("Bytes that it sends", 4 * (MORE.gpus - 1) / MORE.gpus * buffer, "B"),
        Step(
            "The first over the second", done / (4 * (MORE.gpus - 1) / MORE.gpus * buffer), "FLOP/B"
        ),
        traps=[
            Trap(
                MORE.gpus * done / (4 * (MORE.gpus - 1) / MORE.gpus * buffer),
                "Those are the FLOP of all GPUs. Each computes its share, but sends about as much as before.",
            )
        ],
    ),
    Problem(
        "Weight gradients in the bubble",
        f"{P} equal stages run {M} microbatches with ZB-H1 and free messages. A stage takes {F} ms forward, {B} ms for"
        f" gradients of inputs and {W} ms for those of weights. How long does a step take?",
        (work + idle["ZB-H1"].idle) / 1e3,
        Step("Work of a stage", work / 1e3, "s"),
        Step("Bubble: (p - 1) (forward + inputs - weights)", (P - 1) * (F + B - W) / 1e3, "s"),
        Step("Together", (work + (P - 1) * (F + B - W)) / 1e3, "s"),
        traps=[
            Trap(
                (work + idle["1F1B"].idle) / 1e3,
                "That is 1F1B. Weight gradients can wait, and fill a part of the bubble.",
            ),
            Trap(
                (work + (P - 1) * (F + B)) / 1e3,
                "In one pass of the bubble the weight gradients of another microbatch are computed: subtract them.",
            ),
        ],
    ),
    Problem(
        "Unequal stages",
        f"The forward pass of a microbatch takes {UNEQUAL[0]} ms in stage 0, {UNEQUAL[1]} ms in stage 1,"
        f" {UNEQUAL[2]} ms in stage 2 and {UNEQUAL[3]} ms in stage 3, the backward pass twice as long. GPipe runs {FEW}"
        " microbatches, messages are free. How long does a step take?",
        pipeline_time(Ranks(UNEQUAL, 2 * UNEQUAL, np.zeros(3), np.zeros(3)), FEW, "gpipe") / 1e3,
        Step("The first microbatch, forward", UNEQUAL.sum() / 1e3, "s"),
        Step("The others follow the slowest stage", (FEW - 1) * UNEQUAL.max() / 1e3, "s"),
        Step(
            "Both, and twice as long backward",
            3 * (UNEQUAL.sum() + (FEW - 1) * UNEQUAL.max()) / 1e3,
            "s",
        ),
        traps=[
            Trap(
                3 * (FEW + 3) * UNEQUAL.mean() / 1e3,
                "That is for equal stages. Here all others wait for the slowest one.",
            )
        ],
    ),
    Problem(
        "Find the mistake: twice the stages",
        f"{P} equal stages run {M} microbatches, and messages are free. A plan doubles the stages, keeps the"
        " microbatches, and allows half of the time for a step. By how many percent is the step longer than that?",
        100 * (2 * faster(P, M) / faster(2 * P, M) - 1),
        Step("Passes of a stage in a step, forward, before: m + p - 1", M + P - 1),
        Step("After; each takes half as long", M + 2 * P - 1),
        Step("After over before, less 1", 100 * ((M + 2 * P - 1) / (M + P - 1) - 1), "%"),
        traps=[
            Trap(
                100 * P / M,
                "That is the growth of the bubble over the work. The plan's time includes a bubble already.",
            ),
            Trap(
                100 * ((2 * P - 1) / M - (P - 1) / M) / (1 + (2 * P - 1) / M),
                "That is a share of the new step. The plan's time is the base.",
            ),
        ],
    ),
    Problem(
        "Check a published table",
        f"Huang et al. 2019 (GPipe, table 2) report {published} for {SPLIT} accelerators with {PARTS} microbatches: the"
        " throughput over that of 2 accelerators with 1 microbatch. What does p / (1 + (p - 1) / m) give for this"
        " ratio, over the published number? (GPipe recomputes activations, in part during the bubble.)",
        faster(SPLIT, PARTS) / faster(2, 1) / published,
        Step("Of the long pipeline", gain),
        Step("Of 2 accelerators with 1 microbatch", 2 / (1 + 1 / 1)),
        Step("Their ratio over the published one", gain / published),
        traps=[
            Trap(
                gain / 2 / published,
                "With 1 microbatch, 2 accelerators take turns: they are as fast as one, not twice as fast.",
            ),
            Trap(published / gain, "That is the published number over that of the formula."),
        ],
    ),
]
