"""Exam questions of module 04, model parallelism."""

from lib_dlhpc.explore.model_parallel import cuts, products
from lib_dlhpc.explore.model_parallel.cuts import Cut
from lib_dlhpc.explore.model_parallel.products import Products
from lib_dlhpc.teaching.questions import Draw, Question


def share(setting: Products) -> float:
    """Return the percentage of the products' time that goes into messages."""
    return (
        100 * float(products.predicted(setting).exposed_communication) / products.seconds(setting)
    )


def stages(draw: Draw) -> Question:
    """How many times as fast a pipeline is."""
    ranks, microbatches = draw.of([6, 10, 12]), draw.of([15, 20, 36])
    faster = ranks * microbatches / (microbatches + ranks - 1)
    return Question(
        "stages",
        f"A network in {ranks} equal stages on {ranks} GPUs, GPipe, {microbatches} microbatches, free messages. How"
        " many times as fast as one GPU with memory enough?",
        f"{faster:.2f}",
        {
            f"{ranks:.2f}": "A pipeline with P stages is P times faster.",
            f"{1:.2f}": "Stages compute one after another.",
            f"{ranks * ranks / (2 * ranks - 1):.2f}": (
                "The bubble does not depend on the number of microbatches."
            ),
        },
        "While the pipeline fills and drains, stages are idle.",
    )


def bubble(draw: Draw) -> Question:
    """The bubble as a share of the step."""
    ranks, microbatches = draw.of([5, 6, 10]), draw.of([9, 14, 18, 30])
    over = (ranks - 1) / microbatches
    return Question(
        "bubble",
        f"{ranks} equal stages, {microbatches} microbatches, 1F1B, free messages. For what share of the step is a GPU"
        " idle?",
        f"{100 * over / (1 + over):.1f} %",
        {
            f"{100 * over:.1f} %": "The bubble over the work is its share of the step.",
            f"{100 / microbatches:.1f} %": "Only one stage waits at a time.",
            f"{100 * ranks / microbatches:.1f} %": "P microbatches are lost to fill P stages.",
        },
        "(p - 1) / m of the work; of the step that over one more than that.",
    )


def across_nodes(draw: Draw) -> Question:
    """Tensor parallelism over more nodes."""
    width, tokens = draw.of([3072, 5120, 6144]), draw.of([1536, 3072])
    few = Products(gpus=8, width=width, tokens=tokens)
    many = few._replace(gpus=draw.of([16, 32]))
    faster = products.seconds(few) / products.seconds(many)
    return Question(
        "across nodes",
        f"Two large matmuls ({tokens:,} rows, {width:,} columns) are split over the 8 GPUs of a node by tensor"
        f" parallelism. On {many.gpus} GPUs in {many.gpus // 8} nodes, which share a NIC each, messages take"
        f" {share(many):.1f} % of the time, and took {share(few):.1f} %. How many times as fast are the products?",
        f"{faster:.3f}",
        {
            f"{many.gpus / 8:.3f}": "Model parallel is for speed",
            f"{(many.gpus / 8) ** 0.5:.3f}": "More GPUs gain the root of their number.",
            f"{1:.3f}": "Messages take exactly what computation saves.",
        },
        "The allreduce of every layer now crosses nodes: it is slower, not faster.",
    )


def what_a_gpu_sends(draw: Draw) -> Question:
    """The bytes of a ring."""
    few, many = draw.of([(4, 16), (6, 12), (4, 32), (3, 24), (5, 20)])
    sent = [(gpus - 1) / gpus for gpus in (few, many)]
    return Question(
        "what a gpu sends",
        "Two large matmuls are split by tensor parallelism, their results allreduced by a ring. How does what"
        f" each GPU sends change from {few} to {many} GPUs?",
        f"{sent[1] / sent[0]:.2f} times",
        {
            f"{few / many:.2f} times": "With more GPUs, each one sends less.",
            f"{many / few:.2f} times": "Each GPU sends to every other.",
            f"{(many / few) ** 2:.2f} times": "All pairs of GPUs exchange.",
        },
        "An allreduce sends 2 (p - 1) / p of the buffer from each rank, whatever p.",
    )


def more_rows(draw: Draw) -> Question:
    """Rows raise arithmetic and messages alike."""
    width, tokens = draw.of([3072, 5120, 6144]), draw.of([1536, 3072])
    few = Products(gpus=16, width=width, tokens=tokens)
    rows, wide = few._replace(tokens=2 * tokens), few._replace(width=2 * width)
    return Question(
        "more rows",
        f"Two matmuls of {width:,} columns are split over 16 GPUs in two nodes. With {tokens:,} rows messages take"
        f" {share(few):.1f} % of the time. With {2 * tokens:,} rows? About",
        f"{share(rows):.1f} %",
        {
            f"{share(few) / 2:.1f} %": "A bigger batch makes messages matter less.",
            f"{share(wide):.1f} %": "Rows act as width does.",
            f"{share(few) / 4:.1f} %": "Arithmetic grows with the square of the rows.",
        },
        "Rows raise arithmetic and messages alike. Width raises arithmetic more.",
    )


def schedules(draw: Draw) -> Question:
    """The bubbles of GPipe and 1F1B."""
    ranks, microbatches = draw.of([5, 6, 9]), draw.of([11, 13, 21, 35])
    over = 100 * (ranks - 1) / microbatches
    return Question(
        "1f1b",
        f"{ranks} stages, {microbatches} microbatches: GPipe has a bubble of {over:.1f} % of the computation. With"
        " 1F1B, the same stages and microbatches?",
        f"{over:.1f} %",
        {
            f"{over / 2:.1f} %": "1F1B has a smaller bubble than GPipe.",
            f"{over / 3:.1f} %": "1F1B fills its bubble with weight gradients.",
            f"{0:.1f} %": "A pipeline that alternates never waits.",
        },
        "The same bubble; 1F1B has less memory, and so room for more microbatches.",
    )


def stored_microbatches(draw: Draw) -> Question:
    """What 1F1B stores."""
    ranks, times = draw.of([6, 10, 12, 14, 18]), draw.of([3, 4])
    return Question(
        "stored microbatches",
        f"{ranks} stages, {times * ranks} microbatches, 1F1B. For how many microbatches do all stages together store"
        " activations at most, each at its own peak?",
        f"{sum(range(1, ranks + 1))}",
        {
            f"{times * ranks * ranks}": "Each stage stores all that has entered the pipeline.",
            f"{ranks * ranks}": "Each stage stores as many as there are stages.",
            f"{ranks}": "One forward, one backward: one is stored.",
        },
        "Rank r of p, counted from 0, stores p - r.",
    )


def equal_layers(draw: Draw) -> Question:
    """Stages of equally many layers."""
    network, count = draw.of([("ResNet-50", 8), ("VGG-16", 2), ("VGG-16", 4), ("ResNet-50", 2)])
    uneven = cuts.unevenness(Cut(network, count, way="equal numbers of layers"))
    return Question(
        "equal layers",
        f"{network} is cut into {count} stages of equally many layers. By how much does the slowest stage exceed the"
        " mean?",
        f"{uneven:.1f} %",
        {
            f"{0:.1f} %": "Equal stages have equal numbers of layers",
            f"{uneven / 4:.1f} %": "A stage can exceed the mean by its own share at most.",
            f"{uneven * 4:.1f} %": "The last stage has most weights, and so most work.",
        },
        "Layers differ in work, and those with the most weights do not have the most of it.",
    )


QUESTIONS = [
    stages,
    bubble,
    across_nodes,
    Question(
        "past the critical batch",
        "The batch is past the critical one: more samples per step save no steps. Each GPU has one sample already. A"
        " node"
        " has 8 GPUs, the network fits one. How do you shorten the run?",
        "Split each sample's work over the GPUs of a node",
        {
            "Not at all: splits are for memory": "model parallel is never for speed",
            "With eight replicas, twice the batch each": "Data parallelism is always first.",
            "With eight stages and one microbatch": "A pipeline with P stages is P times faster.",
        },
        "Replicas buy nothing there; inside a node a split is several times as fast as one GPU.",
    ),
    what_a_gpu_sends,
    more_rows,
    Question(
        "more microbatches",
        "GPipe with stored activations; the same batch is cut into twice as many microbatches. The memory of the"
        " fullest GPU",
        "hardly changes",
        {
            "halves": "More microbatches need less memory.",
            "doubles": "Each microbatch needs its own memory.",
            "falls by a quarter": "Half of the activations are freed early.",
        },
        "Each is half as large and twice as many are in flight: the whole batch is stored.",
    ),
    schedules,
    stored_microbatches,
    equal_layers,
]
