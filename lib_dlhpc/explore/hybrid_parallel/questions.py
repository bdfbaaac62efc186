"""What module 05 asks, in its order: guesses that uncover experiments, things to try, checks."""

import ipywidgets
import numpy as np

from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.plain_text import Column, Table
from lib_dlhpc.explore.blocks.question import Card
from lib_dlhpc.explore.hybrid_parallel import cosmos
from lib_dlhpc.explore.hybrid_parallel import deep as images
from lib_dlhpc.explore.hybrid_parallel import map as layouts
from lib_dlhpc.explore.hybrid_parallel.background import Later
from lib_dlhpc.explore.hybrid_parallel.charts import TERMS, parts_of
from lib_dlhpc.explore.hybrid_parallel.cosmos import Cubes, finer, memory_alone, step_of, the_cubes
from lib_dlhpc.explore.hybrid_parallel.deep import Deep, the_deep
from lib_dlhpc.explore.hybrid_parallel.live import split_here, times_as_fast
from lib_dlhpc.explore.hybrid_parallel.map import Ways, tensor_across, the_map
from lib_dlhpc.explore.hybrid_parallel.published import published_table
from lib_dlhpc.explore.hybrid_parallel.runs import Setting
from lib_dlhpc.spec.units import format_quantity as show

lesson = Lesson()


def one_cube() -> Card:
    """Ask for the memory of one cube."""
    return lesson.predict(
        "One cube of 512³ points with four channels, float32, is 2.1 GB. How many GB does training on it take?",
        result=memory_alone(),
        unit="GB",
        explanation="Activations: the first layers store the whole volume, once for each of their channels.",
        then=the_cubes(),
    )


def across_nodes() -> Card:
    """Ask what tensor groups across nodes cost, and draw the map."""
    ways = Later(the_map)
    return lesson.predict(
        "8 tensor ranks × 12 stages × 4 replicas, no two GPUs in one node: how many times as long is a step?",
        result=ways.gives(tensor_across),
        unit="times",
        explanation="Tensor ranks allreduce in every layer of every microbatch; the other groups communicate far less.",
        then=ways.box,
    )


def sixteen_devices() -> Card:
    """Ask how to split large images over 16 devices."""
    deep = Later(the_deep)
    return lesson.predict_choice(
        "Of those that fit, which is the fastest way to parallelize these images over 16 devices?",
        ("16 stages", "16 slabs", "stages and slabs", "none, data alone is faster"),
        result=deep.gives("stages and slabs"),
        explanation="Stages alone have too many images in flight, slabs alone are too thin to compute efficiently.",
        then=deep.box,
    )


def eight_ranks() -> Card:
    """Ask how fast eight ranks are, and train."""
    return lesson.predict(
        "2 replicas × 2 stages × 2 tensor ranks train a small GPT in 4 microbatches, one core for each of the 8"
        " ranks. By"
        " the formula, how many times as fast is a step as on one rank?",
        result=lambda: times_as_fast(Setting("words", 2, 2, 2, 4)),
        unit="times",
        explanation="Bubble, tensor-parallel allreduces and shards too thin to compute efficiently all cost time. The"
        " losses agree with those of one rank but for the last digits: that needs no cores.",
        then=split_here(),
    )


def first_split() -> Card:
    """Check which split comes first."""
    return lesson.choose(
        "A network fits one GPU with room to spare, you have 64, and twice the batch still needs half the steps. Which"
        " split do you begin with?",
        {
            "Tensor: each GPU has less to compute": "It allreduces in every layer. It is for memory, or for a batch"
            " that"
            " may not grow.",
            "Data": "Yes: one allreduce a step, mostly overlapped, as long as a larger batch saves steps.",
            "Pipeline: 64 stages are 64 times as fast": "Only with very many microbatches: see the bubble.",
        },
        right="Data",
    )


def more_gpus() -> Card:
    """Check how to spend GPUs past the critical batch."""
    cut, more = (step_of(each).step_time for each in (finer(Cubes()), Cubes(gpus=1024)))
    now = step_of(Cubes()).step_time
    return lesson.choose(
        "128 cubes of 512³ a step on 512 GPUs: past the critical batch, more cubes a step save no steps. You get 512"
        " more"
        " GPUs. How do you spend them?",
        {
            "More replicas": f"A step takes {more / now:.2f} times as long, and you need as many steps: nothing is"
            f" gained.",
            "Cut each cube finer": f"Yes: a step takes {cut / now:.2f} times as long. Here a split is for speed.",
            "Not at all: a split is for memory": "While the batch may grow. Now it is the only way to a shorter step.",
        },
        right="Cut each cube finer",
    )


def last_across() -> Card:
    """Check which group spans nodes last."""
    return lesson.choose(
        "Nodes of 8 GPUs. Tensor 8, pipeline 4, data 8. Which group should span nodes last?",
        {
            "Data: gradients are the most bytes": "Once a step. Count the messages of a microbatch.",
            "Pipeline: stages wait for each other": "For one message a microbatch; a bubble is not communication.",
            "Tensor": "Yes: it allreduces in every layer, forward and backward, fully exposed.",
        },
        right="Tensor",
    )


def halo() -> Card:
    """Check how a halo scales."""
    return lesson.choose(
        "Twice the slabs, the same cubes: the time of a halo ...",
        {
            "halves": "The surface of a slab does not change; only its thickness halves.",
            "stays": "Yes: that is why strong scaling ends where a slab is all surface.",
            "doubles": "There are twice as many surfaces, but each rank still has two.",
        },
        right="stays",
    )


def own_halo(seed: int | None = None) -> Card:
    """Ask each learner which share of a slab its halos are."""
    draw = np.random.default_rng(seed)
    edge, slabs = int(draw.choice([64, 128, 256])), int(draw.choice([4, 8, 16]))
    return lesson.compute(
        f"A cube of {edge}³ points is cut into {slabs} slabs; a convolution with windows of 3³ needs one plane of"
        " each neighbor. Which share of its own points does an inner slab receive, in %?",
        answer=100 * 2 * slabs / edge,
        unit="%",
        hint="Two planes of edge² points, over edge³ / slabs of its own.",
    )


def own_bubble(seed: int | None = None) -> Card:
    """Ask each learner for the bubble of a layout of their own."""
    draw = np.random.default_rng(seed)
    tensor, pipeline = int(draw.choice([2, 4, 8])), int(draw.choice([4, 8, 16]))
    replicas, each = int(draw.choice([4, 8])), int(draw.choice([16, 32, 64]))
    gpus, batch = tensor * pipeline * replicas, replicas * each
    return lesson.compute(
        f"{gpus:,} GPUs, tensor {tensor} × pipeline {pipeline}, the rest data; a batch of {batch:,} sequences, one"
        " a microbatch. The bubble, as a share of the computation (equal stages, 1F1B), in %?",
        answer=100 * (pipeline - 1) / each,
        unit="%",
        hint="First the replicas, then the microbatches of each; the bubble is (p - 1) / m.",
    )


def try_cubes() -> Column:
    """List things to try with cubes."""

    def fewest() -> int:
        return next(s for s in cosmos.SLABS if step_of(Cubes(slabs=s)).fits)

    def largest() -> str:
        parts = parts_of(step_of(Cubes(256, 32)))
        first, second = sorted((n for n in parts if n != "compute"), key=lambda name: -parts[name])[
            :2
        ]
        return f"{first}, {show(parts[first], 's')}, then {second}, {show(parts[second], 's')}"

    def read() -> str:
        step = step_of(Cubes(tier="gpfs"))
        return (
            f"A batch takes {show(float(step.input_time), 's')} to read and {show(float(step.compute), 's')} to"
            " compute: input is the bottleneck. The drives in the nodes suffice."
        )

    def ways() -> str:
        now = step_of(Cubes()).step_time
        cut, more = (step_of(each).step_time for each in (finer(Cubes()), Cubes(gpus=1024)))
        return (
            f"Finer slabs: {float(cut / now):.2f} times as long a step. More samples: {float(more / now):.2f} times,"
            " with twice the samples."
        )

    return lesson.steps(
        (
            "Find the fewest GPUs a sample that fit. Why do more replicas not help?",
            lambda: (
                f"{fewest()}, as published: each replica processes whole cubes, however many replicas there are."
            ),
        ),
        ("Compare the two ways to spend twice the GPUs. Which of them shortens the step?", ways),
        (
            "Take cubes of 256³ on 32 slabs. Which term dominates beside computation?",
            lambda: f"{largest()}.",
        ),
        ("Read the cubes of 512³ from the shared file system.", read),
    )


def try_map() -> Column:
    """List things to try with the map."""

    def step(tensor: int, pipeline: int, microbatch: int = 1) -> float:
        return layouts.predicted(Ways(microbatch=microbatch), tensor, pipeline).seconds

    def slower() -> str:
        lost = {t: step(t, 12, microbatch=8) / step(t, 12) - 1 for t in (2, 8)}
        return (
            f"With tensor 2 and 12 stages {lost[2]:.0%}, with tensor 8 {lost[8]:.0%}: the bubble is p - 1 microbatches"
            " of a stage, which is p times shorter than the network, so that stages hardly matter."
        )

    return lesson.steps(
        (
            "Read the map from the left, where memory runs out. Why is a lower tensor degree faster than the published"
            " layout?",
            lambda: (
                f"4 × 12 takes {show(step(4, 12), 's')}, 8 × 12 {show(step(8, 12), 's')}: half the tensor ranks"
                " allreduce faster and compute wider shards."
            ),
        ),
        (
            "What may the authors have known that the model does not?",
            "It needs twice the memory for weights and state; kernels of the time had other efficiencies than one curve"
            " gives.",
        ),
        ("Take microbatches of 8. Which rows lose most, and why not the columns?", slower),
        (
            "Take nodes of 2. Where does the optimum move?",
            "To a tensor degree of 2 or less: an allreduce in every layer must stay inside a node.",
        ),
        (
            "Let GPipe store all activations. What is left?",
            "Nothing: it stores all microbatches of a replica, 384 with 4 replicas.",
        ),
    )


def try_images() -> Column:
    """List things to try with large images."""

    def best(setting: Deep) -> str:
        found = images.best_of(list(images.ways_of(setting)))
        return images.name_of(found) if found else "none"

    def parts() -> str:
        stages, slabs = (
            dict(zip(TERMS, images.predicted(Deep(), *each).parts, strict=True))
            for each in ((16, 1), (1, 16))
        )
        return (
            f"Into computation: {show(stages['compute'], 's')} with 16 stages, {show(slabs['compute'], 's')} with 16"
            f" slabs, since thin kernels are inefficient. Halos take {show(slabs['halos'], 's')}."
        )

    return lesson.steps(
        ("Compare the bars: the bubble at the top turns into which cost at the bottom?", parts),
        (
            "Take images of 224 pixels. Is splitting still worth it, and what for?",
            lambda: (
                f"The fastest is {best(Deep(side=224))}: it fits, and no split is faster with this batch."
            ),
        ),
        (
            "Take Xeons with 96 GB. Which wall is gone, and which layout is the fastest?",
            lambda: f"Memory; {best(Deep(machine='frontera'))}.",
        ),
    )


def try_ranks() -> Column:
    """List things to try with real ranks."""
    return lesson.steps(
        (
            "Train with 2 slabs, then with 4, then GPT as 2 × 2 × 2 with 4 microbatches. Which term has the largest"
            " error?",
            "Communication inside the layers: each collective waits for ranks without a core, and Python between two"
            " messages takes longer than the message.",
        ),
        (
            "Does the page warn you beforehand?",
            "Yes, where ranks outnumber cores: time then says nothing about the method. The losses do.",
        ),
    )


def published() -> Table:
    """Return what was published beside its prediction."""
    return published_table()


def surprises() -> ipywidgets.HTML:
    """Return all guesses beside the results."""
    return lesson.surprises()
