"""Exam questions of module 04, model parallelism."""

from lib_dlhpc.explore.model_parallel import products
from lib_dlhpc.explore.model_parallel.products import Products
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.problems import Step
from lib_dlhpc.teaching.questions import Draw, Open, Question


def share(setting: Products) -> float:
    """Return the percentage of the products' time that goes into messages."""
    return (
        100 * float(products.predicted(setting).exposed_communication) / products.seconds(setting)
    )


def stages(draw: Draw) -> Question:
    """How many times as fast a pipeline is."""
    ranks, microbatches = draw.between(5, 14, 1), draw.between(12, 60, 1)
    faster = ranks * microbatches / (microbatches + ranks - 1)
    return Question(
        "stages",
        f"A network runs in {ranks} equal stages on {ranks} GPUs with GPipe, {microbatches} microbatches and free"
        " messages. How many times as fast is it as on one GPU with enough memory?",
        f"{faster:.2f}",
        {
            f"{ranks:.2f}": "A pipeline with P stages is P times faster.",
            f"{1:.2f}": "Stages compute one after another.",
            f"{ranks * ranks / (2 * ranks - 1):.2f}": (
                "The bubble does not depend on the number of microbatches."
            ),
        },
        "While the pipeline fills and drains, stages are idle.",
        [
            Step("Time over that of one GPU: (m + p - 1) / (m p)", 1 / faster),
            Step("Its inverse", faster),
        ],
    )


def bubble(draw: Draw) -> Question:
    """The bubble as a share of the step."""
    ranks, microbatches = draw.between(4, 12, 1), draw.between(9, 40, 1)
    over = (ranks - 1) / microbatches
    return Question(
        "bubble",
        f"A pipeline has {ranks} equal stages, {microbatches} microbatches, 1F1B and free messages. For what share of"
        " the step is a GPU idle?",
        f"{100 * over / (1 + over):.1f}%",
        {
            f"{100 * over:.1f}%": "The bubble over the work is its share of the step.",
            f"{200 * over / (1 + 2 * over):.1f}%": "Filling and draining are two bubbles.",
            f"{100 * ranks / (microbatches + ranks):.1f}%": (
                "P microbatches are lost to fill P stages."
            ),
        },
        "The bubble is (p - 1) / m of the work; as a share of the step, that is x / (1 + x) with x = (p - 1) / m.",
        [
            Step("Bubble over work, (p - 1) / m", 100 * over, "%"),
            Step("Over one more than that", 100 * over / (1 + over), "%"),
        ],
    )


def across_nodes(draw: Draw) -> Question:
    """Tensor parallelism over more nodes."""
    times, computing = draw.any([2, 4]), draw.between(10, 40, 1)
    near, far = draw.between(2, 9, 1), draw.between(22, 70, 1)
    faster = (computing + near) / (computing / times + far)
    return Question(
        "across nodes",
        f"Two large matmuls are split over the 8 GPUs of a node by tensor parallelism: they compute for {computing}"
        f" ms, and their messages take {near} ms. On {8 * times} GPUs in {times} nodes with one NIC each, the messages"
        f" take {far} ms. How many times as fast are the matmuls there?",
        f"{faster:.2f}",
        {
            f"{times:.2f}": "Model parallelism is for speed.",
            f"{times**0.5:.2f}": "The gain is the root of the number of GPUs.",
            f"{(computing + near) / (computing / times + near):.2f}": "Messages take as long between nodes as in one.",
        },
        "The allreduce of every layer now crosses nodes, which makes the matmuls slower, not faster.",
        [
            Step("Before", computing + near, "ms"),
            Step("On all nodes", computing / times + far, "ms"),
            Step("One over the other", faster),
        ],
    )


def what_a_gpu_sends(draw: Draw) -> Question:
    """The bytes of a ring."""
    few, many = draw.between(3, 6, 1), draw.between(9, 32, 1)
    buffer = draw.between(20, 300, 5) * 1e6
    sent = [2 * (gpus - 1) / gpus * buffer for gpus in (few, many)]
    return Question(
        "what a gpu sends",
        f"Two large matmuls are split by tensor parallelism, and their results allreduced by a ring. On {few} GPUs"
        f" each one sends {show(sent[0], 'B')} of a result. How much does each send on {many} GPUs?",
        show(sent[1], "B"),
        {
            show(sent[0] * few / many, "B"): "With more GPUs, each one sends less.",
            show(sent[0] * (many - 1) / (few - 1), "B"): "Each GPU sends to every other GPU.",
            show(sent[1] / 2, "B"): "The all-gather comes for free.",
        },
        "In an allreduce, each of p ranks sends 2 (p - 1) / p of the buffer, which hardly depends on p.",
        [
            Step("The buffer: what is sent over 2 (p - 1) / p", buffer, "B"),
            Step(f"Times 2 (p - 1) / p of {many}", sent[1], "B"),
        ],
    )


def more_rows(draw: Draw) -> Question:
    """Rows raise arithmetic and messages alike."""
    width, tokens = draw.between(3072, 6144, 128), draw.between(1024, 4096, 256)
    few = Products(gpus=16, width=width, tokens=tokens)
    rows, wide = few._replace(tokens=2 * tokens), few._replace(width=2 * width)
    return Question(
        "more rows",
        f"Two matmuls of {width:,} columns are split over 16 GPUs in two nodes. With {tokens:,} rows, messages take"
        f" {share(few):.1f}% of the time. With {2 * tokens:,} rows, they take about",
        f"{share(rows):.1f}%",
        {
            f"{share(few) / 2:.1f}%": "A bigger batch makes messages matter less.",
            f"{share(wide):.1f}%": "More rows have the same effect as more width.",
            f"{200 * share(few) / (100 + share(few)):.1f}%": "Only messages grow with the rows.",
        },
        "Rows raise arithmetic and messages alike. Width raises arithmetic more.",
        [Step("Both arithmetic and messages double: their share stays", share(few), "%")],
    )


def schedules(draw: Draw) -> Question:
    """The bubbles of GPipe and 1F1B."""
    ranks, microbatches = draw.between(4, 12, 1), draw.between(11, 40, 1)
    over = 100 * (ranks - 1) / microbatches
    return Question(
        "1f1b",
        f"With {ranks} stages and {microbatches} microbatches, GPipe has a bubble of {over:.1f}% of the computation."
        " How large is the bubble of 1F1B, with the same stages and microbatches?",
        f"{over:.1f}%",
        {
            f"{over / 2:.1f}%": "1F1B has a smaller bubble than GPipe.",
            f"{over / 3:.1f}%": "1F1B fills its bubble with weight gradients.",
            f"{100 * over / (100 + over):.1f}%": "With 1F1B, a bubble is a share of the step.",
        },
        "The bubble is the same; 1F1B needs less memory, and so has room for more microbatches.",
        [Step("For both schedules: (p - 1) / m", over, "%")],
    )


def stored_microbatches(draw: Draw) -> Question:
    """What 1F1B stores."""
    ranks, times = draw.between(5, 36, 1), draw.between(2, 8, 1)
    return Question(
        "stored microbatches",
        f"A pipeline has {ranks} stages, {times * ranks} microbatches and 1F1B. Add up the microbatches whose"
        " activations each stage stores at its own peak. What is the sum over all stages?",
        f"{sum(range(1, ranks + 1))}",
        {
            f"{times * ranks * ranks}": "Each stage stores all microbatches that have entered the pipeline.",
            f"{ranks * ranks}": "Each stage stores as many as there are stages.",
            f"{ranks}": "One forward, one backward: each stage stores one.",
        },
        "Rank r of p, counted from 0, stores p - r.",
        [
            Step("Mean of p, p - 1, ..., 1", (ranks + 1) / 2),
            Step("Times the stages", ranks * (ranks + 1) / 2),
        ],
    )


def equal_layers(draw: Draw) -> Question:
    """Stages of equally many layers."""
    passes = [draw.between(6, 30, 1) for _ in range(4)]
    microbatches = draw.between(6, 12, 1)
    slowest, whole = max(passes), sum(passes)
    taken = whole + (microbatches - 1) * slowest
    listed = ", ".join(f"{each}" for each in passes[:-1])
    return Question(
        "equal layers",
        f"A network is cut into four stages of equally many layers. Their forward passes of a microbatch take {listed}"
        f" and {passes[-1]} ms. After what time has the last of {microbatches} microbatches left the last stage, if"
        " messages are free?",
        show(taken / 1e3, "s"),
        {
            show(
                (microbatches + 3) * whole / 4e3, "s"
            ): "Equal stages have equal numbers of layers",
            show(microbatches * whole / 1e3, "s"): "Stages compute one after another.",
            show(
                microbatches * slowest / 1e3, "s"
            ): "The other stages are hidden behind the slowest.",
        },
        "The first microbatch passes through all stages; after that, one leaves each time the slowest stage finishes"
        " one.",
        [
            Step("The first has left after", whole, "ms"),
            Step("The others follow every", slowest, "ms"),
            Step("The last has left after", taken / 1e3, "s"),
        ],
    )


OPEN = Open(
    "A network fits on one GPU. Its owner has 8 GPUs in one node, a batch beyond the critical batch, and a colleague"
    " who says that model parallelism is only for memory. Advise the owner: which split would you choose, why, and"
    " what would change your mind?",
    "Beyond the critical batch, more samples save few steps, so replicas gain little; a tensor split shortens the"
    " work on each sample where links are fast. A pipeline needs microbatches, and hence a larger batch. With slow"
    " links, small layers or a batch below the critical one, the advice is reversed.",
    {
        "says what it means for data parallelism to be beyond the critical batch": 2,
        "chooses a split and names its cost: messages per layer, or a bubble": 2,
        "says which change of network, link or batch would reverse the choice": 2,
    },
)

QUESTIONS = [
    stages,
    bubble,
    across_nodes,
    Question(
        "past the critical batch",
        "The batch is beyond the critical batch: more samples per step save hardly any steps. Each GPU already has"
        " just one sample. A node has 8 GPUs, and the network fits on one. How do you shorten the run?",
        "Split each sample's work over the GPUs of a node",
        {
            "Not at all: splits are for memory": "Model parallelism is never for speed.",
            "With eight replicas, each with twice the batch": "Data parallelism is always first.",
            "With eight stages and one microbatch": "A pipeline with P stages is P times faster.",
        },
        "Replicas gain nothing beyond the critical batch; within a node, a split is several times as fast as one GPU.",
    ),
    what_a_gpu_sends,
    more_rows,
    Question(
        "more microbatches",
        "With GPipe and stored activations, the same batch is cut into twice as many microbatches. The memory of the"
        " fullest GPU",
        "hardly changes",
        {
            "halves": "More microbatches need less memory.",
            "doubles": "Each microbatch needs its own memory.",
            "falls by a quarter": "Half of the memory is activations, and they halve.",
        },
        "Each microbatch is half as large, and twice as many are in flight: the whole batch is stored either way.",
    ),
    schedules,
    stored_microbatches,
    equal_layers,
]
