"""Case of module 05: published shares of the peak on Frontier, a plan, and a layout of GPT-3 on 1,024 dies.

The prediction misses the published rate, by an amount that depends on which FLOP are counted; the answers show both.
"""

from functools import lru_cache

from lib_dlhpc.prediction import Breakdown
from lib_dlhpc.teaching.cases import Case, Choice, Draw, Line, Option, Plan, Reading, Step, Table
from lib_dlhpc.teaching.designs import begun, varied

# Dash et al. 2023, arXiv:2312.12705: the shares are in its abstract; network -> share in %, FLOP/s of a GPU.
PUBLISHED = {"22B": (38.38, 73.5e12), "175B": (36.14, 69.2e12), "1T": (31.96, 61.2e12)}
MODULE = 383e12  # FLOP/s of an MI250X in 16 bits, both dies
DIES, SEQUENCES = 1024, 640
COUNTED = 4 / 3  # FLOP with the repeated forward pass, over those of the network
TOML = """
[model]
name = "gpt3-175b"

[dataset]
name = "webtext"

[machine]
name = "frontier"
nics = 4

[strategy]
nodes = 128
batch = 40
microbatches = 40
tensor = 4
pipeline = 16
zero = 1
recompute = "full"
precision = "fp16"
optimizer = "adam"
"""
LAYOUTS = {  # tensor, pipeline
    "tensor 4 × pipeline 16": (4, 16),
    "tensor 4 × pipeline 8": (4, 8),
    "tensor 8 × pipeline 16": (8, 16),
    "tensor 2 × pipeline 16": (2, 16),
    "tensor 2 × pipeline 32": (2, 32),
    "pipeline 64": (1, 64),
}
WHEN = {
    "tensor 4 × pipeline 16": "Within 3% of the fastest with either batch and either network, and a third less memory:"
    " the choice if it is not known what will change.",
    "tensor 4 × pipeline 8": "The fastest, and more so with a larger batch: the choice if the batch will grow.",
    "tensor 8 × pipeline 16": "Within 2% of the fastest, the fastest with half of the NICs, and with the least memory:"
    " the choice if the network is shared, or if sequences will get longer.",
}


@lru_cache
def laid_out(tensor: int, stages: int, sequences: int = SEQUENCES, nics: int = 4) -> Breakdown:
    """Return the prediction of a layout on the 1,024 dies."""
    of_replica = sequences * tensor * stages // DIES
    return varied(
        begun(TOML)[0],
        tensor=tensor,
        pipeline=stages,
        batch=of_replica,
        microbatches=of_replica,
        machine__nics=nics,
    )


@lru_cache
def trillion() -> Breakdown:
    """Return the prediction of GPT 1T on 3,072 dies, in tensor 8 × pipeline 64; its batch is an assumption."""
    text = TOML.replace("gpt3-175b", "gpt-1t").replace("nodes = 128", "nodes = 384")
    text = text.replace("tensor = 4", "tensor = 8").replace("pipeline = 16", "pipeline = 64")
    return begun(text.replace("= 40", "= 256"))[1]


def rate(step: Breakdown) -> float:
    """Return the FLOP/s of a die, those of the network alone."""
    run = step.experiment
    flop = float(run.model.train_flop) * float(run.global_batch)
    return flop / float(step.step_time) / float(run.devices)


def readings() -> list[Reading]:
    """Return the questions on the table."""
    share, published = PUBLISHED["175B"]
    own, large = rate(laid_out(4, 16)), rate(trillion())
    return [
        Reading(
            f"An MI250X has two dies, and {MODULE / 1e12:.0f} TFLOP/s in 16 bits. Which peak follows from share and"
            " rate of 175B? So what does the paper call a GPU?",
            [Step("Rate over share", 100 * published / share, "FLOP/s")],
            "One die: half of a module. Slurm and HIP count dies as well, and so does the library.",
        ),
        Reading(
            "All activations are recomputed. If the rate counts the repeated forward pass, as Megatron's log does,"
            " which rate and which share of the peak count each FLOP of the network once?",
            [
                Step("Rate: 3 of 4 parts", published / COUNTED, "FLOP/s"),
                Step("MFU", share / COUNTED, "%"),
            ],
            "Backward takes twice as long as forward, so one of four parts is repeated.",
        ),
        Reading(
            "Predict the file below. Which FLOP/s of a die do you get if you count the repeated forward pass, and which"
            " if you do not? By how many percent is each above the table? Name an input that could explain it.",
            [
                Step("Counted", COUNTED * own, "FLOP/s"),
                Step("Above the table", 100 * (COUNTED * own / published - 1), "%"),
                Step("Not counted", own, "FLOP/s"),
                Step("Above the table", 100 * (own / published - 1), "%"),
                Step(
                    "1T on 3,072 dies, tensor 8 × pipeline 64, 1,536 sequences (assumed), counted:"
                    " above the table",
                    100 * (COUNTED * large / PUBLISHED["1T"][1] - 1),
                    "%",
                ),
            ],
            "What is counted decides the sign of the error, so ask for the definition first. Nothing was fitted to this"
            " machine: that large matmuls reach 70% of the peak is an estimate, as is the share of its links that a"
            " collective reaches. For 1T, the prediction is far too fast.",
        ),
    ]


def plan(tensor: int, stages: int, microbatches: int) -> Plan:
    """Return the plan for a layout."""
    over = 100 * (stages - 1) / microbatches
    return Plan(
        f"GPT-3, 175 billion parameters, on {DIES:,} dies of Frontier: tensor {tensor} × pipeline {stages}, and"
        f" {microbatches} microbatches per replica, with 1F1B. A node has four modules of two dies.",
        [
            Line(f"There are {DIES // (tensor * stages)} replicas."),
            Line(
                f"With tensor 16 instead of {tensor}, allreduces of activations would also stay inside a node.",
                "A node has eight dies, so a tensor group would span two nodes.",
                [Step("Dies of a node", 8), Step("Nodes of a group of 16", 2)],
            ),
            Line(
                "Without ZeRO, weights, gradients and Adam's state take"
                f" {16 * 175 / (tensor * stages):.1f} GB per die, if stages are equal."
            ),
            Line(
                f"The bubble takes {over:.1f}% of a step.",
                "That is its share of the work; a step also contains the bubble.",
                [Step("Bubble, of the step", 100 * over / (100 + over), "%")],
            ),
            Line("Twice the microbatches halve the bubble relative to the work."),
        ],
    )


def option(name: str) -> Option:
    """Return a layout with its numbers."""
    split = LAYOUTS[name]
    own = laid_out(*split)
    return Option(
        name,
        [
            Step("Step", float(own.step_time), "s"),
            Step("Memory", float(own.memory_total), "B"),
            Step("Step with 2 NICs", float(laid_out(*split, nics=2).step_time), "s"),
            Step(
                "Step with 1,280 sequences", float(laid_out(*split, 2 * SEQUENCES).step_time), "s"
            ),
        ],
        WHEN.get(name, ""),
    )


def case(draw: Draw) -> Case:
    """Return a version: the layout of the plan."""
    tensor, stages, microbatches = draw.of([(4, 16, 40), (8, 16, 80), (8, 8, 40), (4, 32, 80)])
    return Case(
        "Shares of a peak in print, a plan, and 175 billion parameters on 1,024 dies",
        Table(
            "Training of GPT-like networks on Frontier with Megatron-DeepSpeed (Dash et al. 2023, arXiv:2312.12705)."
            " The file below has the paper's layout of 175B from memory: check it before you cite it.",
            ("network", "share of the peak", "TFLOP/s per GPU"),
            [
                (name, f"{share:.2f}%", f"{flops / 1e12:g}")
                for name, (share, flops) in PUBLISHED.items()
            ],
        ),
        readings(),
        plan(tensor, stages, microbatches),
        Choice(
            f"GPT-3 trains on {DIES:,} dies of Frontier with {SEQUENCES} sequences per step, one per microbatch, and"
            " everything recomputed. Predict the layouts below: change the file, in which `batch` and `microbatches`"
            " are those of a replica; for less network set `nics = 2`; for a larger batch double both. Choose one, and"
            " say which change of the run or the cluster you plan for. The catalog names its estimates for Frontier;"
            " say whether one of them could reverse your choice.",
            [option(name) for name in LAYOUTS],
            {
                "predicts step and memory of three layouts or more": 1,
                "chooses one that fits and is within 5% of the fastest": 1,
                "names the change that it plans for, and by a number why this layout meets it": 1,
                "names an estimate of the machine that might reverse the choice, with its direction": 1,
            },
            TOML,
        ),
    )
