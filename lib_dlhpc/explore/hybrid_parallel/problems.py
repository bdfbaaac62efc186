"""Problems of module 05, hybrid and spatial parallelism."""

from lib_dlhpc import Experiment, predict
from lib_dlhpc.explore.hybrid_parallel import domain
from lib_dlhpc.explore.hybrid_parallel.map import Ways, experiment_of
from lib_dlhpc.explore.model_parallel import pipeline
from lib_dlhpc.explore.model_parallel.pipeline import Pipe
from lib_dlhpc.prediction.definitions import training_time
from lib_dlhpc.prediction.validate import results
from lib_dlhpc.spec.machine import load_machine
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.problems import FADED, PAGE, WORKED, Cases, Problem, Step, Trap

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

PROBLEMS = [
    Problem(
        "Microbatches of a replica",
        f"{GPUS} GPUs run tensor {T} × pipeline {P}, the rest data, with a batch of {batch:,} sequences, one per"
        " microbatch. How large is"
        " the bubble, compared with the work?",
        100 * (P - 1) / float(layout.microbatches),
        Step("Replicas: GPUs / (t p)", replicas),
        Step("Microbatches of each: batch over replicas", batch / replicas),
        Step("Bubble over work: (p - 1) / m", 100 * (P - 1) / (batch / replicas), "%"),
    ),
    Problem(
        "Two replicas instead of four",
        "64 GPUs run tensor 2 × pipeline 8, with a batch of 128 sequences, one per microbatch. You change to"
        " tensor 4, with half of the replicas."
        " How large is the bubble then, compared with the work?",
        100 * pipeline.formula(Pipe(ranks=8, microbatches=64, batch=64, schedule="1F1B")),
        Step("Replicas: 64 / (4 · 8)", 2),
        Step("Microbatches of each", 64),
        Step("Bubble over work: (p - 1) / m", 100 * 7 / 64, "%"),
    ),
    Problem(
        "Half of the sequences",
        f"The {GPUS} GPUs of problem 1 run half of the sequences in a batch. How large is the bubble, compared with the"
        " work?",
        100 * pipeline.formula(Pipe(ranks=P, microbatches=HALF, batch=HALF, schedule="1F1B")),
        Step("Microbatches of a replica", HALF),
        Step("Bubble over work: (p - 1) / m", 100 * (P - 1) / HALF, "%"),
    ),
    Problem(
        "A halo",
        f"Images of {CHANNELS} channels and {EDGE}² points, 4 B each, are cut into {SLABS} slabs of rows. A"
        " convolution needs one row of"
        " each neighbor in forward; in backward the gradients of these rows are sent back. How much does an inner slab"
        " send for this in a step?",
        halo,
        Step("Numbers of a row: channels times width", CHANNELS * EDGE),
        Step("Bytes of a row", 4 * CHANNELS * EDGE, "B"),
        Step("To two neighbors", 2 * 4 * CHANNELS * EDGE, "B"),
        Step("Forward and backward", 4 * 4 * CHANNELS * EDGE, "B"),
        kind=WORKED,
    ),
    Problem(
        "Its share",
        "What share of its own data does the slab send in forward?",
        100 * halo / 2 / (4 * CHANNELS * EDGE**2 / SLABS),
        Step("Bytes of a slab", 4 * CHANNELS * EDGE**2 / SLABS, "B"),
        Step("The halo over the slab: 2 · slabs / edge", 100 * 2 * SLABS / EDGE, "%"),
        kind=FADED,
    ),
    Problem(
        "A wider kernel",
        "The convolution of problem 4 has a kernel of 5 × 5 instead of 3 × 3. How much does an inner slab send in a"
        " step?",
        sent(5) - sent(1),
        Step("Rows of each neighbor: (k - 1) / 2", 2),
        Step("Forward, to two neighbors", 2 * 2 * 4 * CHANNELS * EDGE, "B"),
        Step("Forward and backward", 2 * 4 * 4 * CHANNELS * EDGE, "B"),
        traps=[
            Trap(
                5 / 3 * 4 * 4 * CHANNELS * EDGE,
                "The halo is what the kernel reaches beyond the slab: 2 rows on each side, not 5/3 as much as before.",
            )
        ],
    ),
    Problem(
        "An NVLink domain",
        f"The experts of a layer are spread over {RANKS} GPUs, and an all-to-all sends each GPU an equal part of every"
        f" GPU's tokens. On nodes of 8 each GPU has a NIC of {nic / 1e9:g} GB/s, and NVLink carries what stays in the"
        f" node meanwhile. In a rack of NVL72, NVLink carries all of it, at {nvlink / 1e9:g} GB/s. How many times as"
        " long does the all-to-all take on nodes of 8? Leave out latency.",
        float(apart.messages["experts"].bandwidth / joined.messages["experts"].bandwidth),
        Step("Share that leaves a node of 8", outside, "%"),
        Step("Share that leaves a GPU in the rack", others, "%"),
        Step("Share over bandwidth, on nodes over in the rack", outside / nic / (others / nvlink)),
    ),
    Problem(
        "Read a published table",
        f"Narayanan et al. 2021 (Megatron-LM, table 1) report {show(RATE, 'FLOP/s')} per GPU for a GPT of"
        f" {BILLIONS:g} billion parameters on {MANY:,} A100. Activations are recomputed, and the rate counts that. How"
        f" long does it take to train on {TOKENS} billion tokens?",
        training_time(1e9 * TOKENS, 1e9 * BILLIONS, MANY, RATE),
        Step("FLOP, with a forward pass more: 8 N per token", work, "FLOP"),
        Step("Over the rate of all GPUs", work / (MANY * RATE), "s"),
        traps=[
            Trap(
                work * 6 / 8 / (MANY * RATE),
                "6 N per token are those of training without recomputation. The rate counts it, so the work must, too.",
            )
        ],
    ),
    Problem(
        "Find the mistake: a utilization",
        f"A slide divides the {show(RATE, 'FLOP/s')} of problem 8 by the peak of an A100, {show(PEAK, 'FLOP/s')}, and"
        " calls the result MFU. What is the MFU?",
        100
        * 6e9
        * BILLIONS
        * 1e9
        * TOKENS
        / (MANY * PEAK * training_time(1e9 * TOKENS, 1e9 * BILLIONS, MANY, RATE)),
        Step("The slide: what the hardware does (HFU)", 100 * RATE / PEAK, "%"),
        Step("Of 8 N, the model needs 6 N", 100 * 6 / 8 * RATE / PEAK, "%"),
        traps=[
            Trap(
                100 * RATE / PEAK,
                "That counts recomputed FLOP (HFU). MFU counts what the model needs.",
            )
        ],
    ),
]
