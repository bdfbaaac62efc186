"""Exam questions of module 02, data parallelism."""

from math import pi, sin, sqrt
from statistics import NormalDist

import numpy as np

from lib_dlhpc.explore.allreduce.sizes import Flat
from lib_dlhpc.explore.data_parallel import race, scaling, waiting
from lib_dlhpc.explore.data_parallel.bowl import most_stale_rate
from lib_dlhpc.explore.data_parallel.buckets import bucket_count, step_of
from lib_dlhpc.explore.data_parallel.race import Race
from lib_dlhpc.explore.data_parallel.waiting import Ranks
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.communication.collectives import ALGORITHMS
from lib_dlhpc.prediction.communication.overlap import exposed_time
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.problems import Step
from lib_dlhpc.teaching.questions import Draw, Open, Question

PUBLISHED = 256  # GPUs of Goyal et al. 2017
runs = race.courses(Race())


def twice_the_gpus(draw: Draw) -> Question:
    """The share of a step that more GPUs shorten."""
    gpus, images = draw.between(128, 768, 32), draw.between(8, 64, 2)
    now = predict(step_of(gpus=gpus, images=images, overlap=False))
    then = predict(step_of(gpus=2 * gpus, images=images // 2, overlap=False))
    ring = float(now.communication.total)
    longer = float(then.communication.total)
    left = float(then.compute) + longer
    return Question(
        "twice the gpus",
        f"A step has {gpus * images:,} images, {images} on each of {gpus} GPUs, and allreduces gradients after"
        f" backward. A GPU computes for {show(float(now.compute), 's')}, and the allreduce takes {show(ring, 's')}; on"
        f" twice the GPUs {show(longer, 's')}. For half of the images, a GPU computes for"
        f" {show(float(then.compute), 's')}. On twice the GPUs, with half of the images on"
        " each, how long is a step relative to before?",
        f"{100 * float(then.step_time / now.step_time):.1f}%",
        {
            f"{100 / 2:.1f}%": "Twice the GPUs, half the time.",
            f"{100 * (left + longer) / float(now.step_time):.1f}%": "Twice the GPUs send twice as much each.",
            f"{100 * (1 + 1 / 2) / 2:.1f}%": "Half of a step is communication.",
        },
        "Computation nearly halves; the allreduce does not, since each GPU still has a gradient for every weight.",
        [
            Step("Half of the images and the allreduce", left, "s"),
            Step("Over the step", 100 * left / float(now.step_time), "%"),
        ],
    )


def exposed(draw: Draw) -> Question:
    """Buckets that are full at a steady rate, on a network that keeps up with them, or does not."""
    buckets, each = draw.between(4, 9, 1), draw.between(9, 48, 1)
    backward = buckets * draw.between(15, 40, 1)
    ready = backward * np.arange(1, buckets + 1) / buckets
    left = float(exposed_time(ready / 1e3, np.full(buckets, each / 1e3), backward / 1e3))
    whole = buckets * each / 1e3
    return Question(
        "exposed",
        f"Backward takes {backward} ms and fills {buckets} equal buckets of gradients at a steady rate. Once a"
        f" bucket is full, and the one before has been summed, its allreduce takes {each} ms. How much of the"
        " allreduces is exposed?",
        show(left, "s"),
        {
            show(
                backward / buckets / 1e3, "s"
            ): "The time in which the last bucket fills is what is exposed.",
            show(whole, "s"): "Backward and allreduce cannot overlap, since one needs the other.",
            show(whole / 2, "s"): "Half of the gradients are ready too late.",
        },
        "The last bucket is full when backward ends, so nothing is left to overlap with it; on a slow network,"
        " buckets before it are still queued as well.",
        [
            Step("A bucket is full every", backward / buckets / 1e3, "s"),
            Step("The last allreduce ends after", backward / 1e3 + left, "s"),
            Step("Less backward", left, "s"),
        ],
    )


def small_buckets(draw: Draw) -> Question:
    """The latency of many small allreduces."""
    gpus, size = draw.between(64, 768, 32), draw.between(3e6, 15e6, 0.5e6)
    small, large = (predict(step_of(gpus, allreduce="ring", bucket=b)) for b in (size, 25e6))
    few, many = (float(each.communication.latency) for each in (large, small))
    count = bucket_count(small.experiment)
    return Question(
        "small buckets",
        f"A ring on {gpus} GPUs sums gradients. With {bucket_count(large.experiment)} buckets of up to 25 MB, latency"
        f" takes {show(few, 's')} of a step. How much does it take in {count} buckets of {show(size, 'B')} or more?",
        show(many, "s"),
        {
            show(few, "s"): "The same bytes wait for the same latency.",
            show(few * bucket_count(large.experiment) / count, "s"): (
                "Smaller buckets are always better because they start earlier."
            ),
            show((few * many) ** 0.5, "s"): "Latency grows with the root of the number of buckets.",
        },
        "Each bucket pays all rounds of its ring, and each round pays the latency.",
        [
            Step("Buckets over buckets", count / bucket_count(large.experiment)),
            Step(
                "Times the former latency of a step",
                few * count / bucket_count(large.experiment),
                "s",
            ),
        ],
    )


def jitter(draw: Draw) -> Question:
    """The largest of many normal numbers."""
    gpus, percent = draw.between(48, 640, 16), draw.between(2.5, 6.5, 0.5)
    above = NormalDist().inv_cdf((gpus - 0.375) / (gpus + 0.25))
    return Question(
        "jitter",
        f"{gpus} GPUs whose steps vary by {percent}% (one standard deviation) train synchronously. By what percentage"
        " is a step longer than the mean?",
        f"{waiting.expected_wait(gpus, percent / 100):.1f}%",
        {
            f"{percent:.1f}%": "Three percent of jitter costs three percent.",
            f"{percent * gpus**0.5:.1f}%": "The deviations of all GPUs add up.",
            f"{2 * percent:.1f}%": "The slowest is two standard deviations above the mean.",
        },
        "The slowest GPU is more than two standard deviations above the mean, and all others wait for it.",
        [
            Step("The slowest is above the mean by, in σ: Φ⁻¹((p - 0.375) / (p + 0.25))", above),
            Step("Times σ", above * percent, "%"),
        ],
    )


def one_slow_gpu(draw: Draw) -> Question:
    """All others wait for one."""
    gpus, slower = draw.between(6, 18, 1), draw.between(25, 180, 5)
    idle = waiting.waiting_share(Ranks(ranks=gpus, jitter=0.0, slow=1 + slower / 100))
    return Question(
        "one slow gpu",
        f"One of {gpus} GPUs takes {slower}% longer than each of the others; updates are synchronous. For what share"
        " of the time is the average GPU idle?",
        f"{100 * idle:.1f}%",
        {
            f"{100 * slower / 100 / gpus:.1f}%": "The mean decides.",
            f"{100 * (gpus - 1) / gpus * slower / (200 + slower):.1f}%": (
                "The others take over half of its delay."
            ),
            f"{100 * slower / (100 + slower) / gpus:.1f}%": (
                "Only one GPU waits for the slow one."
            ),
        },
        "All others wait for it in every step.",
        [
            Step("Each of the others is idle for s / (1 + s)", 100 * slower / (100 + slower), "%"),
            Step(
                "Times (p - 1) / p, for the mean",
                100 * (gpus - 1) / gpus * slower / (100 + slower),
                "%",
            ),
        ],
    )


def staleness(draw: Draw) -> Question:
    """Updates between reading the weights and changing them."""
    workers, slower = draw.between(8, 40, 1), draw.between(1.5, 4.0, 0.5)
    others = workers - 1
    return Question(
        "staleness",
        f"{workers} asynchronous workers are equally fast, except for one that takes {slower} times as long for a"
        " gradient. About how many updates old is that worker's gradient when it is applied?",
        f"{slower * others:.1f}",
        {
            f"{others:.1f}": "All gradients of a run are equally old.",
            f"{others / slower:.1f}": "A slow worker misses fewer updates.",
            f"{slower * others / 2:.1f}": "Half of the others push before.",
        },
        "While the slow worker computes, each of the others pushes an update for each of its own gradients.",
        [Step("The others", others), Step("Times the gradients of each", slower * others)],
    )


def stale_rate(draw: Draw) -> Question:
    """The largest rate that old gradients tolerate."""
    workers, curvature = draw.between(3, 9, 1), draw.between(0.5, 4.5, 0.1)
    alone, together = most_stale_rate(1) / curvature, most_stale_rate(workers) / curvature
    one = 2 * sin(pi / (4 * workers - 2)) / curvature
    return Question(
        "stale rate",
        f"A single worker converges on a quadratic loss of curvature {curvature} up to a learning rate of {alone:.3f}."
        f" With {workers} equally fast asynchronous workers, gradients are {workers - 1} updates old. Up to which sum"
        " of all workers' learning rates do they converge?",
        f"{together:.3f}",
        {
            f"{workers**0.5 * alone:.3f}": "The noise of the workers averages out, so rates grow with its root.",
            f"{workers * alone:.3f}": "Workers add up, and so do their rates.",
            f"{alone:.3f}": "Age does not matter, since the direction is right on average.",
        },
        "The sum is lower than the rate of a single worker; Levin and May's condition says how much lower.",
        [
            Step(
                "Rate of each, with gradients k updates old: 2 sin(π / (4 k + 2)) over the curvature",
                one,
            ),
            Step("Summed over the workers", workers * one),
        ],
    )


def local_steps(draw: Draw) -> Question:
    """The share that waits between sites, with some local steps."""
    work, exchange = draw.between(150, 400, 10), draw.between(1.8, 3.0, 0.1)
    alone = draw.between(16, 48, 4)
    each = exchange * 1e3 / alone
    every = 100 * exchange * 1e3 / (exchange * 1e3 + work)
    return Question(
        "local steps",
        f"Workers at sites far apart compute a step in {work} ms. An exchange of all weights takes {exchange:.1f} s,"
        f" and nothing overlaps with it. Each worker takes {alone} local steps, and then all exchange once (DiLoCo)."
        " What share of the time is spent on exchanges?",
        f"{100 * each / (work + each):.1f}%",
        {
            f"{every:.1f}%": "Local steps change how well a network learns, not what it waits for.",
            f"{every / alone:.1f}%": "With H local steps, the share of time spent waiting falls to 1/H.",
            f"{100 * each / work:.1f}%": "A share is relative to the work alone.",
        },
        "The cost of an exchange is spread over the local steps before it; the share is wait / (work + wait).",
        [
            Step("The exchange over the local steps", each / 1e3, "s"),
            Step("Over the sum of this and the work of a step", 100 * each / (work + each), "%"),
        ],
    )


def end_of_strong_scaling(draw: Draw) -> Question:
    """Where a longer ring costs what less computation saves."""
    batch, latency = draw.between(2048, 12288, 256), draw.between(4, 12, 1)
    alone = float(predict(step_of()).compute) * batch / 32
    gpus = np.arange(2, batch + 1)
    ring = ALGORITHMS["ring"](25e6, Flat(gpus, latency * 1e-6, 50e9, 1e15).network)
    slows = int(gpus[np.argmin(alone / gpus + 4 * np.asarray(ring.total))])
    fitting = int(scaling.strong(scaling.Scaling(batch=batch)).gpus[0])
    return Question(
        "end of strong scaling",
        f"A step has {batch:,} images on any number of GPUs, each in its own node. One GPU would compute for"
        f" {show(alone, 's')}. A ring sums the gradients in 4 buckets, with a latency of {latency} µs per message;"
        " nothing overlaps, and bandwidth is ample. Beyond about how many GPUs do more GPUs make the run slower?",
        f"{slows:,}",
        {
            f"{batch:,}": "More GPUs never hurt.",
            f"{PUBLISHED}": "The published run ends where scaling ends.",
            f"{fitting:,}": "Any GPU beyond those that memory requires costs more time than it saves.",
        },
        "At that number, another rank lengthens the ring by as much as it shortens the computation.",
        [
            Step("One more rank lengthens the four rings by 8 latencies", 8e-6 * latency, "s"),
            Step("Square root of the computation over that", sqrt(alone / (8e-6 * latency))),
        ],
    )


def efficiency(draw: Draw) -> Question:
    """Computation over the step."""
    compute, exchange = draw.between(150, 300, 10), draw.between(60, 150, 10)
    hidden, wait = draw.between(50, 90, 5), draw.between(11, 40, 1)
    left = exchange * (1 - hidden / 100)

    def share(*added: float) -> str:
        return f"{100 * compute / (compute + sum(added)):.1f}%"

    return Question(
        "efficiency",
        f"A step computes for {compute} ms, its allreduce takes {exchange} ms, of which {hidden}% are hidden, and the"
        f" slowest rank is {wait} ms behind the mean. What is the parallel efficiency?",
        share(left, wait),
        {
            share(exchange, wait): (
                "Communication that overlaps costs as much as communication that does not."
            ),
            share(wait): "Overlap hides all communication.",
            share(left): "Waiting for the slowest is not a loss.",
        },
        "Computation over the sum of computation, waiting and exposed communication.",
        [
            Step("Exposed communication", left, "ms"),
            Step("The step", compute + left + wait, "ms"),
            Step("Computation over the step", 100 * compute / (compute + left + wait), "%"),
        ],
    )


def ranks_on_a_socket(draw: Draw) -> Question:
    """Ranks with cores of their own that share memory bandwidth."""
    ranks, share = draw.between(3, 8, 1), draw.between(40, 75, 5)
    arithmetic, memory = draw.between(20, 60, 2), draw.between(16, 48, 2)
    times = ranks * share / 100
    together = (arithmetic + times * memory) / 1e3
    return Question(
        "ranks on a socket",
        f"A rank on a core computes for {arithmetic} ms in compute-bound and {memory} ms in memory-bound layers, which"
        f" use {share}% of its socket's memory bandwidth. Now {ranks} such ranks share the socket, each with its own"
        " core. How long do they compute?",
        show(together, "s"),
        {
            show((arithmetic + memory) / 1e3, "s"): "A core of its own is all that a rank needs.",
            show(
                (arithmetic + ranks * memory) / 1e3, "s"
            ): "One core uses all of a socket's bandwidth.",
            show(
                times * (arithmetic + memory) / 1e3, "s"
            ): "A shared socket slows down all layers alike.",
        },
        "Each rank has its own core, but all share the memory bandwidth, which only memory-bound layers need.",
        [
            Step("Memory-bound layers: ranks times the share of one", times * memory / 1e3, "s"),
            Step("Plus the compute-bound ones", together, "s"),
        ],
    )


OPEN = Open(
    "A team trains on 64 GPUs with an efficiency of 90%. It moves to 512 GPUs with the same global batch and asks you"
    " for a forecast before it has run anything. Which terms of a step do you estimate, how does each change, and"
    " which number do you ask for first?",
    "Computation per GPU falls to an eighth; the bytes of the gradients stay the same, a ring pays eight times as"
    " many latencies, less of it hides behind the shorter backward, and the slowest of more GPUs is slower. Ask for"
    " the times of backward and of the allreduce on 64 GPUs, which decide how much is still hidden.",
    {
        "names computation, exchange, overlap and the wait for the slowest": 2,
        "says how each changes with eight times the GPUs, and why": 3,
        "asks for a number that decides the forecast": 1,
    },
)

QUESTIONS = [
    twice_the_gpus,
    exposed,
    small_buckets,
    jitter,
    one_slow_gpu,
    Question(
        "asynchronous",
        "With 8 equally fast workers and 2 servers, asynchronous training computes"
        f" {runs['asynchronous'].gradients:.1f} gradients per second, synchronous training"
        f" {runs['synchronous'].gradients:.1f}. What decides which of them reaches a given loss first?",
        "How far the loss falls with each of these gradients",
        {
            "The waits, since asynchronous workers have the fewest": "Asynchronous is faster, so it is better.",
            "The age of the gradients: old ones do not converge": "Stale gradients do not converge.",
            "The count: the same loss takes as many gradients": "More gradients are more learning.",
        },
        "More gradients per second do not mean that the loss falls faster; asynchronous training pays off where"
        " waiting is expensive.",
    ),
    staleness,
    stale_rate,
    local_steps,
    end_of_strong_scaling,
    efficiency,
    ranks_on_a_socket,
]
