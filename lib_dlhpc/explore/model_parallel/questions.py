"""What module 04 asks, in its order: guesses that uncover experiments, things to try, checks."""

import ipywidgets
import numpy as np

from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.plain_text import Column, Table
from lib_dlhpc.explore.blocks.question import Card
from lib_dlhpc.explore.model_parallel import cuts, pipeline, products
from lib_dlhpc.explore.model_parallel.cuts import Cut, unevenness, where_to_cut
from lib_dlhpc.explore.model_parallel.live import QUICKEST, Setting, quickest, split_here
from lib_dlhpc.explore.model_parallel.pipeline import Pipe, a_pipeline, speed_up
from lib_dlhpc.explore.model_parallel.products import Products, gain, split_products
from lib_dlhpc.explore.model_parallel.published import published_table
from lib_dlhpc.spec.units import format_quantity as show

lesson = Lesson()


def sixteen_gpus() -> Card:
    """Ask what a second node brings to tensor parallelism."""
    return lesson.predict(
        "8 GPUs of one node compute the products in tensor parallel over NVLink. You take 16 in two nodes, 200 Gb/s"
        " between them: how many times as fast are they?",
        result=gain(8, 16),
        unit="times",
        explanation="They are slower: the bytes that each sends have hardly changed, and the link is slower.",
        then=split_products(),
    )


def pipeline_gain() -> Card:
    """Ask how fast a pipeline is."""
    opens = Pipe()
    return lesson.predict(
        f"{opens.ranks} GPUs with a stage each, a batch of {opens.batch} in {opens.microbatches} microbatches,"
        f" {opens.schedule} with stored activations: how many times as fast as one GPU?",
        result=speed_up(opens),
        unit="times",
        explanation="While the pipeline fills and drains, GPUs are idle: (p - 1)/m of the time for which they compute.",
        then=a_pipeline(),
    )


def uneven_stages() -> Card:
    """Ask how uneven stages of equally many layers are."""
    return lesson.predict(
        "ResNet-50 in 4 stages of equally many layers: by how many percent is the slowest longer than the mean?",
        result=unevenness(Cut("ResNet-50", way="equal numbers of layers")),
        unit="%",
        explanation="The first layers process the largest images, and each takes longer.",
        then=where_to_cut(),
    )


def quickest_way() -> Card:
    """Ask which way to split is the quickest here, and train."""
    return lesson.predict_choice(
        "Two ranks with a core each train the perceptron, in 4 microbatches. They split the samples (data),"
        " each layer (tensor), or the sequence of layers (pipeline). Which step is the shortest, by the formula?",
        QUICKEST,
        result=lambda: quickest(Setting(ranks=2, microbatches=4)),
        explanation="Data allreduces all gradients once, tensor allreduces activations in each pass, the pipeline"
        " idles in"
        " its bubble: which is least depends on width, batch and microbatches. The loss is the same in all three.",
        then=split_here(),
    )


def eight_stages() -> Card:
    """Check what eight stages lack."""
    return lesson.choose(
        "A colleague: my network has 8 stages on 8 GPUs, so it trains 8 times as fast. What is missing?",
        {
            "Nothing, each GPU does an eighth": "It does an eighth, and is idle while the others do theirs.",
            "The bubble: how many microbatches are there?": "Yes: with 8 it is about 4 times, with 56 about 7.",
            "The allreduce of the gradients": "Each weight is on one GPU only: there is nothing to allreduce.",
        },
        right="The bubble: how many microbatches are there?",
    )


def sixty_four_ways() -> Card:
    """Check when to split a network that fits."""
    return lesson.choose(
        "Your network fits one GPU, and twice the batch still needs half the steps. To be faster on 64 GPUs in 8 nodes,"
        " you split each layer 64 ways. Good?",
        {
            "Yes, model parallel is for speed": "It is where the batch may not grow. Here it may, and across nodes"
            " every"
            " layer waits for an allreduce.",
            "No: replicas first, they exchange once a step": "Yes, while the batch may grow. Past the critical batch"
            " only"
            " a split shortens the run, inside a node first.",
            "No: a pipeline of 64 stages is always better": "It needs a few hundred microbatches to fill.",
        },
        right="No: replicas first, they exchange once a step",
    )


def twice_the_microbatches() -> Card:
    """Check what GPipe stores."""
    return lesson.choose(
        "GPipe with stored activations runs out of memory. You cut the same batch into twice as many microbatches."
        " And?",
        {
            "It needs half as much": "Each is half as large, and twice as many are in flight.",
            "Nothing, the whole batch is still stored": "Yes: 1F1B or activation recomputation stores less.",
            "It needs twice as much": "There are twice as many, but each is half as large.",
        },
        right="Nothing, the whole batch is still stored",
    )


def columns_twice() -> Card:
    """Check what the second product needs."""
    return lesson.choose(
        "Column, then row: you now split both products by columns. What must be sent in addition?",
        {
            "The weights of the other GPUs": "Weights stay where they are; only activations travel.",
            "Y, four times as wide as X": "Yes: the second product reads all columns of Y.",
            "Nothing": "The second product needs whole rows of Y, and each GPU has some columns.",
        },
        right="Y, four times as wide as X",
    )


def bubble(seed: int | None = None) -> Card:
    """Ask each learner for the idle share of a pipeline of their own."""
    draw = np.random.default_rng(seed)
    p, v = int(draw.choice([4, 8, 16])), int(draw.choice([1, 2, 4]))
    m = p * int(draw.integers(1, 5))
    share = (p - 1) / (v * m)
    return lesson.compute(
        f"{p} GPUs with equal stages, {m} microbatches, {v} chunk{'s' * (v > 1)} a GPU, free messages."
        " For what share of the step is a GPU idle, in %?",
        answer=100 * share / (1 + share),
        unit="%",
        hint="(p-1)/(v m) is the bubble over the work; of the step it is that over one more than that.",
    )


def try_tensor() -> Column:
    """List things to try with two products."""

    def share(setting: Products) -> str:
        step = products.predicted(setting)
        return f"{float(step.exposed_communication) / products.seconds(setting):.0%}"

    def change(a: Products, b: Products) -> str:
        return f"from {share(a)} to {share(b)} of the time"

    base = Products()
    return lesson.steps(
        (
            "Choose columns twice. Why does it need an all-gather of Y, and column, then row not?",
            "The second product reads all columns of Y. With B sharded by rows it reads only those that the GPU has.",
        ),
        (
            "Double the width, then the rows. Which lowers the share of communication, and why not the other?",
            lambda: (
                f"Width, {change(base, base._replace(width=8192))}: arithmetic grows with its square, bytes do not."
                f" Rows raise both alike, {change(base, base._replace(tokens=4096))}."
            ),
        ),
        (
            "Give each node eight NICs. Do 16 GPUs pay now?",
            lambda: (
                f"A little: {_times(base._replace(gpus=8, nic=1.6e12), base._replace(nic=1.6e12))} times as fast as 8."
            ),
        ),
        (
            "Put all GPUs into one node. What do the last 32 of 64 add?",
            lambda: (
                f"{_times(base._replace(gpus=32, node=64), base._replace(gpus=64, node=64))} times the speed: thinner"
                " shards, and bytes that hardly shrink."
            ),
        ),
        (
            "Take 1,024 columns. Where does it end now?",
            lambda: (
                "At 16: 32 GPUs are"
                f" {_times(base._replace(gpus=16, node=64, width=1024), base._replace(gpus=32, node=64, width=1024))}"
                " times as fast as 16. Latency grows with the GPUs, arithmetic shrinks."
            ),
        ),
    )


def try_pipeline() -> Column:
    """List things to try with a pipeline."""

    def stores(setting: Pipe) -> str:
        step = pipeline.predicted(setting)
        size = show(float(step.memory_total), "B")
        return f"{size}, {'fits' if bool(step.fits) else 'does not fit'}"

    opens, many = Pipe(), Pipe(batch=32, microbatches=16)
    return lesson.steps(
        (
            "Take 16 microbatches. What happens to the bubble, and what to the memory?",
            lambda: (
                f"The bubble shrinks from {pipeline.bubble_of(opens):.0%} of the work to"
                f" {pipeline.bubble_of(opens._replace(microbatches=16)):.0%}. GPipe stores the whole batch as before."
            ),
        ),
        (
            "Take a batch of 32 with GPipe, then with 1F1B and 16 microbatches. Which fits, and why?",
            lambda: (
                f"GPipe: {stores(many)}. 1F1B: {stores(many._replace(schedule='1F1B'))}, since it stores at most p"
                " microbatches."
            ),
        ),
        (
            "With GPipe, recompute the activations. What does it cost, and what does it save?",
            lambda: (
                f"A step takes {_longer(many, many._replace(recompute='full'))} longer: forward runs twice. Memory:"
                f" {stores(many._replace(recompute='full'))}."
            ),
        ),
        (
            "Choose the interleaved schedule. What shrinks, and what grows?",
            lambda: (
                "The bubble is divided by the chunks; a rank stores more,"
                f" {pipeline.kept(many._replace(schedule='interleaved, 2 chunks'))[0]:.3g} microbatches in place of"
                f" {pipeline.kept(many._replace(schedule='1F1B'))[0]:.3g}, and sends more messages."
            ),
        ),
        (
            "Take 16 GPUs, 2 chunks and 16 microbatches. Why do formula and simulation differ?",
            f"{pipeline.LAYERS} layers do not make 32 equal stages, and the formula is for equal ones.",
        ),
    )


def try_cuts() -> Column:
    """List things to try with unequal layers."""

    def fastest(network: str, link: float) -> str:
        times = {way: cuts.seconds(Cut(network, way=way, link=link))[0] for way in cuts.WAYS}
        return min(times, key=lambda way: times[way])

    def first(way: str) -> str:
        return show(float(cuts.stages(Cut(way=way)).sends[0]), "B")

    return lesson.steps(
        (
            "Compare the four ways to cut ResNet-50. Why is the most balanced one not the fastest?",
            lambda: (
                f"{fastest('ResNet-50', 200e9).capitalize()} is the fastest: its first cut sends"
                f" {first('equal numbers of layers')}, that of equal time {first('equal time')}."
            ),
        ),
        (
            "Take a link of 400 Gb/s. Which cut wins now?",
            lambda: f"{fastest('ResNet-50', 400e9).capitalize()}: messages matter less.",
        ),
        (
            "Cut ResNet-1001 into equal work. Which cost of a GPU does that ignore?",
            lambda: (
                "The launch of each kernel: it has thousands of small layers. The slowest stage is"
                f" {cuts.unevenness(Cut('ResNet-1001', way='equal work')):.0f} % above the mean."
            ),
        ),
        (
            "Cut GPT-2. Why do all cuts send the same, and why are equal weights uneven?",
            "Its blocks are alike, so what passes between them is too. The embedding table has weights and no work.",
        ),
        (
            "Find a link so slow that the message is the bottleneck.",
            lambda: (
                f"{_slow_link()} for ResNet-50 in equal numbers of layers: a message takes longer than half a stage."
            ),
        ),
    )


def try_training() -> Column:
    """List things to try with real ranks."""
    return lesson.steps(
        (
            "Train on one rank, then on two in each of the three ways. Which is the fastest, and which was"
            " predicted to be?",
            "Compare the last two columns of the table: the order depends on this machine, the loss does not.",
        ),
        (
            "Look at the chart of the pipeline with 1 and with 8 microbatches.",
            "With one the second rank is idle until the first is done; with eight both compute most of the time.",
        ),
        (
            "Take four ranks. Where is the time that ranks wait for a core?",
            "In communication and waiting: a rank without a core cannot send, and the others wait for its message.",
        ),
    )


def published() -> Table:
    """Return what was published beside its prediction."""
    return published_table()


def surprises() -> ipywidgets.HTML:
    """Return all guesses beside the results."""
    return lesson.surprises()


def _times(a: Products, b: Products) -> str:
    return f"{products.seconds(a) / products.seconds(b):.2f}"


def _longer(a: Pipe, b: Pipe) -> str:
    steps = [float(pipeline.predicted(each).step_time) for each in (a, b)]
    return f"{steps[1] / steps[0] - 1:.0%}"


def _slow_link() -> str:
    slow = [
        name
        for name, link in cuts.LINKS.items()
        if cuts.cut_wall(Cut(link=link)).startswith("The message")
    ]
    return max(slow, key=lambda name: cuts.LINKS[name])
