"""Problems of module 05, hybrid and spatial parallelism."""

from lib_dlhpc import Experiment, predict
from lib_dlhpc.explore.hybrid_parallel import domain
from lib_dlhpc.explore.hybrid_parallel.map import Ways, experiment_of
from lib_dlhpc.explore.model_parallel import pipeline
from lib_dlhpc.explore.model_parallel.pipeline import Pipe
from lib_dlhpc.prediction.validation.definitions import training_time
from lib_dlhpc.prediction.validation.validate import results
from lib_dlhpc.spec.machine import load_machine
from lib_dlhpc.teaching.problem_texts import Numbers, written
from lib_dlhpc.teaching.problems import PAGE, Cases

draw: Cases = globals().get("draw", PAGE)

layout = experiment_of(Ways(), 8, 12).strategy
GPUS, T, P = 384, int(layout.tensor), int(layout.pipeline)
replicas = GPUS // (T * P)
batch = int(layout.batch) * replicas
HALF = batch // replicas // 2  # microbatches of a replica
EDGE, CHANNELS, SLABS = draw.any([256, 128, 512]), draw.any([16, 8, 32]), draw.any([8, 4])


def sent(kernel: int) -> float:
    """Return the bytes that an inner slab sends in a step for a second convolution; the first one's rows are read."""
    kinds = [
        {"kind": "conv", "channels": CHANNELS, "kernel": each, "padding": each // 2}
        for each in (1, kernel)
    ]
    own = {"family": "sequential", "input": [CHANNELS, EDGE, EDGE], "layers": kinds}
    strategy = {"nodes": 1, "spatial": SLABS, "batch": 1, "precision": "fp32"}
    run = Experiment(model=own, machine="selene", dataset="imagenet", strategy=strategy)
    link = run.machine.intra_node
    return float(predict(run).messages["halo"].bandwidth) * link.bandwidth * link.efficiency


RANKS, POD = draw.any([64, 32, 16]), draw.any(["b200-pod", "h100-pod"])
group = domain.Setting(ranks=RANKS, pod=POD, sent="direct")
apart, joined = (predict(domain.experiment(group, where)) for where in (domain.NODES, domain.RACK))
nic, nvlink = (
    float(link.bandwidth * link.efficiency)
    for link in (apart.experiment.machine.inter_node, joined.experiment.machine.intra_node)
)
outside, others = 100 * (RANKS - 8) / RANKS, 100 * (RANKS - 1) / RANKS
halo = sent(3) - sent(1)
# Rows of table 1 of Narayanan et al. 2021: billions of parameters, GPUs.
ROW, BILLIONS, MANY = draw.any(
    [
        ("megatron21-1t", 1008, 3072),
        ("megatron21-530b", 529.6, 2520),
        ("megatron21-145b", 145.6, 1536),
    ]
)
RATE, TOKENS = 1e12 * float(results()[ROW]["value"]), draw.any([450, 300])
PEAK = float(load_machine("selene").device.peak["fp16"])
work = 8 * BILLIONS * TOKENS * 1e18

PROBLEMS = written(
    globals(),
    replica=Numbers(
        100 * (P - 1) / float(layout.microbatches),
        microbatches=batch / replicas,
        bubble=100 * (P - 1) / (batch / replicas),
    ),
    two_replicas=Numbers(
        100 * pipeline.formula(Pipe(ranks=8, microbatches=64, batch=64, schedule="1F1B")),
        replicas=2,
        microbatches=64,
        bubble=100 * 7 / 64,
    ),
    half=Numbers(
        100 * pipeline.formula(Pipe(ranks=P, microbatches=HALF, batch=HALF, schedule="1F1B")),
        bubble=100 * (P - 1) / HALF,
    ),
    halo=Numbers(
        halo,
        row=CHANNELS * EDGE,
        bytes=4 * CHANNELS * EDGE,
        forward=2 * 4 * CHANNELS * EDGE,
        both=4 * 4 * CHANNELS * EDGE,
    ),
    halo_share=Numbers(
        100 * halo / 2 / (4 * CHANNELS * EDGE**2 / SLABS),
        slab=4 * CHANNELS * EDGE**2 / SLABS,
        share=100 * 2 * SLABS / EDGE,
    ),
    wider_kernel=Numbers(
        sent(5) - sent(1),
        rows=2,
        forward=2 * 2 * 4 * CHANNELS * EDGE,
        both=2 * 4 * 4 * CHANNELS * EDGE,
        per_width=5 / 3 * 4 * 4 * CHANNELS * EDGE,
    ),
    nvlink=Numbers(
        float(apart.messages["experts"].bandwidth / joined.messages["experts"].bandwidth),
        ratio=outside / nic / (others / nvlink),
    ),
    published=Numbers(
        training_time(1e9 * TOKENS, 1e9 * BILLIONS, MANY, RATE),
        time=work / (MANY * RATE),
        without_recomputation=work * 6 / 8 / (MANY * RATE),
    ),
    utilization=Numbers(
        100
        * 6e9
        * BILLIONS
        * 1e9
        * TOKENS
        / (MANY * PEAK * training_time(1e9 * TOKENS, 1e9 * BILLIONS, MANY, RATE)),
        hfu=100 * RATE / PEAK,
        mfu=100 * 6 / 8 * RATE / PEAK,
    ),
)
