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
from lib_dlhpc.prediction.pipelines.pipelined import RankTimes, pipeline_time
from lib_dlhpc.prediction.validation.published import results
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.teaching.problem_texts import Numbers, written
from lib_dlhpc.teaching.problems import PAGE, Cases

draw: Cases = globals().get("draw", PAGE)

STAGES, MICROBATCHES = draw.any([16, 8, 12]), draw.any([32, 24, 48, 64])
FORWARD, BACKWARD = draw.any([(0.1, 0.2), (0.2, 0.4), (0.3, 0.5)])
CONTEXT = draw.any([derivation.setting.context, 4, 32, 64])
work = MICROBATCHES * (FORWARD + BACKWARD)
free = np.zeros(STAGES - 1)
passes = (np.full(STAGES, FORWARD), np.full(STAGES, BACKWARD))
pipeline = pipeline_time(RankTimes(*passes, free, free), MICROBATCHES, "1f1b")
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
layers = [each for each in mixture.experiment.model.layers if each.has_experts]
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


def attention_of(run: Experiment) -> tuple[int, int]:
    """Return how many layers of attention a network has, and how wide their heads are together."""
    found = [each for each in run.model.layers if each.kind == "fused_attention"]
    return len(found), int(found[0].output_shape[-1])


def per_token(length: int, run: Experiment = LLAMA) -> float:
    """Return the FLOP that training takes for a token of a sequence of that many."""
    return float(run.set({"model.sequence": length}).model.train_flop) / length


BLOCKS, WIDE = attention_of(LLAMA)
pairs = 12 * BLOCKS * WIDE  # FLOP of attention for a token, over the tokens of its sequence
matmul = (per_token(SHORT) - pairs * SHORT) / 6
counted = [6 * matmul + pairs * length for length in (SHORT, LONG)]
ON = draw.any([128, 256, 512])
bf16, fp8 = (
    float(results()[f"dgxc-llama3-405b-gb200-{form}-{ON}"]["value"]) for form in ("bf16", "fp8")
)
halved = 2 * (bf16 - fp8)  # s of the part that fp8 halves, in bf16

SMALL = load("llama3-8b@h100-pod")
WHOLE, DOCUMENT = draw.any([(131_072, 8192), (65_536, 4096), (131_072, 4096), (32_768, 2048)])
LAYERS, HEADS = attention_of(SMALL)
small_pairs = LAYERS * HEADS
small_matmul = (per_token(WHOLE, SMALL) - 12 * small_pairs * WHOLE) / 6
of_pieces, of_one = (6 * (small_matmul + small_pairs * each) for each in (DOCUMENT, WHOLE))
all_pieces, all_one = (6 * small_matmul + 12 * small_pairs * each for each in (DOCUMENT, WHOLE))

NAMED, CODE = draw.any(
    [("Llama 3 8B", "llama3-8b"), ("Qwen 2.5 7B", "qwen2.5-7b"), ("Gemma 7B", "gemma-7b")]
)
in_rings = {"strategy.nodes": 4, "strategy.zero": 1, "strategy.allreduce": "ring"}
state_sharded = load(f"{CODE}@h100-pod").set({**in_rings, "strategy.precision": "bf16"})


def sent_with(optimizer: str) -> float:
    """Return the s in which replicas that shard the optimizer state exchange the bytes of a step."""
    run = state_sharded.set({"strategy.optimizer": optimizer})
    return float(predict(run).messages["data"].bandwidth)


trained = state_sharded.model.trained
unsharded = predict(state_sharded.set({"strategy.zero": 0, "strategy.optimizer": "muon"}))
in_matrices = (
    2 * trained - float(unsharded.memory["optimizer state"]) / 4
)  # others have two moments

PROBLEMS = written(
    globals(),
    bubble=Numbers(
        100 * (1 - work / float(pipeline)),
        bubble=(STAGES - 1) * (FORWARD + BACKWARD),
        share=100 * (STAGES - 1) / (MICROBATCHES + STAGES - 1),
    ),
    fsdp=Numbers(
        float(gathered.latency + gathered.bandwidth),
        billions=weights / 1e9,
        latency_us=latency * 1e6,
        exchanges=3,
        latencies=3 * UNITS * hops * latency,
        bytes=3 * 2 * weights / 8 * hops / replicas / link,
        total=3 * UNITS * hops * latency + 3 * 2 * weights / 8 * hops / replicas / link,
    ),
    hidden_ring=Numbers(
        CONTEXT * RATE / NIC * derivation.block / derivation.flop_over_bytes(),
        per_rank=derivation.least,
        per_sequence=CONTEXT * derivation.least,
    ),
    mfu=Numbers(
        100 * float(own.utilization), per_gpu=flop * SEQUENCES / GPUS, mfu=100 * rate / PEAK
    ),
    frozen=Numbers(
        adapters.frozen(bits),
        billions=matmuls / 1e9,
        others=(whole - matmuls) / 1e9,
        blocks=matmuls * bits / 8,
        rest=2 * (whole - matmuls),
        total=matmuls * bits / 8 + 2 * (whole - matmuls),
    ),
    to_experts=Numbers(
        over_nics,
        token=12 * CHOSEN * HIDDEN,
        bytes=4096 * 12 * CHOSEN * HIDDEN,
        leaves=100 * (RANKS - 8) / RANKS,
    ),
    nvlink=Numbers(WIDTH * all_to_all(rack) / arithmetic, peta=RACK / 1e15, bytes=12, flops=24),
    twice_as_many=Numbers(
        100 * (over_more / over_nics - 1),
        gpus=2 * RANKS,
        before=100 * (RANKS - 8) / RANKS,
        now=100 * (2 * RANKS - 8) / (2 * RANKS),
        longer=100 * (over_more / over_nics - 1),
        twice=100,
    ),
    fsdp_behind=Numbers(
        sharded * 8 * tokens,
        billions=weights / 1e9,
        replica=8 * tokens,
        least=exchange * 8 * tokens,
    ),
    published=Numbers(
        100 * slow * per_token(LONG) / (fast * per_token(SHORT)),
        billions=matmul / 1e9,
        short=counted[0],
        long=counted[1],
        share=100 * slow * counted[1] / (fast * counted[0]),
        of_tokens=100 * slow / fast,
        all_grow=100 * slow * LONG / (fast * SHORT),
    ),
    half_bits=Numbers(
        fp8 - (bf16 - fp8) / 2,
        rest=bf16 - halved,
        time=bf16 - halved + halved / 4,
        half=fp8 / 2,
        quarter=bf16 / 4,
        part=halved / 4,
    ),
    documents=Numbers(  # half of the pairs is that of a sequence half as long
        100 * (1 - per_token(DOCUMENT // 2, SMALL) / per_token(WHOLE // 2, SMALL)),
        billions=small_matmul / 1e9,
        packed=of_pieces,
        single=of_one,
        share=100 * (1 - of_pieces / of_one),
        unmasked=100 * (1 - all_pieces / all_one),
        longer=100 * (of_one / of_pieces - 1),
    ),
    muon_sharded=Numbers(
        100 * (sent_with("muon") / sent_with("adamw") - 1),
        billions=trained / 1e9,
        matrices=in_matrices / 1e9,
        adamw=4 * trained,
        momentum=2 * in_matrices,
        more=100 * 2 * in_matrices / (4 * trained),
        everything=50,
        fp32=100 * 4 * in_matrices / (4 * trained),
    ),
)
