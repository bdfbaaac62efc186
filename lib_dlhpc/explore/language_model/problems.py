"""Problems of module 12, training a large language model."""

import numpy as np

from lib_dlhpc.explore.language_model import derivation, layout
from lib_dlhpc.explore.language_model.derivation import NIC, RATE
from lib_dlhpc.explore.language_model.layout import GPUS, SEQUENCES, predicted
from lib_dlhpc.explore.language_model.layout import Setting as Layout
from lib_dlhpc.prediction.pipelined import Ranks, pipeline_time
from lib_dlhpc.teaching.problems import PAGE, Cases, Problem, Step

draw: Cases = globals().get("draw", PAGE)

STAGES, MICROBATCHES = draw.any([16, 8, 12]), draw.any([32, 24, 48, 64])
FORWARD, BACKWARD = draw.any([(0.1, 0.2), (0.2, 0.4), (0.3, 0.5)])
CONTEXT = draw.any([derivation.setting.context, 4, 32, 64])
work = MICROBATCHES * (FORWARD + BACKWARD)
free = np.zeros(STAGES - 1)
passes = (np.full(STAGES, FORWARD), np.full(STAGES, BACKWARD))
pipeline = pipeline_time(Ranks(*passes, free, free), MICROBATCHES, "1f1b")
own = predicted(Layout())
flop, seconds = float(own.experiment.model.train_flop), float(own.step_time)
PEAK = 989e12
rate = flop * SEQUENCES / GPUS / seconds
alone = predicted(layout.ALONE)
weights, replicas = float(alone.experiment.model.parameters), int(alone.experiment.strategy.nodes)
UNITS, hops = layout.LAYERS, replicas - 1
wire = alone.experiment.machine.inter_node
link, latency = float(wire.bandwidth * wire.efficiency), float(wire.latency)
gathered = alone.messages["data"]

PROBLEMS = [
    Problem(
        "A bubble",
        f"{STAGES} equal stages, 1F1B, {MICROBATCHES} microbatches; a stage takes {FORWARD:g} s forward and"
        f" {BACKWARD:g} s backward. Messages are free. What share of the step is bubble?",
        100 * (1 - work / float(pipeline)),
        Step("Work of a stage", work, "s"),
        Step(
            "Bubble: (p - 1) passes forward and backward", (STAGES - 1) * (FORWARD + BACKWARD), "s"
        ),
        Step("Over work and bubble", 100 * (STAGES - 1) / (MICROBATCHES + STAGES - 1), "%"),
    ),
    Problem(
        "FSDP over all nodes",
        f"{weights / 1e9:.1f} billion weights in {UNITS} units on {GPUS:,} GPUs. The 8 GPUs of a node split each layer;"
        f" {replicas:,} replicas shard all state (ZeRO 3, bf16). A GPU's NIC carries {link / 1e9:.0f} GB/s, a message"
        f" has a latency of {latency * 1e6:.0f} us, and rings exchange each unit. Sums are free, and a replica has one"
        " microbatch. How long are the exchanges of a step?",
        float(gathered.latency + gathered.bandwidth),
        Step("Exchanges of a unit: gathered twice, reduced once", 3),
        Step("Latency: 3 exchanges, units, replicas - 1", 3 * UNITS * hops * latency, "s"),
        Step(
            "Bytes: 3 exchanges of 2 bytes for each of a GPU's weights",
            3 * 2 * weights / 8 * hops / replicas / link,
            "s",
        ),
        Step(
            "Both", 3 * UNITS * hops * latency + 3 * 2 * weights / 8 * hops / replicas / link, "s"
        ),
    ),
    Problem(
        "A hidden ring",
        f"Llama 3 8B: heads {derivation.width:,} wide, keys and values {derivation.keys:,} each, in 16 bits. A sequence"
        f" is divided over {CONTEXT} GPUs in a ring; each achieves {RATE / 1e12:.0f} TFLOP/s and"
        f" passes on {NIC / 1e9:.0f} GB/s. Half of each block is masked. From how many tokens on is the ring hidden?",
        CONTEXT * RATE / NIC * derivation.block / derivation.flop_over_bytes(),
        Step("Tokens of a rank: 2 h_kv / h times F / W", derivation.least),
        Step("Tokens of a sequence", CONTEXT * derivation.least),
    ),
    Problem(
        "MFU",
        f"A sequence of 8,192 tokens takes {flop / 1e15:.4g} PFLOP to train Llama 3 405B. {GPUS:,} GPUs with a peak"
        f" of 989 TFLOP/s train {SEQUENCES:,} of them in {seconds:.4g} s. What is the MFU?",
        100 * float(own.utilization),
        Step("FLOP of a GPU in a step", flop * SEQUENCES / GPUS, "FLOP"),
        Step("Over the time of a step", rate, "FLOP/s"),
        Step("Over the peak", 100 * rate / PEAK, "%"),
    ),
]
