"""Problems of module 02, data parallelism."""

from math import pi, sin
from statistics import NormalDist

import numpy as np

from lib_dlhpc.explore.data_parallel.bowl import most_stale_rate
from lib_dlhpc.explore.data_parallel.buckets import bucket_count, step_of
from lib_dlhpc.explore.data_parallel.sites import SITES, apart, waits
from lib_dlhpc.explore.data_parallel.waiting import expected_wait
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.overlap import exposed_time
from lib_dlhpc.prediction.validate import results
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.problems import FADED, PAGE, WORKED, Cases, Problem, Step, Trap

draw: Cases = globals().get("draw", PAGE)

GPUS, RANKS = draw.any([256, 128, 512]), draw.any([128, 64, 192, 512])
step = predict(step_of(gpus=GPUS))
terms = {name: float(seconds) for name, seconds in step.terms.items()}
compute = terms["forward"] + terms["backward"] + terms["update"]
exposed = terms["exposed communication"]
ring = predict(step_of(gpus=RANKS, allreduce="ring", bucket=25e6))
count, alpha = bucket_count(ring.experiment), float(ring.experiment.machine.inter_node.latency)
WORKERS = draw.any([4, 3, 5, 6])
rounds = 2 * (RANKS - 1)
ALONE, LINK = draw.any([50, 20, 200]), draw.any(["10 Gb/s", "1 Gb/s"])
far = apart(ALONE, LINK)
exchange = ALONE * float(far.exposed["data"])
work = float(far.step_time) - exchange / ALONE
VARIES, MANY = draw.any([3, 2, 5]), draw.any([512, 64, 1024])
above = NormalDist().inv_cdf((MANY - 3 / 8) / (MANY + 1 / 4))
COMPUTES, LEFT = draw.any([200, 150, 240]), draw.any([12, 20, 8])  # ms
EPOCH = float(results()["goyal17-r50-epoch352"]["value"])  # s
LONGER = 100 * float(results()["goyal17-r50-iterinc"]["value"])
IMAGES, OF_STEP = 1_281_167, 32 * 352
iteration = EPOCH * OF_STEP / IMAGES
BUCKETS, BACKWARD = draw.any([6, 8, 5]), draw.any([240, 180, 300])  # ms
SENT = draw.any([30, 20, 50])
BEYOND = NormalDist().inv_cdf((4 * MANY - 3 / 8) / (4 * MANY + 1 / 4))
slowest = COMPUTES * (1 + VARIES / 100 * above)
more = COMPUTES * (1 + VARIES / 100 * BEYOND)

PROBLEMS = [
    Problem(
        "Efficiency",
        f"In a step on {GPUS} GPUs, forward takes {show(terms['forward'], 's')}, backward"
        f" {show(terms['backward'], 's')}, and the update {show(terms['update'], 's')}; {show(exposed, 's')} of the"
        " allreduce is exposed. All GPUs are equally fast, so none waits for another. What is the efficiency?",
        100 * float(step.compute) / float(step.step_time),
        Step("Computation", compute, "s"),
        Step("The step: computation plus exposed communication", compute + exposed, "s"),
        Step("Computation over the step", 100 * compute / (compute + exposed), "%"),
    ),
    Problem(
        "Latency of buckets",
        f"{RANKS} ranks exchange {count} buckets with a ring; the latency is {show(alpha, 's')}. How much of a"
        " step is latency?",
        float(ring.communication.latency),
        Step("Rounds of a ring: 2 (p - 1)", rounds),
        Step("Latency of one bucket", rounds * alpha, "s"),
        Step("Latency of all buckets", count * rounds * alpha, "s"),
    ),
    Problem(
        "Workers far apart",
        f"Workers at {SITES} sites exchange the change of their weights every {ALONE} steps, for an outer"
        f" optimizer (DiLoCo). Over {LINK} an exchange takes"
        f" {show(exchange, 's', 4)}, fully exposed; the rest of a step takes {show(work, 's', 4)}. What share of the"
        " time do exchanges take?",
        100 * waits(far),
        Step("Exchange for each step", exchange / ALONE, "s"),
        Step(
            "Over a step with its part of the exchange",
            100 * exchange / (exchange + ALONE * work),
            "%",
        ),
    ),
    Problem(
        "Stale gradients",
        f"{WORKERS} asynchronous workers minimize a loss of curvature 1. If gradients are τ updates old, the rate"
        " of each worker must stay below"
        " 2 sin(π / (2 (2 τ + 1))). Up to what total rate of all workers does training converge?",
        most_stale_rate(WORKERS),
        Step("τ: updates of the others", WORKERS - 1),
        Step("Rate of each worker", 2 * sin(pi / (2 * (2 * (WORKERS - 1) + 1)))),
        Step("Total rate of all workers", WORKERS * 2 * sin(pi / (2 * (2 * (WORKERS - 1) + 1)))),
    ),
    Problem(
        "The slowest of all",
        f"{MANY:,} GPUs compute for {COMPUTES} ms on average, with a standard deviation of {VARIES}%; the slowest of"
        f" them is {above:.3f} standard deviations above the mean (Blom). {LEFT} ms of the allreduce is exposed. What"
        " is the efficiency?",
        100 * COMPUTES / (COMPUTES * (1 + float(expected_wait(MANY, VARIES / 100)) / 100) + LEFT),
        Step("Computation of the slowest", slowest / 1e3, "s"),
        Step("The step: with exposed communication", (slowest + LEFT) / 1e3, "s"),
        Step("Mean computation over the step", 100 * COMPUTES / (slowest + LEFT), "%"),
        kind=WORKED,
    ),
    Problem(
        "Four times as many",
        f"Of {4 * MANY:,} such GPUs the slowest is {BEYOND:.3f} standard deviations above the mean; as much of the"
        " allreduce is exposed. What is the efficiency now?",
        100
        * COMPUTES
        / (COMPUTES * (1 + float(expected_wait(4 * MANY, VARIES / 100)) / 100) + LEFT),
        Step("Computation of the slowest", more / 1e3, "s"),
        Step("The step: with exposed communication", (more + LEFT) / 1e3, "s"),
        Step("Mean computation over the step", 100 * COMPUTES / (more + LEFT), "%"),
        kind=FADED,
    ),
    Problem(
        "What jitter costs",
        f"How much longer does a step take with these {4 * MANY:,} GPUs than with as many that do not vary?",
        COMPUTES * float(expected_wait(4 * MANY, VARIES / 100)) / 1e5,
        Step("Standard deviation", COMPUTES * VARIES / 1e5, "s"),
        Step("How far the slowest is behind the mean", COMPUTES * VARIES / 100 * BEYOND / 1e3, "s"),
        traps=[
            Trap(
                COMPUTES * VARIES / 1e5,
                "That is one standard deviation. The slowest of many is several behind the mean.",
            )
        ],
    ),
    Problem(
        "Read a published table",
        f"Goyal et al. 2017 report that 352 GPUs with {OF_STEP:,} images per step complete a pass over {IMAGES:,}"
        f" images in {EPOCH:.0f} s, and that an iteration takes {LONGER:.0f}% longer than on 8 GPUs with 32 images"
        " each. How many images per second does that give for the 8 GPUs together?",
        8 * 32 / (iteration / (1 + LONGER / 100)),
        Step("An iteration of 352 GPUs", iteration, "s"),
        Step("Of 8", iteration / (1 + LONGER / 100), "s"),
        Step("Images over that", 256 * (1 + LONGER / 100) / iteration, "samples/s"),
        traps=[
            Trap(
                256 / iteration,
                "That takes as long an iteration as on 352 GPUs; on 8 it is shorter.",
            ),
            Trap(
                OF_STEP * (1 + LONGER / 100) / iteration,
                "Those are images of 352 GPUs: 8 of them have 256 per step.",
            ),
        ],
    ),
    Problem(
        "Find the mistake: all of it hidden",
        f"Backward takes {BACKWARD} ms and fills {BUCKETS} equal buckets at a steady rate; the allreduce of each takes"
        f" {SENT} ms, one after another. A plan exposes only what of {BUCKETS * SENT} ms of allreduces exceeds the"
        f" {BACKWARD} ms of backward. How much is exposed?",
        float(
            exposed_time(
                np.arange(1, BUCKETS + 1) * BACKWARD / BUCKETS / 1e3,
                np.full(BUCKETS, SENT / 1e3),
                BACKWARD / 1e3,
            )
        ),
        Step("A bucket is full every", BACKWARD / BUCKETS / 1e3, "s"),
        Step(
            "If its allreduce is longer, how far the others have fallen behind at the end of backward",
            (BUCKETS - 1) * max(SENT - BACKWARD / BUCKETS, 0.0) / 1e3,
            "s",
        ),
        Step(
            "With the last allreduce",
            (SENT + (BUCKETS - 1) * max(SENT - BACKWARD / BUCKETS, 0.0)) / 1e3,
            "s",
        ),
        traps=[
            Trap(BUCKETS * SENT / 1e3, "All but the last bucket can leave while backward goes on.")
        ],
    ),
]
