"""Exam questions of module 05, hybrid and spatial parallelism."""

from lib_dlhpc.explore.hybrid_parallel.charts import parts_of
from lib_dlhpc.explore.hybrid_parallel.cosmos import Cubes, finer, step_of
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.problems import Step
from lib_dlhpc.teaching.questions import Draw, Open, Question


def cut_finer(draw: Draw) -> Question:
    """What a finer cut shortens, and what it leaves."""
    edge, slabs = draw.any([256, 512]), draw.any([2, 4, 8])
    gpus = draw.between(128, 2048, 32)
    cubes = Cubes(edge=edge, slabs=slabs, gpus=gpus)
    now, then, more = map(step_of, (cubes, finer(cubes), cubes._replace(gpus=2 * gpus)))
    parts, own = parts_of(now), parts_of(then)
    left = parts["halos"] + parts["gradients"] + own["compute"] + own["waiting"]
    return Question(
        "finer",
        f"A step trains on {gpus // slabs} cubes of {edge}³ on {gpus} GPUs, each cube cut into {slabs} slabs; more"
        f" cubes per step save no steps. A step takes {show(float(now.step_time), 's')}, of which halos and gradients"
        f" expose {show(parts['halos'] + parts['gradients'], 's')}. You get as many GPUs again and cut each cube twice"
        f" as fine: a GPU then computes, and waits for the slowest, for {show(own['compute'] + own['waiting'], 's')}."
        " What is the new step time over the old one, if halos and gradients take as long?",
        f"{left / float(now.step_time):.3f}",
        {
            f"{float(more.step_time / now.step_time):.3f}": "Model parallelism is never for speed.",
            f"{3 / 4:.3f}": "Half of a step is messages, which take as long as before.",
            f"{2 * slabs / slabs:.3f}": "Twice the messages, twice the time.",
        },
        "Beyond the critical batch, a finer cut shortens the run and more replicas do not; here, halos are cheap.",
        [
            Step("Halos and gradients as before, plus computing and waiting", left, "s"),
            Step("Over the step", left / float(now.step_time)),
        ],
    )


def more_replicas(draw: Draw) -> Question:
    """The memory of a replica."""
    edge, slabs = draw.any([256, 512]), draw.any([2, 4, 8])
    gpus, samples = draw.between(128, 1024, 64), draw.any([1, 2, 4, 8])
    cubes = Cubes(edge=edge, slabs=slabs, gpus=gpus, samples=samples)
    now, then = (float(step_of(cubes._replace(gpus=g)).memory_total) for g in (gpus, 2 * gpus))
    return Question(
        "more replicas",
        f"A network trains on cubes of {edge}³ with {slabs} GPUs per replica and {gpus // slabs} replicas with a batch"
        f" of {samples} each: a GPU needs {show(now, 'B')}. You take twice the GPUs, in twice as many replicas with"
        " the same batch each. How much memory does each GPU need?",
        show(then, "B"),
        {
            show(now / 2, "B"): "With more replicas, each GPU stores less.",
            show(2 * now, "B"): "Each replica adds its gradients.",
            show(now * 3 / 4, "B"): "Half of the memory is weights, which replicas share.",
        },
        "A replica is a complete copy: only a split, or ZeRO for the state, makes it smaller.",
        [Step("A replica is complete and has the same batch: as before", now, "B")],
    )


def received(edge: int, slabs: int, channels: int, window: int) -> int:
    """Return the bytes in 16 bits that an inner slab lacks for one convolution."""
    thick, around = edge // slabs, window // 2
    own = range(thick, 2 * thick)
    lacking = set(range(own.start - around, own.stop + around)) - set(own)
    return len(lacking) * edge**2 * channels * 2


def halo(draw: Draw) -> Question:
    """The surface of a slab."""
    edge, channels, window = draw.between(192, 576, 32), draw.between(8, 64, 4), draw.any([3, 5, 7])
    slabs = draw.any([4, 8])
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
            ): "Twice the slabs have twice the surfaces, and each rank receives all of them.",
            show(few / 4, "B"): "A surface shrinks with the square of the thickness.",
        },
        "The surface of a slab stays the same while its thickness halves, which ends strong scaling.",
        [
            Step("Planes that a slab lacks, on both sides together", window - 1),
            Step("Bytes of a plane", edge**2 * channels * 2, "B"),
            Step(
                "One times the other, for any thickness", (window - 1) * edge**2 * channels * 2, "B"
            ),
        ],
    )


def one_domain(draw: Draw) -> Question:
    """Experts across nodes, and in one NVLink domain."""
    nic, nvlink = draw.any([40, 42, 44, 45, 46, 48]), draw.between(600, 780, 10)
    nodes, tokens = draw.any([3, 4]), draw.between(2048, 8192, 512)
    copy = tokens * 7168 * 2
    across, inside = nodes * copy / (nic * 1e9), 8 * copy / (nvlink * 1e9)
    return Question(
        "one domain",
        f"{tokens:,} tokens of a rank, each with 7,168 numbers of 2 B, are sent to the experts of a layer, each token"
        f" to 8 of 64 GPUs. On nodes of 8, a token's experts are in {nodes} other nodes; one copy goes to each node"
        f" over the rank's NIC ({nic} GB/s), and forwarding it over NVLink takes no time. In a rack with one NVLink"
        f" domain, a copy goes to each of the 8 GPUs over NVLink ({nvlink} GB/s). How many times as long does sending"
        " the tokens take on nodes?",
        f"{across / inside:.2f}",
        {
            f"{nvlink / nic:.2f}": "An exchange speeds up by the ratio of the links.",
            f"{nodes * nvlink / nic:.2f}": "In a rack, one copy serves all GPUs.",
            f"{8 / nodes * nvlink / nic:.2f}": "Nodes send a copy to each GPU, a rack sends one per node.",
        },
        "NVLink is faster, but in a rack each GPU gets its own copy, while the GPUs of a node share one.",
        [
            Step("On nodes, over the NIC", across, "s"),
            Step("In a rack, over NVLink", inside, "s"),
            Step("One over the other", across / inside),
        ],
    )


def fewest_messages(draw: Draw) -> Question:
    """Memory rules out the left of the map."""
    billions, stages = draw.between(120, 640, 10), draw.any([4, 6, 8, 12, 16])
    state = 16 * billions * 1e9 / stages
    return Question(
        "fewest messages",
        f"A model has {billions} billion parameters, with 16 B of weights, gradients and optimizer state for each, on"
        f" GPUs of 80 GB. Tensor 1 × pipeline {stages}, with nothing else sharded, has few messages. What do you make"
        " of this layout?",
        f"{show(state, 'B')} of state are needed on each GPU, so it does not fit",
        {
            "It is the best": "The best combination is the one with the fewest messages.",
            "Its bubble is the longest of all": "Less tensor parallelism means more bubble.",
            "Its gradients are exchanged between nodes": "An exchange between nodes is what decides.",
        },
        "Memory rules out the left of the map before messages are counted.",
        [Step("State in all", 16 * billions * 1e9, "B"), Step("Over the stages", state, "B")],
    )


def pipelined(sequences: int, stages: int, microbatch: int, faster: float) -> float:
    """Return how many times as long a step is as with microbatches of one sequence.

    faster: how many times as fast a stage computes.
    """
    one, larger = sequences + stages - 1, sequences / microbatch + stages - 1
    return larger * microbatch / faster / one


def larger_microbatch(draw: Draw) -> Question:
    """A bubble is p - 1 microbatches, whatever they hold."""
    sequences, stages = draw.between(24, 96, 8), draw.between(6, 24, 1)
    microbatch, gain = draw.any([4, 8]), draw.between(3, 12, 1)
    longer = pipelined(sequences, stages, microbatch, 1 + gain / 100)
    passes = sequences / microbatch + stages - 1
    return Question(
        "larger microbatch",
        f"A pipeline has {stages} equal stages, 1F1B, a replica's batch of {sequences} sequences and free messages."
        f" Microbatches of {microbatch} sequences instead of 1 make matmuls larger, so that they run at a rate that is"
        f" {gain}% higher. How many times as long is a step?",
        f"{longer:.2f}",
        {
            f"{100 / (100 + gain):.2f}": "A larger microbatch computes better, so it is better.",
            f"{passes / (sequences + stages - 1):.2f}": (
                "A pass takes as long for any size of microbatch."
            ),
            f"{microbatch:.2f}": "A larger microbatch makes a step longer in proportion.",
        },
        "The bubble is p - 1 passes of a microbatch, and each pass is now several times as long.",
        [
            Step("Passes until the last stage is done: m / b + p - 1", passes),
            Step("Duration of each, over that of one sequence", microbatch / (1 + gain / 100)),
            Step("Product of both, over the former m + p - 1 passes", longer),
        ],
    )


def share_of_a_halo(draw: Draw) -> Question:
    """Planes over the thickness of a slab."""
    thick, slabs = draw.between(6, 36, 1), draw.between(4, 16, 1)
    edge = thick * slabs
    right = received(edge, slabs, 1, 3) / (2 * edge**3 / slabs)
    return Question(
        "share of a halo",
        f"A cube of {edge}³ points is cut into {slabs} slabs; a convolution needs one plane from each neighbor. As a"
        " share of its own points, how much does an inner slab receive?",
        f"{100 * right:.2f}%",
        {
            f"{100 * right / 2:.2f}%": "A slab has one surface.",
            f"{100 * 2 / edge:.2f}%": "A halo is a share of the cube.",
            f"{200 / (thick + 2):.2f}%": "The share is relative to all that a slab holds, including its halo.",
        },
        "Two planes over the thickness of a slab.",
        [
            Step("Thickness of a slab, in planes", thick),
            Step("Two planes over it", 200 / thick, "%"),
        ],
    )


OPEN = Open(
    "You have 256 GPUs in nodes of 8, a network that needs the memory of three GPUs, and a batch that may grow"
    " fourfold before it reaches the critical batch. In which order do you use data, tensor and pipeline parallelism,"
    " which group goes inside a node, and what would you check before you start?",
    "First what memory demands: a tensor split of 4 or 8 within a node, since it exchanges in every layer; then"
    " replicas, as long as a larger batch saves steps; a pipeline only if the network outgrows a node. Check memory"
    " at the peak, the batch per replica, and that the tensor group does not leave the node.",
    {
        "begins with memory, and finds the least split that fits": 2,
        "puts the group that exchanges most often on the fastest links, with the reason": 2,
        "says how far replicas go, by the critical batch": 1,
        "names a check by a number": 1,
    },
)

QUESTIONS = [
    cut_finer,
    Question(
        "first split",
        "A network fits on one GPU with room to spare. You have 64 GPUs, all connected by NVLink, and twice the batch"
        " still needs half the steps. Which kind of parallelism do you use first?",
        "Data",
        {
            "Tensor": "With NVLink over 64 GPUs, tensor parallelism may grow to 64.",
            "Pipeline": "Sixty-four stages are 64 times as fast.",
            "Spatial": "Model parallelism is for speed.",
        },
        "As long as a larger batch saves steps, it costs only one allreduce per step, mostly overlapped.",
    ),
    more_replicas,
    halo,
    Question(
        "across nodes last",
        "A layout on nodes of 8 GPUs has tensor 8, pipeline 4, data 8. Which group should be the last to span nodes?",
        "Tensor",
        {
            "Data": "Gradients have the most bytes, so data-parallel ranks must be the closest.",
            "Pipeline": "Stages wait for each other, so they must be close together.",
            "It makes no difference": "Bytes are bytes, no matter who sends them and when.",
        },
        "It allreduces in every layer, forward and backward, with no overlap; gradients are sent once per step.",
    ),
    one_domain,
    fewest_messages,
    larger_microbatch,
    Question(
        "agreement",
        "Two replicas of a split network hold bitwise equal gradients after a step. What does that show?",
        "That the exchange among replicas works, no more",
        {
            "That the gradients are right": "If the replicas agree, the gradients are right.",
            "That halos between slabs are exchanged correctly": "A missing halo makes replicas differ.",
            "That both ranks had the same samples": "Equal gradients come from equal samples.",
        },
        "A halo that is missing in both replicas makes no difference between them: compare the split with one rank.",
    ),
    Question(
        "eight ranks, two cores",
        "Eight ranks train with 2 × 2 × 2 on two cores. Which part of the result depends on the lack of cores?",
        "The time; losses equal those of one rank, up to rounding",
        {
            "The losses and the time": "Oversubscribed ranks give wrong results.",
            "Neither: ranks take turns on a core, which costs nothing": "Waiting for a core costs nothing.",
            "The losses, since messages arrive in another order": "The order of arrival changes a sum of two parts.",
        },
        "A correct program is correct on any number of cores; only its waits differ from those of a cluster.",
    ),
    share_of_a_halo,
]
