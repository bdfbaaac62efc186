"""Exam questions of module 04, model parallelism."""

from lib_dlhpc.explore.model_parallel import cuts, pipeline, products
from lib_dlhpc.explore.model_parallel.cuts import Cut
from lib_dlhpc.explore.model_parallel.pipeline import Pipe
from lib_dlhpc.explore.model_parallel.products import Products, gain
from lib_dlhpc.teaching.questions import Question

P, M = 8, 24
over = (P - 1) / M
sixteen = Pipe(batch=32, microbatches=16)
bubble = {
    name: 100 * pipeline.bubble_of(Pipe(schedule=name)) for name in ("GPipe", "1F1B", "zero bubble")
}
kept = {
    name: pipeline.kept(sixteen._replace(schedule=name))[0]
    for name in ("GPipe", "1F1B", "interleaved, 2 chunks")
}
memory = [float(pipeline.predicted(Pipe(batch=32, microbatches=m)).memory_total) for m in (8, 16)]
sends = [products.bytes_sent(Products(gpus=gpus)) for gpus in (8, 16)]
uneven = cuts.unevenness(Cut(way="equal numbers of layers"))


def share(**choice: int) -> float:
    """Return the percentage of the products' time that goes into messages."""
    setting = Products(**choice)
    return (
        100 * float(products.predicted(setting).exposed_communication) / products.seconds(setting)
    )


QUESTIONS = [
    Question(
        "four stages",
        "GPT-2 in 4 stages on 4 GPUs, GPipe, 8 microbatches. How many times as fast as one GPU with memory enough?",
        f"{pipeline.speed_up(Pipe()):.1f}",
        {
            f"{Pipe().ranks:.1f}": "A pipeline with P stages is P times faster.",
            f"{Pipe().ranks / 4:.1f}": "Stages compute one after another.",
            f"{pipeline.speed_up(Pipe(microbatches=4)):.1f}": (
                "The bubble does not depend on the number of microbatches."
            ),
        },
        "While the pipeline fills and drains, stages are idle.",
    ),
    Question(
        "bubble",
        f"{P} equal stages, {M} microbatches, 1F1B, free messages. For what share of the step is a GPU idle?",
        f"{100 * over / (1 + over):.0f} %",
        {
            f"{100 * over:.0f} %": "The bubble over the work is its share of the step.",
            f"{100 / M:.0f} %": "Only one stage waits at a time.",
            f"{100 * P / M:.0f} %": "P microbatches are lost to fill P stages.",
        },
        "(p - 1) / m of the work; of the step that over one more than that.",
    ),
    Question(
        "sixteen gpus",
        "Two large products are split over 8 GPUs of a node by tensor parallelism. On 16 GPUs in two nodes,"
        " how many times as fast are they?",
        f"{gain(8, 16):.2f}",
        {
            f"{16 / 8:.2f}": "Model parallel is for speed",
            f"{(16 / 8) ** 0.5:.2f}": "Twice the GPUs gain the root of two.",
            f"{16 / 16:.2f}": "Messages take exactly what computation saves.",
        },
        "The allreduce of every layer now crosses nodes: it is slower, not faster.",
    ),
    Question(
        "past the critical batch",
        "The batch is past the critical one: more samples a step save no steps. Each GPU has one sample already. A node"
        " has 8 GPUs, the network fits one. How do you shorten the run?",
        "Split each sample's work over the GPUs of a node",
        {
            "Not at all: splits are for memory": "model parallel is never for speed",
            "With eight replicas, twice the batch each": "Data parallelism is always first.",
            "With eight stages and one microbatch": "A pipeline with P stages is P times faster.",
        },
        "Replicas buy nothing there; inside a node a split is several times as fast as one GPU.",
    ),
    Question(
        "what a gpu sends",
        "Two large products are split by tensor parallelism, their results allreduced by a ring. How does what"
        " each GPU sends change from 8 to 16 GPUs?",
        f"{sends[1] / sends[0]:.2f} times",
        {
            f"{8 / 16:.2f} times": "With more GPUs, each one sends less.",
            f"{16 / 8:.2f} times": "Each GPU sends to every other.",
            f"{(16 / 8) ** 2:.2f} times": "All pairs of GPUs exchange.",
        },
        "An allreduce sends 2 (p - 1) / p of the buffer from each rank, whatever p.",
    ),
    Question(
        "more rows",
        "Two products of 4,096 columns are split over 16 GPUs in two nodes. With 2,048 rows messages take"
        f" {share():.0f} % of the time. With 4,096 rows?",
        f"{share(tokens=4096):.0f} %",
        {
            f"{share() / 2:.0f} %": "A bigger batch makes messages matter less.",
            f"{share(width=8192):.0f} %": "Rows act as width does.",
            f"{share() / 4:.0f} %": "Arithmetic grows with the square of the rows.",
        },
        "Rows raise arithmetic and messages alike. Width raises arithmetic more.",
    ),
    Question(
        "more microbatches",
        "GPipe with stored activations; the same batch is cut into 16 microbatches instead of 8. How does the"
        " memory of the fullest GPU change?",
        f"{memory[1] / memory[0]:.2f} times",
        {
            f"{8 / 16:.2f} times": "More microbatches need less memory.",
            f"{16 / 8:.2f} times": "Each microbatch needs its own memory.",
            f"{(1 + 8 / 16) / 2:.2f} times": "Half of the activations are freed early.",
        },
        "Each is half as large and twice as many are in flight: the whole batch is stored.",
    ),
    Question(
        "1f1b",
        f"4 stages, 8 microbatches: GPipe has a bubble of {bubble['GPipe']:.0f} % of the computation. With"
        " 1F1B, the same stages and microbatches?",
        f"{bubble['1F1B']:.0f} %",
        {
            f"{bubble['GPipe'] / 2:.0f} %": "1F1B has a smaller bubble than GPipe.",
            f"{bubble['zero bubble']:.0f} %": "1F1B fills its bubble with weight gradients.",
            f"{0:.0f} %": "A pipeline that alternates never waits.",
        },
        "The same bubble; 1F1B has less memory, and so room for more microbatches.",
    ),
    Question(
        "stored microbatches",
        "4 stages, 16 microbatches, 1F1B. For how many microbatches does the first stage store activations at most?",
        f"{kept['1F1B']:.3g}",
        {
            f"{kept['GPipe']:.3g}": "The first stage stores all that has entered the pipeline.",
            f"{kept['interleaved, 2 chunks']:.3g}": "Schedules without a flush store more than stages.",
            f"{kept['1F1B'] / 4:.3g}": "One forward, one backward: one is stored.",
        },
        "At most p: rank r of p stores p - r.",
    ),
    Question(
        "equal layers",
        "ResNet-50 is cut into 4 stages of equally many layers. By how much does the slowest stage exceed the mean?",
        f"{uneven:.0f} %",
        {
            f"{0:.0f} %": "Equal stages have equal numbers of layers",
            f"{100 / 4:.0f} %": "A stage can exceed the mean by its own share at most.",
            f"{uneven * 4:.0f} %": "The last stage has most weights, and so most work.",
        },
        "Layers differ in work: ResNet-50 has most weights where it has least of it.",
    ),
]
