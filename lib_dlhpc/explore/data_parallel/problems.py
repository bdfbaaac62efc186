"""Problems of module 02, data parallelism."""

from math import pi, sin
from statistics import NormalDist

import numpy as np

from lib_dlhpc.explore.data_parallel.bowl import most_stale_rate
from lib_dlhpc.explore.data_parallel.buckets import bucket_count, step_of
from lib_dlhpc.explore.data_parallel.sites import SITES, apart, waits
from lib_dlhpc.explore.data_parallel.waiting import expected_wait
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.communication.overlap import exposed_time
from lib_dlhpc.prediction.validation.validate import results
from lib_dlhpc.teaching.problem_texts import Numbers, written
from lib_dlhpc.teaching.problems import PAGE, Cases

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

PROBLEMS = written(
    globals(),
    efficiency=Numbers(
        100 * float(step.compute) / float(step.step_time),
        step=compute + exposed,
        efficiency=100 * compute / (compute + exposed),
    ),
    latency=Numbers(
        float(ring.communication.latency), one=rounds * alpha, all_of_them=count * rounds * alpha
    ),
    far_apart=Numbers(
        100 * waits(far),
        sites=SITES,
        per_step=exchange / ALONE,
        share=100 * exchange / (exchange + ALONE * work),
    ),
    stale=Numbers(
        most_stale_rate(WORKERS),
        others=WORKERS - 1,
        each=2 * sin(pi / (2 * (2 * (WORKERS - 1) + 1))),
        total=WORKERS * 2 * sin(pi / (2 * (2 * (WORKERS - 1) + 1))),
    ),
    slowest=Numbers(
        100 * COMPUTES / (COMPUTES * (1 + float(expected_wait(MANY, VARIES / 100)) / 100) + LEFT),
        computes=slowest / 1e3,
        step=(slowest + LEFT) / 1e3,
        efficiency=100 * COMPUTES / (slowest + LEFT),
    ),
    four_times=Numbers(
        100
        * COMPUTES
        / (COMPUTES * (1 + float(expected_wait(4 * MANY, VARIES / 100)) / 100) + LEFT),
        gpus=4 * MANY,
        computes=more / 1e3,
        step=(more + LEFT) / 1e3,
        efficiency=100 * COMPUTES / (more + LEFT),
    ),
    jitter=Numbers(
        COMPUTES * float(expected_wait(4 * MANY, VARIES / 100)) / 1e5,
        gpus=4 * MANY,
        deviation=COMPUTES * VARIES / 1e5,
        behind=COMPUTES * VARIES / 100 * BEYOND / 1e3,
    ),
    published=Numbers(
        8 * 32 / (iteration / (1 + LONGER / 100)),
        of_8=iteration / (1 + LONGER / 100),
        images=256 * (1 + LONGER / 100) / iteration,
        as_long=256 / iteration,
        of_352=OF_STEP * (1 + LONGER / 100) / iteration,
    ),
    all_hidden=Numbers(
        float(
            exposed_time(
                np.arange(1, BUCKETS + 1) * BACKWARD / BUCKETS / 1e3,
                np.full(BUCKETS, SENT / 1e3),
                BACKWARD / 1e3,
            )
        ),
        sent=BUCKETS * SENT,
        every=BACKWARD / BUCKETS / 1e3,
        behind=(BUCKETS - 1) * max(SENT - BACKWARD / BUCKETS, 0.0) / 1e3,
        exposed=(SENT + (BUCKETS - 1) * max(SENT - BACKWARD / BUCKETS, 0.0)) / 1e3,
        all_of_them=BUCKETS * SENT / 1e3,
    ),
)
