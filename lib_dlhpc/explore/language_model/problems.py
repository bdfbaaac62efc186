"""Problems of module 12, training a large language model."""

import numpy as np

from lib_dlhpc import load
from lib_dlhpc.explore.hybrid_parallel import domain
from lib_dlhpc.explore.language_model import derivation, experts, layout
from lib_dlhpc.explore.language_model.derivation import NIC, RATE
from lib_dlhpc.explore.language_model.layout import GPUS, SEQUENCES, predicted
from lib_dlhpc.explore.language_model.layout import Setting as Layout
from lib_dlhpc.explore.memory_wall import adapters
from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.prediction.pipelined import Ranks, pipeline_time
from lib_dlhpc.prediction.published import results
from lib_dlhpc.teaching.problems import FADED, PAGE, WORKED, Cases, Problem, Step, Trap

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

# Quantized weights: a block of values shares a scale of 8 bits, 256 of these one of 32 bits (Dettmers et al. 2023).
BLOCK = draw.any([64, 128, 32])
bits = 4 + 8 / BLOCK + 32 / (256 * BLOCK)
whole = adapters.tuned().experiment.model.parameters
matmuls = (2 * whole - adapters.frozen(0.0)) / 2  # weights of the blocks

RANKS = draw.any([64, 32, 16])
mixture = predict(experts.experiment(experts.Setting(experts=RANKS)))
layers = [each for each in mixture.experiment.model.layers if each.traits.tensor == "experts"]
CHOSEN, HIDDEN = int(layers[0].attributes["chosen"]), int(layers[0].output_shape[-1])
nic = float(mixture.experiment.machine.inter_node.bandwidth)
nic *= float(mixture.experiment.machine.inter_node.efficiency)


def all_to_all(step: Breakdown) -> float:
    """Return the s that one sequence's tokens travel in a layer of experts, forward, recomputed and backward."""
    strategy = step.experiment.strategy
    each = len(layers) / int(strategy.pipeline) * int(strategy.microbatches)
    return float(step.messages["experts"].bandwidth) / each


over_nics = 4096 * 12 * CHOSEN * HIDDEN * (RANKS - 8) / RANKS / nic
over_more = over_nics * (2 * RANKS - 8) / (2 * RANKS) / ((RANKS - 8) / RANKS)
waited = all_to_all(mixture) / over_nics - 1

RACK = draw.any([1.2e15, 0.9e15, 1.5e15])  # FLOP/s that a GPU of the domain achieves
rack = predict(domain.experiment(domain.Setting(ranks=RANKS, sent="direct"), domain.RACK))
nvlink = rack.experiment.machine.intra_node
speed = float(nvlink.bandwidth * nvlink.efficiency)
WIDTH = int(layers[0].attributes["features"])
arithmetic = 4 * float(layers[0].forward_flop) / RACK  # forward twice, backward
narrowest = 12 / 24 * RACK / speed * (RANKS - 1) / RANKS

FORMAT, ROW = draw.any([("NVFP4", "nvfp4-256"), ("MXFP8", "mxfp8-256")])
tokens = float(results()[f"bridge-llama3-405b-gb200-{ROW}"]["value"])
sharded = float(gathered.bandwidth) * replicas / hops  # as if for infinitely many replicas
exchange = 6 * weights / (8 * link)

SHORT, LONG = 32_768, draw.any([262_144, 131_072, 65_536])  # tokens of a sequence
slow, fast = (
    float(results()[f"titan-llama3-405b-h100-512-{length}"]["value"]) for length in (LONG, SHORT)
)
LLAMA = load("llama3-405b@h100-pod")
attention = [each for each in LLAMA.model.layers if each.kind == "fused_attention"]
BLOCKS, WIDE = len(attention), int(attention[0].output_shape[-1])


def per_token(length: int) -> float:
    """Return the FLOP that training takes for a token of a sequence of that many."""
    return float(LLAMA.set({"model.sequence": length}).model.train_flop) / length


pairs = 12 * BLOCKS * WIDE  # FLOP of attention for a token, over the tokens of its sequence
matmul = (per_token(SHORT) - pairs * SHORT) / 6
counted = [6 * matmul + pairs * length for length in (SHORT, LONG)]
ON = draw.any([128, 256, 512])
bf16, fp8 = (
    float(results()[f"dgxc-llama3-405b-gb200-{form}-{ON}"]["value"]) for form in ("bf16", "fp8")
)
halved = 2 * (bf16 - fp8)  # s of the part that fp8 halves, in bf16

PROBLEMS = [
    Problem(
        "A bubble",
        f"A pipeline of {STAGES} equal stages runs {MICROBATCHES} microbatches with 1F1B. For each a stage takes"
        f" {FORWARD:g} s forward and {BACKWARD:g} s backward. Messages take no time. What share of the step is bubble?",
        100 * (1 - work / float(pipeline)),
        Step("Work of a stage: all microbatches, forward and backward", work, "s"),
        Step(
            "Bubble: (p - 1) passes forward and backward", (STAGES - 1) * (FORWARD + BACKWARD), "s"
        ),
        Step(
            "Bubble over the sum of work and bubble",
            100 * (STAGES - 1) / (MICROBATCHES + STAGES - 1),
            "%",
        ),
    ),
    Problem(
        "FSDP over all nodes",
        f"A network of {weights / 1e9:.1f} billion parameters in {UNITS} units trains on {GPUS:,} GPUs. The 8 GPUs of a"
        f" node split each layer; {replicas:,} replicas shard all state (ZeRO 3, bf16). A GPU's NIC carries"
        f" {link / 1e9:.0f} GB/s, and a message has a latency of {latency * 1e6:.0f} us. The replicas all-gather and"
        " reduce-scatter each unit in a ring. Sums are free, and a replica has one microbatch. How long does the"
        " communication of a step take?",
        float(gathered.latency + gathered.bandwidth),
        Step("Exchanges of a unit: two all-gathers, one reduce-scatter", 3),
        Step(
            "Latency: 3 times units times (replicas - 1) messages", 3 * UNITS * hops * latency, "s"
        ),
        Step(
            "Bytes: 3 times 2 bytes for each weight of a GPU, less the replica's own share, over the NIC",
            3 * 2 * weights / 8 * hops / replicas / link,
            "s",
        ),
        Step(
            "Sum of the two",
            3 * UNITS * hops * latency + 3 * 2 * weights / 8 * hops / replicas / link,
            "s",
        ),
    ),
    Problem(
        "A hidden ring",
        f"In Llama 3 8B the queries of a token have h = {derivation.width:,} numbers, its keys and its values"
        f" h_kv = {derivation.keys:,} each, in 16 bits. {CONTEXT} GPUs in a ring share a sequence. Each achieves"
        f" F = {RATE / 1e12:.0f} TFLOP/s and sends W = {NIC / 1e9:.0f} GB/s. Half of each block of attention is masked."
        " From how many tokens per sequence on is the ring hidden?",
        CONTEXT * RATE / NIC * derivation.block / derivation.flop_over_bytes(),
        Step("Tokens per rank: 2 h_kv / h times F / W", derivation.least),
        Step("Tokens per sequence: times the ranks", CONTEXT * derivation.least),
    ),
    Problem(
        "MFU",
        f"Training Llama 3 405B on a sequence of 8,192 tokens takes {flop / 1e15:.4g} PFLOP. In one step {GPUS:,} GPUs"
        f" with a peak of 989 TFLOP/s each train on {SEQUENCES:,} sequences in {seconds:.4g} s. What is the MFU?",
        100 * float(own.utilization),
        Step("FLOP per GPU and step", flop * SEQUENCES / GPUS, "FLOP"),
        Step("FLOP/s of a GPU: that over the time of a step", rate, "FLOP/s"),
        Step("MFU: that over the peak", 100 * rate / PEAK, "%"),
    ),
    Problem(
        "Frozen in four bits",
        f"QLoRA stores the {matmuls / 1e9:.3f} billion parameters of Llama 3 8B's blocks in NF4: 4 bits per weight, a"
        f" scale of 8 bits for every {BLOCK} weights, and another scale of 32 bits for every 256 of these scales. The"
        f" other {(whole - matmuls) / 1e9:.3f} billion parameters stay in 16 bits. How much memory do all of these"
        " frozen weights take?",
        adapters.frozen(bits),
        Step("Bits per weight of a block, scales included", bits),
        Step("Memory of the blocks", matmuls * bits / 8, "B"),
        Step("Memory of the other parameters", 2 * (whole - matmuls), "B"),
        Step("Memory of both", matmuls * bits / 8 + 2 * (whole - matmuls), "B"),
    ),
    Problem(
        "Tokens to experts",
        f"A layer of DeepSeek-V3 sends each token, {HIDDEN:,} numbers of 2 B, to {CHOSEN} experts and back: in the"
        " forward pass, again when the block is recomputed, and as gradients in the backward pass. The layer's experts"
        f" are on {RANKS} GPUs in nodes of 8, and each of these GPUs receives equally many copies. A GPU's NIC carries"
        f" {nic / 1e9:g} GB/s; copies that stay in the node use NVLink at the same time. How long does it take to send"
        " the 4,096 tokens of a GPU in one layer? (The prediction is"
        f" {100 * waited:.1f}% longer: in some steps of the exchange NVLink is the slower link.)",
        over_nics,
        Step("Bytes per token: 6 trips for each expert, 2 B per number", 12 * CHOSEN * HIDDEN, "B"),
        Step("Bytes of 4,096 tokens", 4096 * 12 * CHOSEN * HIDDEN, "B"),
        Step("Share of them that leaves the node", 100 * (RANKS - 8) / RANKS, "%"),
        Step("Bytes that leave the node over the NIC's rate", over_nics, "s"),
        kind=WORKED,
    ),
    Problem(
        "Experts in an NVLink domain",
        f"The exchange of problem 6 now takes place among {RANKS} GPUs that NVLink joins at {speed / 1e9:g} GB/s; each"
        f" computes at {RACK / 1e15:g} PFLOP/s. An expert has three matrices, each of hidden size times the expert's"
        " width. From which width on does the arithmetic of the experts take longer than the exchange, so that it could"
        " hide the exchange?",
        WIDTH * all_to_all(rack) / arithmetic,
        Step("Bytes per copy, divided by the hidden size: 6 trips of 2 B", 12),
        Step(
            "FLOP per copy, divided by hidden size and width: 6 forward, 6 recomputed, 12 backward",
            24,
        ),
        Step(
            "Width: 12 / 24 times FLOP/s over B/s, times the share of copies that leave a GPU",
            narrowest,
        ),
        kind=FADED,
    ),
    Problem(
        "On twice as many GPUs",
        f"The experts of problem 6 are spread over {2 * RANKS} GPUs instead, each with as many tokens as before. By how"
        " many percent does its exchange over the NICs get longer?",
        100 * (over_more / over_nics - 1),
        Step("Share that leaves the node, before", 100 * (RANKS - 8) / RANKS, "%"),
        Step("Share that leaves it now", 100 * (2 * RANKS - 8) / (2 * RANKS), "%"),
        Step("The second over the first, less 1", 100 * (over_more / over_nics - 1), "%"),
        traps=[
            Trap(
                100,
                "A GPU has as many tokens and copies as before. Only a larger share of them leaves the node.",
            )
        ],
    ),
    Problem(
        f"FSDP behind {FORMAT}",
        f"According to a published measurement, Llama 3.1 405B trains at {tokens:,.0f} tokens/s per GPU in {FORMAT} on"
        " GB200. Suppose that FSDP sharded it over replicas of 8 GPUs: for each microbatch a GPU gathers its eighth of"
        f" the {weights / 1e9:.1f} billion parameters twice and reduces their gradients, all in 16 bits, at"
        f" {link / 1e9:.0f} GB/s. How many tokens must a microbatch have so that computation at the published rate"
        " takes as long as these exchanges?",
        sharded * 8 * tokens,
        Step(
            "Time of the exchanges: 3 times 2 B for N / 8 weights, over the bandwidth",
            exchange,
            "s",
        ),
        Step("Tokens/s of a replica: 8 GPUs", 8 * tokens),
        Step("Tokens of a microbatch: time times tokens/s", exchange * 8 * tokens),
    ),
    Problem(
        "Read a published table",
        f"The benchmarks of torchtitan (PyTorch) list for Llama 3.1 405B on 512 H100 {fast:g} tokens/s per GPU with"
        f" sequences of {SHORT:,} tokens, {slow:g} with {LONG:,}. Training counts, for a token, 6 FLOP for each of"
        f" {matmul / 1e9:.1f} billion weights; in attention it counts 12 for each token of the sequence, in each of"
        f" {BLOCKS} layers, {WIDE:,} wide. What share of its FLOP/s with short sequences does a GPU still achieve with"
        " long ones?",
        100 * slow * per_token(LONG) / (fast * per_token(SHORT)),
        Step("FLOP of a token, short", counted[0], "FLOP"),
        Step("Long", counted[1], "FLOP"),
        Step(
            "Tokens/s times FLOP, long over short",
            100 * slow * counted[1] / (fast * counted[0]),
            "%",
        ),
        traps=[
            Trap(
                100 * slow / fast, "That is of tokens/s: a token of a long sequence has more FLOP."
            ),
            Trap(
                100 * slow * LONG / (fast * SHORT),
                "Only attention grows with the sequence; the 6 FLOP for each weight do not.",
            ),
        ],
    ),
    Problem(
        "Find the mistake: half the bits",
        f"A step of Llama 3.1 405B on {ON} GB200 takes {bf16:g} s in bf16 and {fp8:g} s in fp8 (NVIDIA, published)."
        " Suppose that fp8 halves one part of the step, and the rest stays. NVFP4 would halve this part once more, so a"
        " plan expects half of the step in fp8. How long would it take?",
        fp8 - (bf16 - fp8) / 2,
        Step("What fp8 halves, in bf16: twice the difference", halved, "s"),
        Step("The rest", bf16 - halved, "s"),
        Step("The rest and a quarter of the part", bf16 - halved + halved / 4, "s"),
        traps=[
            Trap(fp8 / 2, "That is the plan: the rest, such as exchanges, does not get faster."),
            Trap(bf16 / 4, "That is a quarter of all, and the rest stays."),
            Trap(halved / 4, "That is the part alone: the rest stays, and takes longer than it."),
        ],
    ),
]
