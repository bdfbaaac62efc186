"""Case of module 04: a published pipeline, a plan, and a layout for 13 billion parameters on two nodes."""

from lib_dlhpc.explore.model_parallel import pipeline
from lib_dlhpc.explore.model_parallel.pipeline import Pipe
from lib_dlhpc.prediction import Breakdown
from lib_dlhpc.prediction.validation.validate import results
from lib_dlhpc.teaching.cases import Case, Choice, Draw, Line, Option, Plan, Reading, Step, Table
from lib_dlhpc.teaching.designs import begun, varied

ROWS = ((2, 1), (4, 1), (8, 1), (2, 4), (4, 4), (8, 4), (2, 32), (8, 32))
GAIN = {(k, m): float(results()[f"gpipe19-tpu-tr-k{k}-m{m}"]["value"]) for k, m in ROWS}
TOML = """
[model]
name = "llama2-13b"

[dataset]
name = "webtext"

[machine]
name = "selene"

[strategy]
nodes = 2
batch = 64
microbatches = 64
precision = "bf16"
optimizer = "adam"
tensor = 8
pipeline = 2
zero = 1
"""
LAYOUTS = {  # tensor, pipeline
    "tensor 8 × pipeline 2": (8, 2),
    "tensor 4 × pipeline 4": (4, 4),
    "tensor 2 × pipeline 8": (2, 8),
    "pipeline 16": (1, 16),
    "tensor 4 × pipeline 2 × 2 replicas": (4, 2),
}
WHEN = {
    "tensor 8 × pipeline 2": "",
    "tensor 4 × pipeline 4": (
        "Nearly as fast as the fastest, with the least memory among those: the choice if sequences will get longer."
    ),
    "tensor 2 × pipeline 8": "Within a few percent of the fastest: the choice if the batch may grow, since its bubble"
    " shrinks most, or if the links inside a node get slower.",
    "pipeline 16": "",
    "tensor 4 × pipeline 2 × 2 replicas": "Within 2% of the fastest, with memory left: the choice if gradients between"
    " the two nodes stay cheap, which more replicas or a slower network would change.",
}


def faster(stages: int, microbatches: int) -> float:
    """Return how many times as fast as one accelerator the formula says that a pipeline is."""
    own = Pipe(ranks=stages, microbatches=microbatches, batch=microbatches)
    return stages / (1 + pipeline.formula(own))


def laid_out(tensor: int, stages: int, sequences: int) -> Breakdown:
    """Return the prediction of a layout on two nodes of 8 GPUs."""
    of_replica = sequences * tensor * stages // 16
    split = {"tensor": tensor, "pipeline": stages, "batch": of_replica, "microbatches": of_replica}
    return varied(begun(TOML)[0], **split)


def case(draw: Draw) -> Case:
    """Return a version: stages and microbatches of the plan, sequences of the choice."""
    stages, microbatches = draw.of([(8, 32), (6, 20), (12, 36)])
    sequences = draw.any([64, 96])
    over = (stages - 1) / microbatches
    found = {name: laid_out(*split, sequences) for name, split in LAYOUTS.items()}
    return Case(
        "A published pipeline, a plan, and a layout on two nodes",
        Table(
            "Throughput of a Transformer of 48 layers with GPipe, relative to K = 2 accelerators and M = 1 microbatch"
            " (Huang et al. 2019, arXiv:1811.06965, table 2). Activations are recomputed.",
            ("K", "M", "times as fast"),
            [(f"{k}", f"{m}", f"{gain:g}") for (k, m), gain in GAIN.items()],
        ),
        [
            Reading(
                "With M = 32, how many times as fast are 8 accelerators as 2? Which share of the ideal factor of 4 is"
                " that?",
                [
                    Step("8 over 2", GAIN[8, 32] / GAIN[2, 32]),
                    Step("Of 4", 100 * GAIN[8, 32] / GAIN[2, 32] / 4, "%"),
                ],
                "Both rows have the same base, which cancels.",
            ),
            Reading(
                "What does p / (1 + (p - 1) / m) give for the first factor?",
                [
                    Step("8 accelerators", faster(8, 32)),
                    Step("2 accelerators", faster(2, 32)),
                    Step("One over the other", faster(8, 32) / faster(2, 32)),
                ],
                "With many microbatches, the formula is close to the table.",
            ),
            Reading(
                "What does the formula give for K = 8, M = 4, relative to K = 2, M = 1? Why is the table's number"
                " higher?",
                [
                    Step("By the formula", faster(8, 4) / faster(2, 1)),
                    Step("Published over that", GAIN[8, 4] / (faster(8, 4) / faster(2, 1))),
                ],
                "GPipe does part of the recomputation while it would otherwise be idle, and the batch was fitted to"
                " the memory.",
            ),
        ],
        Plan(
            f"A pipeline of {stages} equal stages runs {microbatches} microbatches with 1F1B; messages are free.",
            [
                Line(f"The bubble is {100 * over:.1f}% of the work."),
                Line(
                    f"So a GPU is idle for {100 * over:.1f}% of the step.",
                    "The step consists of the work and the bubble.",
                    [Step("Idle, of the step", 100 * over / (1 + over), "%")],
                ),
                Line(f"The first stage stores the activations of at most {stages} microbatches."),
                Line(
                    "GPipe would have a longer bubble, since it runs all forward passes first.",
                    "The bubble is the same; only memory grows.",
                    [
                        Step("Bubble of GPipe over the work", 100 * over, "%"),
                        Step("Microbatches that it stores", microbatches),
                    ],
                ),
                Line(
                    "Two chunks per stage would halve the bubble, and double the messages between stages."
                ),
            ],
        ),
        Choice(
            f"Llama 2 13B trains on two nodes of eight A100s of 80 GB with {sequences} sequences per step, Adam and"
            " ZeRO 1, one sequence per microbatch, and nothing recomputed. Predict the layouts below by changing the"
            " file, in which `batch` and `microbatches` are those of a replica. Choose one for a run whose sequences,"
            " batch or network may change later, and say which change you plan for.",
            [
                Option(
                    name,
                    [
                        Step("Step", float(step.step_time), "s"),
                        Step(
                            "Bubble, of the step",
                            100 * float(step.pipeline_bubble / step.step_time),
                            "%",
                        ),
                        Step("Memory", float(step.memory_total), "B"),
                    ],
                    WHEN[name],
                )
                for name, step in found.items()
            ],
            {
                "predicts step and memory of three layouts or more": 1,
                "chooses one that is within 5% of the fastest and leaves memory": 1,
                "names the change that is planned for, and why this layout suits it": 1,
                "names a change that would reverse the choice, with its direction": 1,
            },
            TOML.replace("64\n", f"{sequences}\n"),
        ),
    )
