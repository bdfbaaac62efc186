"""Case of module 12: published rates of DeepSeek-V3, a plan for its experts, and their ranks on 2,048 GPUs."""

from functools import lru_cache

from lib_dlhpc.prediction import Breakdown
from lib_dlhpc.prediction.validation.validate import results
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.cases import Case, Choice, Draw, Line, Option, Plan, Reading, Step, Table
from lib_dlhpc.teaching.designs import begun, varied

# Parameters of a token, of the network; tokens (DeepSeek-AI 2024).
USED, ALL, TRAINED = (37e9, 671e9, 14.8e12)
EXPERTS, CHOSEN, HIDDEN, TOKENS = 256, 8, 7168, 4096
PEAK = 2.5e15  # of a GB200 in bf16, dense
GPUS, HOURS = 2048, float(results()["deepseek-v3-hours"]["value"])
ROWS = {
    ("1,024 H100", "fp8"): "h100-fp8-1024",
    ("256 B200", "MXFP8"): "b200-mxfp8-256",
    ("256 GB200", "bf16"): "gb200-bf16-256",
    ("256 GB200", "MXFP8"): "gb200-mxfp8-256",
}
RATE = {
    run: float(results()[f"bridge-deepseek-v3-{row}"]["value"])  # tokens/s of a GPU
    for run, row in ROWS.items()
}
TOML = """
[model]
name = "deepseek-v3"

[dataset]
name = "webtext"

[machine]
name = "h800-pod"
nics = 8

[strategy]
nodes = 256
batch = 120
microbatches = 120
pipeline = 16
experts = 64
expert_exchange = "direct"
zero = 0
recompute = "full"
precision = "bf16"
optimizer = "adam"
"""
LAYOUTS = {  # experts, expert_exchange, zero
    "8 expert ranks, by-device, no ZeRO": (8, "by-device", 0),
    "8 expert ranks, by-device, ZeRO 1": (8, "by-device", 1),
    "16 expert ranks, direct, ZeRO 1": (16, "direct", 1),
    "16 expert ranks, by-node, ZeRO 1": (16, "by-node", 1),
    "64 expert ranks, direct, no ZeRO": (64, "direct", 0),
    "64 expert ranks, by-node, ZeRO 1": (64, "by-node", 1),
}
WHEN = {
    "8 expert ranks, by-device, ZeRO 1": "The fastest, and hardly slower with half the NICs, as its copies stay on"
    " NVLink: the choice where the network may get slower or is shared.",
    "16 expert ranks, by-node, ZeRO 1": "Within 10% of the fastest, with less memory: the choice if sequences,"
    " microbatches or experts will grow while the NICs stay.",
}


@lru_cache
def laid_out(name: str, stages: int, nics: int) -> Breakdown:
    """Return the prediction of a layout, with that many stages and NICs in a node."""
    experts, exchange, zero = LAYOUTS[name]
    return varied(
        begun(of_stages(stages))[0],
        experts=experts,
        expert_exchange=exchange,
        zero=zero,
        machine__nics=nics,
    )


def of_stages(stages: int) -> str:
    """Return the file with that many stages, for the same 15,360 sequences of a step."""
    return TOML.replace("120", f"{120 * stages // 16}").replace("= 16\n", f"= {stages}\n")


def option(name: str, stages: int) -> Option:
    """Return a layout with its numbers."""
    own, slow = laid_out(name, stages, 8), laid_out(name, stages, 4)
    return Option(
        name,
        [
            Step("Step", float(own.step_time), "s"),
            Step("Exposed all-to-all", float(own.exposed["experts"]), "s"),
            Step("Memory", float(own.memory_total), "B"),
            Step("Step with 4 NICs", float(slow.step_time), "s"),
        ],
        WHEN.get(name, ""),
    )


def readings() -> list[Reading]:
    """Return the questions on the table."""
    bf16, fp8 = RATE["256 GB200", "bf16"], RATE["256 GB200", "MXFP8"]
    own, h100 = TRAINED / (3600 * HOURS * GPUS), RATE["1,024 H100", "fp8"]
    return [
        Reading(
            f"Of {ALL / 1e9:.0f} billion parameters a token uses {USED / 1e9:.0f} billion. Counting 6 FLOP for each of"
            f" these, which FLOP/s does a GB200 achieve in bf16? And if you count all parameters? Its peak is"
            f" {PEAK / 1e15:g} PFLOP/s.",
            [
                Step("With those of a token", 6 * USED * bf16, "FLOP/s"),
                Step("With all", 6 * ALL * bf16, "FLOP/s"),
            ],
            "A rate above the peak shows the mistake: a token computes only with its own experts; memory holds all.",
        ),
        Reading(
            "How many times as fast is MXFP8 as bf16 on GB200? If it halves one part of the time and the rest stays,"
            " what share of the time in bf16 is that part?",
            [
                Step("Times as fast", fp8 / bf16),
                Step("Share: 2 (1 - bf16 / MXFP8)", 200 * (1 - bf16 / fp8), "%"),
            ],
            "The rest is exchanges, attention and what memory limits. The rows have other layouts, too: an estimate.",
        ),
        Reading(
            f"DeepSeek's own run took {HOURS * GPUS / 1e6:.3f} million GPU-hours of H800 for {TRAINED / 1e12:g}"
            " trillion tokens, in fp8. How many tokens/s is that per GPU, and how many times the rate of H100 in the"
            " table? Name a reason why it is not slower, although NVLink of an H800 has less than half the bandwidth.",
            [Step("Tokens/s per GPU", own), Step("Over H100", own / h100)],
            "Its schedule (DualPipe) overlaps the all-to-all with arithmetic, and a token goes to at most four nodes.",
        ),
    ]


def plan(ranks: int) -> Plan:
    """Return the plan for that many expert ranks."""
    sent = TOKENS * CHOSEN * HIDDEN * 2
    leaves = [sent * (1 - 1 / many) for many in (ranks, 2 * ranks)]
    return Plan(
        f"DeepSeek-V3 in bf16 on {ranks} expert ranks: a layer has {EXPERTS} routed experts, a token of {HIDDEN:,}"
        f" numbers goes to {CHOSEN} of them in copies of its own, and a GPU has {TOKENS:,} tokens.",
        [
            Line(f"A GPU holds {EXPERTS // ranks} of the routed experts of a layer."),
            Line(f"The copies of its tokens have {show(sent, 'B')} in one layer, one way."),
            Line(
                f"A token uses {USED / 1e9:.0f} billion parameters, so the weights of the network take"
                f" {show(2 * USED, 'B')}.",
                "All experts are in memory, since other tokens use them. Only arithmetic counts those of a token.",
                [Step("All weights", 2 * ALL, "B")],
            ),
            Line(
                f"With {2 * ranks} expert ranks, a GPU would send half as many bytes.",
                "Its tokens and their copies are as many as before, and a few more of them leave.",
                [
                    Step(f"Leaves the GPU, {ranks} ranks", leaves[0], "B"),
                    Step(f"{2 * ranks} ranks", leaves[1], "B"),
                ],
            ),
            Line(
                "If the busiest rank gets 1.5 times the mean of the tokens, the experts of that layer take 1.5 times as"
                " long on it, and the others wait."
            ),
        ],
    )


def case(draw: Draw) -> Case:
    """Return a version: expert ranks of the plan, stages of the choice."""
    ranks, stages = draw.of([32, 16, 64]), draw.any([16, 8])
    return Case(
        "Experts in print, in a plan, and on 2,048 GPUs",
        Table(
            f"Pre-training of DeepSeek-V3 with sequences of {TOKENS:,} tokens (NVIDIA Megatron-Bridge, performance"
            " summaries, 2025 and 2026).",
            ("GPUs", "matmuls", "tokens/s per GPU"),
            [(gpus, form, f"{rate:,.0f}") for (gpus, form), rate in RATE.items()],
        ),
        readings(),
        plan(ranks),
        Choice(
            f"DeepSeek-V3 on 2,048 H800 in {stages} stages, all blocks recomputed. `expert_exchange` sends a token once"
            " to each of its experts (`direct`), once to each GPU (`by-device`), or once to each node, which hands it"
            " on (`by-node`). Predict the layouts below: change the file; for less network set `nics = 4`. Choose one,"
            " and say which change of the run or the cluster you plan for. (DeepSeek chose 64 expert ranks, and"
            " overlapped the exchange with arithmetic, which this file does not.)",
            [option(name, stages) for name in LAYOUTS],
            {
                "predicts step, exposed all-to-all and memory of three layouts or more": 1,
                "chooses one that fits and is within 10% of the fastest": 1,
                "names the change that it plans for, and by a number why this layout meets it": 1,
                "names what the file leaves out and might reverse the choice, with its direction": 1,
            },
            of_stages(stages),
        ),
    )
