"""Problems of module 04, model parallelism."""

import numpy as np

from lib_dlhpc.explore.model_parallel import pipeline, products
from lib_dlhpc.explore.model_parallel.pipeline import Pipe
from lib_dlhpc.explore.model_parallel.products import Products
from lib_dlhpc.prediction.pipelines.bubbles import PassTimes, bubbles
from lib_dlhpc.prediction.pipelines.pipelined import RankTimes, pipeline_time
from lib_dlhpc.prediction.validation.validate import results
from lib_dlhpc.teaching.problem_texts import Numbers, written
from lib_dlhpc.teaching.problems import PAGE, Cases

draw: Cases = globals().get("draw", PAGE)

P, V = draw.any([8, 6, 12, 16]), 2
M = P * draw.any([2, 3, 4])
TENSOR = draw.any([Products(gpus=8), Products(gpus=4), Products(gpus=16)])
MORE = TENSOR._replace(gpus=4 * TENSOR.gpus)
buffer = 2 * TENSOR.tokens * TENSOR.width
done = 3 * 2 * 2 * TENSOR.tokens * TENSOR.width * 4 * TENSOR.width / MORE.gpus  # FLOP
F, B, W = draw.any([(10, 12, 9), (14, 17, 11), (20, 22, 15)])  # ms
idle = bubbles(P, PassTimes(F, B + W, W))
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


PROBLEMS = written(
    globals(),
    bubble=Numbers(
        100 * pipeline.formula(Pipe(ranks=P, microbatches=M, batch=M)),
        waits=P - 1,
        bubble=100 * (P - 1) / M,
    ),
    interleaved=Numbers(
        100
        * pipeline.formula(
            Pipe(ranks=P, microbatches=M, batch=M, schedule="interleaved, 2 chunks")
        ),
        chunk=1 / V,
        waits=(P - 1) / V,
        bubble=100 * (P - 1) / (V * M),
    ),
    stored=Numbers(
        pipeline.kept(Pipe(ranks=P, microbatches=M, batch=M, schedule="1F1B"))[2], most=P - 2
    ),
    sends=Numbers(
        products.bytes_sent(TENSOR),
        each=2 * (TENSOR.gpus - 1) / TENSOR.gpus * buffer,
        both=4 * (TENSOR.gpus - 1) / TENSOR.gpus * buffer,
    ),
    four_times=Numbers(
        products.bytes_sent(MORE),
        each=2 * (MORE.gpus - 1) / MORE.gpus * buffer,
        both=4 * (MORE.gpus - 1) / MORE.gpus * buffer,
    ),
    per_byte=Numbers(
        float(products.predicted(MORE).experiment.model.train_flop)
        / MORE.gpus
        / products.bytes_sent(MORE),
        sent=4 * (MORE.gpus - 1) / MORE.gpus * buffer,
        ratio=done / (4 * (MORE.gpus - 1) / MORE.gpus * buffer),
        all_gpus=MORE.gpus * done / (4 * (MORE.gpus - 1) / MORE.gpus * buffer),
    ),
    zero_bubble=Numbers(
        (work + idle["ZB-H1"].idle) / 1e3,
        busy=work / 1e3,
        bubble=(P - 1) * (F + B - W) / 1e3,
        total=(work + (P - 1) * (F + B - W)) / 1e3,
        one_f_one_b=(work + idle["1F1B"].idle) / 1e3,
        no_weights=(work + (P - 1) * (F + B)) / 1e3,
    ),
    unequal=Numbers(
        pipeline_time(RankTimes(UNEQUAL, 2 * UNEQUAL, np.zeros(3), np.zeros(3)), FEW, "gpipe")
        / 1e3,
        first=UNEQUAL.sum() / 1e3,
        others=(FEW - 1) * UNEQUAL.max() / 1e3,
        total=3 * (UNEQUAL.sum() + (FEW - 1) * UNEQUAL.max()) / 1e3,
        equal=3 * (FEW + 3) * UNEQUAL.mean() / 1e3,
    ),
    twice_the_stages=Numbers(
        100 * (2 * faster(P, M) / faster(2 * P, M) - 1),
        before=M + P - 1,
        after=M + 2 * P - 1,
        longer=100 * ((M + 2 * P - 1) / (M + P - 1) - 1),
        bubble=100 * P / M,
        of_new=100 * ((2 * P - 1) / M - (P - 1) / M) / (1 + (2 * P - 1) / M),
    ),
    published=Numbers(
        faster(SPLIT, PARTS) / faster(2, 1) / published,
        two=2 / (1 + 1 / 1),
        ratio=gain / published,
        as_two=gain / 2 / published,
        inverse=published / gain,
    ),
)
