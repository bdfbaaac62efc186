"""Exam questions of module 05, hybrid and spatial parallelism."""

from lib_dlhpc.explore.hybrid_parallel import map as layouts
from lib_dlhpc.explore.hybrid_parallel.charts import Way, parts_of
from lib_dlhpc.explore.hybrid_parallel.cosmos import Cubes, finer, step_of
from lib_dlhpc.explore.hybrid_parallel.map import Ways
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.questions import Question

first = step_of(Cubes())


def longer(setting: Cubes) -> float:
    """Return how many times as long a step is as that of the module's first cubes."""
    return float(step_of(setting).step_time / first.step_time)


def more_memory(setting: Cubes) -> float:
    """Return how many times the memory of the module's first cubes a GPU needs."""
    return float(step_of(setting).memory_total / first.memory_total)


def halo(slabs: int) -> float:
    """Return the seconds of halos in a step."""
    return parts_of(step_of(Cubes(slabs=slabs)))["halos"]


def layout(tensor: int, pipeline: int, microbatch: int = 1) -> Way:
    """Return a layout of GPT-3 on the module's map."""
    return layouts.predicted(Ways(microbatch=microbatch), tensor, pipeline)


lost = {t: 100 * (layout(t, 12, 8).seconds / layout(t, 12).seconds - 1) for t in (2, 8)}
leftmost, published = layout(1, 12), layout(8, 12)
EDGE, SLABS = 128, 8

QUESTIONS = [
    Question(
        "finer",
        "128 cubes of 512³ a step on 512 GPUs, each cut into 4 slabs; more cubes a step save no steps. You get"
        " 512 more GPUs and cut each cube into 8"
        " slabs. What share of the time does a step take?",
        f"{longer(finer(Cubes())):.2f}",
        {
            f"{longer(Cubes(gpus=1024)):.2f}": "model parallel is never for speed",
            f"{4 / 8 / 2:.2f}": "Half of the slab takes a quarter of the time.",
            f"{8 / 4:.2f}": "Twice the messages, twice the time.",
        },
        "Past the critical batch a finer cut is the only way to a shorter step; here halos are cheap.",
    ),
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
        "One allreduce a step, mostly overlapped, as long as a larger batch saves steps.",
    ),
    Question(
        "more replicas",
        "Cubes of 512³ do not fit where 2 GPUs share one. You take twice the GPUs, in twice the replicas. How"
        " does the memory that each GPU needs change?",
        f"{more_memory(Cubes(gpus=1024)):.2f} times",
        {
            f"{512 / 1024:.2f} times": "With more replicas, each GPU stores less.",
            f"{1024 / 512:.2f} times": "Each replica adds its gradients.",
            f"{(1 + 512 / 1024) / 2:.2f} times": "Replicas share the weights, not the activations.",
        },
        "A replica is a complete copy: only a split, or ZeRO for the state, makes it smaller.",
    ),
    Question(
        "halo",
        "Cubes of 512³ are cut into 16 slabs instead of 8, on the same network. How does the time of the halos"
        " of a rank change?",
        f"{halo(16) / halo(8):.2f} times",
        {
            f"{8 / 16:.2f} times": "A halo shrinks with the slab.",
            f"{16 / 8:.2f} times": "Twice the slabs have twice the surfaces, and each rank pays for all.",
            f"{(8 / 16) ** 2:.2f} times": "A surface shrinks with the square.",
        },
        "The surface of a slab stays, its thickness halves: so strong scaling ends.",
    ),
    Question(
        "across nodes last",
        "Nodes of 8 GPUs. Tensor 8, pipeline 4, data 8. Which group should span nodes last?",
        "Tensor",
        {
            "Data": "Gradients have the most bytes, so data-parallel ranks must be the closest.",
            "Pipeline": "Stages wait for each other, so they must be near.",
            "It makes no difference": "Bytes are bytes, no matter who sends them and when.",
        },
        "It allreduces in every layer, forward and backward, and nothing overlaps; gradients travel once a step.",
    ),
    Question(
        "fewest messages",
        f"GPT-3 on 384 GPUs of {show(leftmost.capacity, 'B')}: of all layouts tensor 1 × pipeline 12 has the"
        " fewest messages. What do you make of it?",
        f"It does not fit: it needs {show(leftmost.memory, 'B')}",
        {
            "It is the best": "The best combination is the one with the fewest messages.",
            "Its bubble is the longest of all": "Less tensor parallelism means more bubble.",
            "Its gradients are exchanged between nodes": "An exchange between nodes is what decides.",
        },
        f"Memory rules the left of the map out; tensor 8 × pipeline 12 needs {show(published.memory, 'B')}.",
    ),
    Question(
        "larger microbatch",
        "GPT-3, tensor 2 × pipeline 12, a batch of given size. Microbatches of 8 sequences instead of 1:"
        " larger products run at a higher rate. How does a step change?",
        f"{lost[2]:.0f} % longer",
        {
            f"{lost[8]:.0f} % longer": "All layouts lose the same share.",
            f"{100 * (1 - 1 / 8):.0f} % shorter": "A larger microbatch computes better, so it is better.",
            f"{100 * (8 - 1):.0f} % longer": "A step has eight times the work in each microbatch.",
        },
        "The bubble is p - 1 microbatches of a stage, and each is now eight times as long.",
    ),
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
    Question(
        "share of a halo",
        f"A cube of {EDGE}³ points is cut into {SLABS} slabs; a convolution needs one plane of each neighbor."
        " Which share of its own points does an inner"
        " slab receive?",
        f"{100 * 2 * EDGE**2 / (EDGE**3 / SLABS):.1f} %",
        {
            f"{100 * EDGE**2 / (EDGE**3 / SLABS):.1f} %": "A slab has one surface.",
            f"{100 * 2 / EDGE:.1f} %": "A halo is a share of the cube.",
            f"{100 * 2 * SLABS**2 / EDGE:.1f} %": "Every slab sends to every other.",
        },
        "Two planes over the thickness of a slab.",
    ),
]
