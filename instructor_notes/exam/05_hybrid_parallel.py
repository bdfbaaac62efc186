"""Exam questions of module 05, hybrid and spatial parallelism."""

from lib_dlhpc.explore.hybrid_parallel import map as layouts
from lib_dlhpc.explore.hybrid_parallel.charts import parts_of
from lib_dlhpc.explore.hybrid_parallel.cosmos import Cubes, finer, step_of
from lib_dlhpc.explore.hybrid_parallel.map import RUNS, Ways
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.questions import Draw, Question

LARGE = ("GPT-3, 384 GPUs", "GPT-3, 1,536 GPUs")


def cut_finer(draw: Draw) -> Question:
    """What a finer cut shortens, and what it leaves."""
    edge, slabs, gpus = draw.of(
        [(512, 4, 256), (512, 8, 512), (256, 2, 512), (256, 4, 1024), (512, 2, 256)]
    )
    cubes = Cubes(edge=edge, slabs=slabs, gpus=gpus)
    now, then, more = map(step_of, (cubes, finer(cubes), cubes._replace(gpus=2 * gpus)))
    parts, own = parts_of(now), parts_of(then)
    return Question(
        "finer",
        f"{gpus // slabs} cubes of {edge}³ per step on {gpus} GPUs, each cut into {slabs} slabs; more cubes"
        f" per step save no steps. A step takes {show(float(now.step_time), 's')}, of which halos and"
        f" gradients expose {show(parts['halos'] + parts['gradients'], 's')}. You get as many GPUs again and"
        " cut each cube twice as fine: a GPU computes, and waits for the slowest, for"
        f" {show(own['compute'] + own['waiting'], 's')}. What share of the time does a step take, if halos and"
        " gradients take as long as before?",
        f"{float(then.step_time / now.step_time):.3f}",
        {
            f"{float(more.step_time / now.step_time):.3f}": "model parallel is never for speed",
            f"{1 / 2 / 2:.3f}": "Half of the slab takes a quarter of the time.",
            f"{2 * slabs / slabs:.3f}": "Twice the messages, twice the time.",
        },
        "Past the critical batch a finer cut is the only way to a shorter step; here halos are cheap.",
    )


def more_replicas(draw: Draw) -> Question:
    """The memory of a replica."""
    edge, slabs, gpus, samples = draw.of(
        [(512, 4, 512, 2), (256, 2, 256, 2), (256, 4, 512, 8), (512, 8, 256, 4), (256, 2, 512, 1)]
    )
    cubes = Cubes(edge=edge, slabs=slabs, gpus=gpus, samples=samples)
    now, then = (float(step_of(cubes._replace(gpus=g)).memory_total) for g in (gpus, 2 * gpus))
    return Question(
        "more replicas",
        f"Cubes of {edge}³, {slabs} GPUs per replica, {gpus // slabs} replicas with a batch of {samples} each: a GPU"
        f" needs {show(now, 'B')}. You take twice the GPUs, in twice the replicas of the same batch. How much memory"
        " does each GPU need?",
        show(then, "B"),
        {
            show(now / 2, "B"): "With more replicas, each GPU stores less.",
            show(2 * now, "B"): "Each replica adds its gradients.",
            show(now * 3 / 4, "B"): "Replicas share the weights, not the activations.",
        },
        "A replica is a complete copy: only a split, or ZeRO for the state, makes it smaller.",
    )


def received(edge: int, slabs: int, channels: int, window: int) -> int:
    """Return the bytes in 16 bits that an inner slab lacks for one convolution."""
    thick, around = edge // slabs, window // 2
    own = range(thick, 2 * thick)
    lacking = set(range(own.start - around, own.stop + around)) - set(own)
    return len(lacking) * edge**2 * channels * 2


def halo(draw: Draw) -> Question:
    """The surface of a slab."""
    edge, channels, window = draw.of([(512, 16, 3), (256, 24, 5), (384, 48, 3), (320, 32, 7)])
    slabs = draw.of([4, 8, 16])
    few, many = (received(edge, cut, channels, window) for cut in (slabs, 2 * slabs))
    return Question(
        "halo",
        f"Cubes of {edge}³ points and {channels} channels in 16 bits are cut into {slabs} slabs. For a convolution with"
        f" a window of {window}³ an inner slab receives {show(few, 'B')} from its neighbors. How much does it receive"
        f" if the cubes are cut into {2 * slabs} slabs?",
        show(many, "B"),
        {
            show(few / 2, "B"): "A halo shrinks with the slab.",
            show(
                2 * few, "B"
            ): "Twice the slabs have twice the surfaces, and each rank pays for all.",
            show(few / 4, "B"): "A surface shrinks with the square.",
        },
        "The surface of a slab stays, its thickness halves: so strong scaling ends.",
    )


def fewest_messages(draw: Draw) -> Question:
    """Memory rules out the left of the map."""
    name, stages = draw.of(LARGE), draw.of([8, 12, 16])
    run = RUNS[name]
    left, used = (layouts.predicted(Ways(run=name), *split) for split in ((1, stages), (8, 12)))
    return Question(
        "fewest messages",
        f"GPT-3 ({run.layers} blocks of width {run.hidden:,}, {run.heads} heads, recomputed) on {run.gpus:,} GPUs of"
        f" {show(left.capacity, 'B')}: tensor 1 × pipeline {stages} has few messages. What do you make of it?",
        f"{show(left.memory, 'B')} are needed on each GPU, so it does not fit",
        {
            "It is the best": "The best combination is the one with the fewest messages.",
            "Its bubble is the longest of all": "Less tensor parallelism means more bubble.",
            "Its gradients are exchanged between nodes": "An exchange between nodes is what decides.",
        },
        f"Memory rules the left of the map out; tensor 8 × pipeline 12 needs {show(used.memory, 'B')}.",
    )


def pipelined(sequences: int, stages: int, microbatch: int, faster: float) -> float:
    """Return how many times as long a step is as with microbatches of one sequence.

    faster: how many times as fast a stage computes.
    """
    one, larger = sequences + stages - 1, sequences / microbatch + stages - 1
    return larger * microbatch / faster / one


def larger_microbatch(draw: Draw) -> Question:
    """A bubble is p - 1 microbatches, whatever they hold."""
    sequences, stages = draw.of([(24, 12), (96, 24), (48, 10), (32, 6)])
    microbatch, gain = draw.of([(8, 5), (4, 3), (8, 8)])
    longer = pipelined(sequences, stages, microbatch, 1 + gain / 100)
    return Question(
        "larger microbatch",
        f"{stages} equal stages, 1F1B, a replica's batch of {sequences} sequences, free messages. Microbatches of"
        f" {microbatch} sequences instead of 1: larger matmuls run at a rate that is {gain} % higher. How many times"
        " as long is a step?",
        f"{longer:.2f}",
        {
            f"{pipelined(sequences, 2, microbatch, 1 + gain / 100):.2f}": (
                "All layouts lose the same share."
            ),
            f"{1 / microbatch:.2f}": "A larger microbatch computes better, so it is better.",
            f"{microbatch:.2f}": "A larger microbatch makes a step longer in proportion.",
        },
        "The bubble is p - 1 microbatches of a stage, and each is now several times as long.",
    )


def share_of_a_halo(draw: Draw) -> Question:
    """Planes over the thickness of a slab."""
    edge, slabs = draw.of([(128, 4), (256, 32), (384, 24), (192, 8), (320, 40)])
    right = received(edge, slabs, 1, 3) / (2 * edge**3 / slabs)
    return Question(
        "share of a halo",
        f"A cube of {edge}³ points is cut into {slabs} slabs; a convolution needs one plane of each neighbor. Which"
        " share of its own points does an inner slab receive?",
        f"{100 * right:.2f} %",
        {
            f"{100 * right / 2:.2f} %": "A slab has one surface.",
            f"{100 * 2 / edge:.2f} %": "A halo is a share of the cube.",
            f"{100 * 2 * slabs**2 / edge:.2f} %": "Every slab sends to every other.",
        },
        "Two planes over the thickness of a slab.",
    )


QUESTIONS = [
    cut_finer,
    Question(
        "first split",
        "A network fits one GPU with room to spare, you have 64, and twice the batch still needs half the"
        " steps. Which split first?",
        "Data",
        {
            "Tensor": "Model parallel is for speed",
            "Pipeline": "Sixty-four stages are 64 times as fast.",
            "Spatial": "Smaller pieces of a sample are always faster.",
        },
        "One allreduce per step, mostly overlapped, as long as a larger batch saves steps.",
    ),
    more_replicas,
    halo,
    Question(
        "across nodes last",
        "Nodes of 8 GPUs. Tensor 8, pipeline 4, data 8. Which group should span nodes last?",
        "Tensor",
        {
            "Data": "Gradients have the most bytes, so data-parallel ranks must be the closest.",
            "Pipeline": "Stages wait for each other, so they must be near.",
            "It makes no difference": "Bytes are bytes, no matter who sends them and when.",
        },
        "It allreduces in every layer, forward and backward, and nothing overlaps; gradients travel once per step.",
    ),
    fewest_messages,
    larger_microbatch,
    Question(
        "agreement",
        "Two replicas of a split network hold bitwise equal gradients after a step. What does that show?",
        "That the exchange among replicas works; for the split, compare with one rank",
        {
            "That the gradients are right": "If the replicas agree, the gradients are right.",
            "That halos are exchanged correctly": "A missing halo makes replicas differ.",
            "That both ranks had the same samples": "Equal gradients come from equal samples.",
        },
        "A halo that is missing in both replicas is missing in both.",
    ),
    Question(
        "eight ranks, two cores",
        "Eight ranks on two cores train with 2 × 2 × 2. What of the result depends on the lack of cores?",
        "The time; the losses equal those of one rank but for the last digits",
        {
            "The losses and the time": "Oversubscribed ranks give wrong results.",
            "Neither, ranks take turns": "A wait for a core costs nothing.",
            "The losses, since messages arrive in another order": "The order of arrival changes a sum of two parts.",
        },
        "A program that is right is right on any number of cores; its waits are not those of a cluster.",
    ),
    share_of_a_halo,
]
