"""Problems of module 09, state and failures."""

from math import exp, factorial, inf, sqrt

from lib_dlhpc.costs import CheckpointCost, Checks, NodePool
from lib_dlhpc.explore.failures import ways
from lib_dlhpc.explore.failures.interval import LLAMA_MTBF, SPELL, Setting, found
from lib_dlhpc.prediction.failures.intervals import expected_cycle, system_mtbf, young
from lib_dlhpc.prediction.failures.silent import checked_goodput, first_order_check
from lib_dlhpc.prediction.failures.spares import waiting, waiting_goodput
from lib_dlhpc.prediction.validation.published import results
from lib_dlhpc.spec.units import DAY, HOUR, MINUTE, count
from lib_dlhpc.teaching.problem_texts import Numbers, written
from lib_dlhpc.teaching.problems import PAGE, Cases

draw: Cases = globals().get("draw", PAGE)

TAU = draw.any([20, 15, 30, 45]) * MINUTE
run = found(Setting(interval=TAU))
M, C, R = float(run.mtbf), float(run.saving.blocked), float(run.saving.restart)
cycle = M * exp(R / M) * (exp((TAU + C) / M) - 1)
COST = draw.any([90.0, 45.0, 60.0, 150.0])
NODES, DAYS = draw.any([600, 400, 900, 1500]), draw.any([300, 200, 365, 450])
mtbf = DAYS * DAY / NODES
asynchronous = ways.found(ways.Setting(), "asynchronous")
copy, link = asynchronous.saving, asynchronous.prediction.experiment.machine.host_link
TRAIN, OFTEN, REPAIR = draw.any([1000, 800, 1500]), draw.any([2000, 1500]), draw.any([1, 2])
LOAD, ALONE = TRAIN * REPAIR / OFTEN, draw.any([94, 90, 96])
terms = [LOAD**k / factorial(k) for k in range(4)]
share = terms[3] / sum(terms)
WRONG, CHECK = draw.any([9, 4, 16]), draw.any([600.0, 300.0, 900.0])
EVERY, FREE = 3600.0 * draw.any([8, 6, 12]), CheckpointCost(0.0, 0.0, 0.0)
ALL, UNPLANNED = (
    int(results()[f"llama3-{row}"]["value"]) for row in ("interruptions", "unexpected")
)
LLAMA_GPUS, FEWER = 16_384, draw.any([1024, 512, 2048])
JOB, FAILS, AGAIN = draw.any([(4, 8, 10), (6, 10, 20), (5, 8, 15), (3, 5, 10)])  # h, h, min
tries = exp(JOB / FAILS)


def pool(spares: int) -> NodePool:
    """Return the nodes with that many spares."""
    return NodePool(TRAIN, spares, OFTEN * DAY, REPAIR * DAY)


PROBLEMS = written(
    globals(),
    young=Numbers(
        float(young(COST, system_mtbf(DAYS * DAY, NODES))),
        squared=2 * COST * mtbf,
        interval=sqrt(2 * COST * mtbf),
    ),
    goodput=Numbers(
        100 * float(run.goodput),
        ratio=(TAU + C) / M,
        growth=exp((TAU + C) / M) - 1,
        goodput=100 * TAU / cycle,
    ),
    four_times=Numbers(float(young(C, M)) / 2, mtbf=M / 4, interval=sqrt(2 * C * M / 4)),
    copy=Numbers(
        link.bandwidth * link.efficiency,
        bytes=float(copy.host_copy) / 8,
        speed=float(copy.host_copy) / 8 / float(copy.blocked),
    ),
    one_spare=Numbers(
        100 * waiting(pool(1)),
        repair=count(REPAIR, "day"),
        total=1 + LOAD + LOAD**2 / 2,
        share=100 * LOAD**2 / 2 / (1 + LOAD + LOAD**2 / 2),
    ),
    two_spares=Numbers(
        100 * waiting(pool(2)), total=sum(terms), last=terms[3], waits=100 * terms[3] / sum(terms)
    ),
    cost=Numbers(
        100 * waiting_goodput(pool(2), ALONE / 100),
        nodes=100 * TRAIN / (TRAIN + 2),
        running=100 * TRAIN / (TRAIN + 2) * (1 - share),
        training=ALONE * TRAIN / (TRAIN + 2) * (1 - share),
    ),
    check=Numbers(
        float(first_order_check(CHECK, WRONG * DAY)),
        squared=CHECK * WRONG * DAY,
        interval=sqrt(CHECK * WRONG * DAY),
    ),
    checked=Numbers(
        100 * float(checked_goodput(EVERY, FREE, inf, Checks(WRONG * DAY, EVERY, CHECK))),
        attempts=exp(EVERY / (WRONG * DAY)),
        time=exp(EVERY / (WRONG * DAY)) * (EVERY + CHECK),
        goodput=100 * EVERY / (EVERY + CHECK) / exp(EVERY / (WRONG * DAY)),
    ),
    faster_check=Numbers(
        float(first_order_check(CHECK / 4, WRONG * DAY / 4)),
        squared=CHECK * WRONG * DAY / 16,
        interval=sqrt(CHECK * WRONG * DAY) / 4,
    ),
    published=Numbers(
        float(system_mtbf(LLAMA_MTBF, FEWER / 8)),
        days=SPELL / DAY,
        planned=ALL - UNPLANNED,
        each=SPELL / UNPLANNED,
        own=SPELL / UNPLANNED * LLAMA_GPUS / FEWER,
        with_planned=SPELL / ALL * LLAMA_GPUS / FEWER,
    ),
    short_job=Numbers(
        float(
            expected_cycle(
                JOB * HOUR, CheckpointCost(0.0, 0.0, 0.0, restart=AGAIN * MINUTE), FAILS * HOUR
            )
        ),
        ratio=JOB / FAILS,
        growth=tries - 1,
        time=FAILS * HOUR * exp(AGAIN / 60 / FAILS) * (tries - 1),
        planned=JOB * HOUR,
        whole_tries=JOB * HOUR * tries,
    ),
)
