"""Exam questions of module 02, data parallelism."""

import numpy as np

from lib_dlhpc.explore.allreduce.sizes import Flat
from lib_dlhpc.explore.data_parallel import race, scaling, updates, waiting
from lib_dlhpc.explore.data_parallel.bowl import most_stale_rate
from lib_dlhpc.explore.data_parallel.buckets import bucket_count, step_of
from lib_dlhpc.explore.data_parallel.race import Race
from lib_dlhpc.explore.data_parallel.waiting import Ranks
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.collectives import ALGORITHMS
from lib_dlhpc.prediction.overlap import exposed_time
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.questions import Draw, Question

PUBLISHED = 256  # GPUs of Goyal et al. 2017
runs = race.courses(Race())


def twice_the_gpus(draw: Draw) -> Question:
    """The share of a step that more GPUs shorten."""
    gpus, images = draw.of([(64, 32), (128, 16), (256, 16), (512, 64), (128, 64)])
    now = predict(step_of(gpus=gpus, images=images, overlap=False))
    then = predict(step_of(gpus=2 * gpus, images=images // 2, overlap=False))
    return Question(
        "twice the gpus",
        f"{gpus * images:,} images per step, {images} on each of {gpus} GPUs, gradients allreduced after backward: a"
        " GPU"
        f" computes for {show(float(now.compute), 's')}, and the allreduce takes"
        f" {show(float(now.communication.total), 's')}. For half of the images a GPU computes for"
        f" {show(float(then.compute), 's')}. On twice the GPUs with half of the images each, what share of the time"
        " does a step take?",
        f"{100 * float(then.step_time / now.step_time):.1f} %",
        {
            f"{100 / 2:.0f} %": "Twice the GPUs, half the time.",
            f"{100 * 1:.0f} %": "A step takes as long as its allreduce.",
            f"{100 * (1 + 1 / 2) / 2:.0f} %": "Half of a step is communication.",
        },
        "Computation nearly halves; the allreduce does not, since each GPU still has all gradients.",
    )


def exposed(draw: Draw) -> Question:
    """Buckets that are full at a steady rate, on a network that keeps up with them, or does not."""
    backward, buckets, each = draw.of(
        [(140, 7, 13), (150, 5, 38), (180, 6, 22), (160, 8, 23), (210, 6, 44), (130, 5, 17)]
    )
    ready = backward * np.arange(1, buckets + 1) / buckets
    left = float(exposed_time(ready / 1e3, np.full(buckets, each / 1e3), backward / 1e3))
    whole = buckets * each / 1e3
    return Question(
        "exposed",
        f"Backward takes {backward} ms and fills {buckets} equal buckets of gradients at a steady rate. Each leaves as"
        f" soon as it is full, and its allreduce takes {each} ms. How much of the allreduces is exposed?",
        show(left, "s"),
        {
            show(0.0, "s"): "Overlap hides all communication.",
            show(whole, "s"): "Backward and allreduce cannot overlap, since one needs the other.",
            show(whole / 2, "s"): "Half of the gradients are ready too late.",
        },
        "The last bucket is full when backward ends, with nothing left to overlap with it; on a slow network the"
        " buckets before it are waiting as well.",
    )


def small_buckets(draw: Draw) -> Question:
    """The latency of many small allreduces."""
    gpus, size = draw.of([64, 128, 512]), draw.of([100e3, 1e6, 4e6, 10e3])
    small, large = (predict(step_of(gpus, allreduce="ring", bucket=b)) for b in (size, 25e6))
    few, many = (float(each.communication.latency) for each in (large, small))
    count = bucket_count(small.experiment)
    return Question(
        "small buckets",
        f"A ring on {gpus} GPUs. With {bucket_count(large.experiment)} buckets of up to 25 MB, latency takes"
        f" {show(few, 's')} of a step. How much does it take in {count} buckets of"
        f" {show(size, 'B')} or more?",
        show(many, "s"),
        {
            show(few, "s"): "The same bytes wait for the same latency.",
            show(few / count, "s"): "Smaller buckets are always better because they start earlier.",
            show(few / 2, "s"): "Overlap hides half of the latency.",
        },
        "Each bucket pays all rounds of its ring, and each round pays the latency.",
    )


def jitter(draw: Draw) -> Question:
    """The largest of many normal numbers."""
    gpus, percent = draw.of([64, 96, 512]), draw.of([4, 5, 6, 8])
    return Question(
        "jitter",
        f"{gpus} GPUs whose steps vary by {percent} % (one standard deviation). By how many percent is a synchronous"
        " step longer than the mean?",
        f"{waiting.expected_wait(gpus, percent / 100):.1f} %",
        {
            f"{percent:.1f} %": "Three percent of jitter costs three percent.",
            f"{percent * gpus**0.5:.1f} %": "Deviations of all GPUs add up.",
            f"{percent / gpus**0.5:.2f} %": "The mean of many GPUs hardly varies.",
        },
        "The slowest of them lies more than two standard deviations above the mean, and all wait for it.",
    )


def one_slow_gpu(draw: Draw) -> Question:
    """All others wait for one."""
    gpus, slower = draw.of([16, 24, 32]), draw.of([50, 25, 60, 150])
    idle = waiting.waiting_share(Ranks(ranks=gpus, jitter=0.0, slow=1 + slower / 100))
    return Question(
        "one slow gpu",
        f"One of {gpus} GPUs takes {slower} % longer than each of the others; all update synchronously. For what share"
        " of the time is the average GPU idle?",
        f"{100 * idle:.1f} %",
        {
            f"{100 * slower / 100 / gpus:.1f} %": "The mean decides.",
            f"{100 * idle / 2:.1f} %": "The others take over half of its work.",
            f"{100 * idle / gpus:.1f} %": "A wait of one GPU is divided among all.",
        },
        "All others wait for it in every step.",
    )


def staleness(draw: Draw) -> Question:
    """Updates between reading the weights and changing them."""
    workers = draw.of([12, 14, 18, 24])
    old = float(updates.served(workers).staleness.mean())
    return Question(
        "staleness",
        f"{workers} equally fast asynchronous workers. How many updates old is a gradient on average when it is"
        " applied?",
        f"{old:.1f}",
        {
            f"{old * 0:.1f}": "A gradient is applied to the weights that it was computed with.",
            f"{old / (workers - 1):.1f}": "Only the worker before matters.",
            f"{old / 2:.1f}": "Half of the others push before.",
        },
        "While one computes, each of the others pushes an update.",
    )


def stale_rate(draw: Draw) -> Question:
    """The largest rate that old gradients tolerate."""
    workers = draw.of([3, 4, 5, 6])
    names = {3: "Three", 4: "Four", 5: "Five", 6: "Six"}
    return Question(
        "stale rate",
        "Alone, a worker converges on a quadratic loss of curvature 1 up to a learning rate of"
        f" {most_stale_rate(1):.0f}. {names[workers]} workers have gradients that are {workers - 1} updates old. Up to"
        " which rate of all together do they converge?",
        f"{most_stale_rate(workers):.3f}",
        {
            f"{0:.3f}": "Stale gradients do not converge.",
            f"{workers * most_stale_rate(1):.3f}": "Workers add up, and so do their rates.",
            f"{most_stale_rate(1):.3f}": "Age does not matter, the direction is right on average.",
        },
        "They converge at a lower rate; Levin and May's condition says how much lower.",
    )


def end_of_strong_scaling(draw: Draw) -> Question:
    """Where a longer ring costs what less computation saves."""
    batch, latency = draw.of([4096, 8192, 16384]), draw.of([4, 5, 8, 12])
    alone = float(predict(step_of()).compute) * batch / 32
    gpus = np.arange(2, batch + 1)
    ring = ALGORITHMS["ring"](25e6, Flat(gpus, latency * 1e-6, 50e9, 1e15).network)
    slows = int(gpus[np.argmin(alone / gpus + 4 * np.asarray(ring.total))])
    fitting = int(scaling.strong(scaling.Scaling(batch=batch)).gpus[0])
    return Question(
        "end of strong scaling",
        f"{batch:,} images per step on any number of GPUs, each a node of its own. One GPU would compute for"
        f" {show(alone, 's')}. A ring sums the gradients in 4 buckets, with a latency of {latency} µs per"
        " message; nothing overlaps, and bandwidth is ample. From about how many GPUs on do more GPUs make"
        " the run slower?",
        f"{slows:,}",
        {
            f"{batch:,}": "More GPUs never hurt.",
            f"{PUBLISHED}": "The published run ends where scaling ends.",
            f"{fitting:,}": "Any GPU beyond those that memory requires costs more than it gains.",
        },
        "There another rank lengthens the ring by as much as it shortens the computation.",
    )


def efficiency(draw: Draw) -> Question:
    """Computation over the step."""
    compute, exchange = draw.of([(190, 70), (260, 90), (210, 110)])
    hidden, wait = draw.of([(80, 14), (60, 22), (70, 13), (90, 17)])
    left = exchange * (1 - hidden / 100)

    def share(*added: float) -> str:
        return f"{100 * compute / (compute + sum(added)):.1f} %"

    return Question(
        "efficiency",
        f"A step computes for {compute} ms, its allreduce takes {exchange} ms, of which {hidden} % are hidden, and the"
        f" slowest rank is {wait} ms behind the mean. What is the efficiency?",
        share(left, wait),
        {
            share(exchange, wait): (
                "Communication that overlaps costs as much as communication that does not."
            ),
            share(wait): "Overlap hides all communication.",
            share(exchange): "Waiting for the slowest is not a loss.",
        },
        "Computation over computation, waiting and exposed communication.",
    )


QUESTIONS = [
    twice_the_gpus,
    exposed,
    small_buckets,
    jitter,
    one_slow_gpu,
    Question(
        "asynchronous",
        "8 equally fast workers, 2 servers. Asynchronous training computes"
        f" {runs['asynchronous'].gradients:.1f} gradients per second, synchronous"
        f" {runs['synchronous'].gradients:.1f}. Which one do you take?",
        "That depends on the slow workers and on the learning rate that stale gradients tolerate",
        {
            "Asynchronous, it never waits": "Asynchronous is faster, so it is better.",
            "Synchronous, since stale gradients never converge": "Stale gradients do not converge.",
            "Whichever computes more gradients per second": "More gradients are more learning.",
        },
        "Gradients per second and loss per second differ: asynchronous pays where waiting is expensive.",
    ),
    staleness,
    stale_rate,
    end_of_strong_scaling,
    efficiency,
]
