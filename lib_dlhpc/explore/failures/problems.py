"""Problems of module 09, state and failures."""

from math import exp, factorial, inf, sqrt

from lib_dlhpc.costs import Checks, Pool, Saving
from lib_dlhpc.explore.failures import ways
from lib_dlhpc.explore.failures.interval import DAY, HOUR, LLAMA_MTBF, MINUTE, SPELL, Setting, found
from lib_dlhpc.prediction.intervals import expected_cycle, system_mtbf, young
from lib_dlhpc.prediction.published import results
from lib_dlhpc.prediction.silent import checked_goodput, first_order_check
from lib_dlhpc.prediction.spares import waiting, waiting_goodput
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.problems import FADED, PAGE, WORKED, Cases, Problem, Step, Trap

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
EVERY, FREE = 3600.0 * draw.any([8, 6, 12]), Saving(0.0, 0.0, 0.0)
ALL, UNPLANNED = (
    int(results()[f"llama3-{row}"]["value"]) for row in ("interruptions", "unexpected")
)
LLAMA_GPUS, FEWER = 16_384, draw.any([1024, 512, 2048])
JOB, FAILS, AGAIN = draw.any([(4, 8, 10), (6, 10, 20), (5, 8, 15), (3, 5, 10)])  # h, h, min
tries = exp(JOB / FAILS)


def pool(spares: int) -> Pool:
    """Return the nodes with that many spares."""
    return Pool(TRAIN, spares, OFTEN * DAY, REPAIR * DAY)


PROBLEMS = [
    Problem(
        "Young's interval",
        f"A machine has {NODES:,} nodes, each of which fails once in {DAYS} days; a checkpoint takes {show(COST, 's')}."
        " Which checkpoint interval loses the least time, to first order?",
        float(young(COST, system_mtbf(DAYS * DAY, NODES))),
        Step("M, the MTBF of all nodes together: that of one node over their number", mtbf, "s"),
        Step("2 C M, in s²", 2 * COST * mtbf),
        Step("Its square root", sqrt(2 * COST * mtbf), "s"),
    ),
    Problem(
        "Goodput",
        f"A machine has an MTBF M = {show(M, 's', 4)}. A checkpoint takes C = {show(C, 's')}, a restart"
        f" R = {show(R, 's')}, and the training between two checkpoints τ = {show(TAU, 's')}. In Daly's model the"
        " expected time for τ of training and its checkpoint is M e^(R/M) (e^((τ + C)/M) - 1). What is the goodput?",
        100 * float(run.goodput),
        Step("(τ + C) / M", (TAU + C) / M),
        Step("e to the power of that, less 1", exp((TAU + C) / M) - 1),
        Step("Expected time: that times M e^(R/M)", cycle, "s"),
        Step("Goodput: τ over the expected time", 100 * TAU / cycle, "%"),
    ),
    Problem(
        "Four times the machine",
        "The machine of problem 2 grows from 2,048 nodes to 8,192, each as reliable as before; a checkpoint still takes"
        f" {show(C, 's')}. What is Young's interval now?",
        float(young(C, M)) / 2,
        Step("The new MTBF: M / 4", M / 4, "s"),
        Step("Square root of 2 C M / 4: half of what it was", sqrt(2 * C * M / 4), "s"),
    ),
    Problem(
        "A copy",
        f"A node has {show(float(copy.host_copy), 'B', 4)} of state on its 8 GPUs. All of them copy their part to the"
        " host at the same time, each over a host link of its own, and training stalls for"
        f" {show(float(copy.blocked), 's', 4)}. How fast is a link?",
        link.bandwidth * link.efficiency,
        Step("Bytes that one GPU copies", float(copy.host_copy) / 8, "B"),
        Step("These bytes over the stall", float(copy.host_copy) / 8 / float(copy.blocked), "B/s"),
    ),
    Problem(
        "One spare",
        f"A run needs all of its {TRAIN:,} nodes; each fails once in {OFTEN:,} days and is then in repair for"
        f" {count(REPAIR, 'day')}. There is one spare node. Failed nodes are repaired independently of each other, so"
        " with S spares, and *a* nodes in repair on average, the run waits for a share of the time that is"
        " a^(S+1) / (S+1)! over the sum of a^k / k! for k from 0 to S + 1 (Erlang's B formula). What share is that?",
        100 * waiting(pool(1)),
        Step("a: nodes times repair time over the MTBF of a node", LOAD),
        Step("Sum: 1 + a + a²/2", 1 + LOAD + LOAD**2 / 2),
        Step("Share: a²/2 over the sum", 100 * LOAD**2 / 2 / (1 + LOAD + LOAD**2 / 2), "%"),
        kind=WORKED,
    ),
    Problem(
        "Two spares",
        "The run of problem 5 gets a second spare node. For what share of the time does it wait now?",
        100 * waiting(pool(2)),
        Step("Sum: 1 + a + a²/2 + a³/6", sum(terms)),
        Step("Last term: a³/6", terms[3]),
        Step("Share: a³/6 over the sum", 100 * terms[3] / sum(terms), "%"),
        kind=FADED,
    ),
    Problem(
        "What spares cost",
        f"The run of problem 6, with {TRAIN:,} nodes and two spares, has a goodput of {ALONE}% while it does not wait."
        " What share of the time of all nodes, spares included, becomes training?",
        100 * waiting_goodput(pool(2), ALONE / 100),
        Step(
            "Share of nodes that train: nodes over nodes and spares", 100 * TRAIN / (TRAIN + 2), "%"
        ),
        Step(
            "Times the share of time without waiting", 100 * TRAIN / (TRAIN + 2) * (1 - share), "%"
        ),
        Step("Times the goodput", ALONE * TRAIN / (TRAIN + 2) * (1 - share), "%"),
    ),
    Problem(
        "When to check",
        f"All nodes together produce a silent error once in {WRONG} days. A check of"
        f" {show(CHECK, 's')} detects it; then all training since the last check is repeated. Which interval between"
        " checks loses the least time, to first order?",
        float(first_order_check(CHECK, WRONG * DAY)),
        Step(
            "With V for a check and M between errors, an interval D loses the share V/D + D/M, which is least where"
            " both terms are equal, at D² = V M; in s²",
            CHECK * WRONG * DAY,
        ),
        Step(
            "Its square root: Young's formula without the 2, since an error costs the whole interval",
            sqrt(CHECK * WRONG * DAY),
            "s",
        ),
        kind=WORKED,
    ),
    Problem(
        "Goodput with checks",
        f"The machine of problem 8 now runs one check every {show(EVERY, 's')} of training. Checkpoints, restarts and"
        " failures take no time. An interval D has to be trained e^(D/M) times on average until it has no error, where"
        " M is the mean time between errors. What is the goodput?",
        100 * float(checked_goodput(EVERY, FREE, inf, Checks(WRONG * DAY, EVERY, CHECK))),
        Step("Mean number of attempts: e^(D/M)", exp(EVERY / (WRONG * DAY))),
        Step(
            "Expected time: that times training and check, D + V",
            exp(EVERY / (WRONG * DAY)) * (EVERY + CHECK),
            "s",
        ),
        Step(
            "Goodput: D over the expected time",
            100 * EVERY / (EVERY + CHECK) / exp(EVERY / (WRONG * DAY)),
            "%",
        ),
        kind=FADED,
    ),
    Problem(
        "A faster check",
        f"The machine of problem 8 gets a new check, which takes a quarter of {show(CHECK, 's')}, and four times as"
        " many nodes, each as reliable as before. Which interval between checks is best now, to first order?",
        float(first_order_check(CHECK / 4, WRONG * DAY / 4)),
        Step("V / 4 times M / 4, in s²", CHECK * WRONG * DAY / 16),
        Step("Its square root: a quarter of what it was", sqrt(CHECK * WRONG * DAY) / 4, "s"),
    ),
    Problem(
        "Read published numbers",
        f"Llama 3 405B trained on {LLAMA_GPUS:,} GPUs (Grattafiori et al. 2024): {ALL} interruptions in"
        f" {SPELL / DAY:.0f} days, of which {ALL - UNPLANNED} were planned, such as for maintenance. You train on"
        f" {FEWER:,} of these GPUs. What is your MTBF?",
        float(system_mtbf(LLAMA_MTBF, FEWER / 8)),
        Step("Unexpected interruptions", UNPLANNED),
        Step("Days over these", SPELL / UNPLANNED, "s"),
        Step("Times the GPUs then over now", SPELL / UNPLANNED * LLAMA_GPUS / FEWER, "s"),
        traps=[
            Trap(
                SPELL / UNPLANNED, "That is the MTBF of all their GPUs: fewer GPUs fail less often."
            ),
            Trap(
                SPELL / ALL * LLAMA_GPUS / FEWER,
                "That counts planned interruptions, which are no failures and do not get rarer with fewer GPUs.",
            ),
        ],
    ),
    Problem(
        "Find the mistake: shorter than the MTBF",
        f"A job trains for {JOB} h, on a machine that fails once in {FAILS} h; a restart takes {AGAIN} min. A plan"
        f" saves no checkpoint, since the job is done after {JOB} h, long before a failure. How long does the job take"
        " on average, by the formula of problem 2 with C = 0?",
        float(
            expected_cycle(JOB * HOUR, Saving(0.0, 0.0, 0.0, restart=AGAIN * MINUTE), FAILS * HOUR)
        ),
        Step("τ / M", JOB / FAILS),
        Step("e to that, less 1", tries - 1),
        Step("Times M e^(R/M)", FAILS * HOUR * exp(AGAIN / 60 / FAILS) * (tries - 1), "s"),
        traps=[
            Trap(
                JOB * HOUR,
                "That is the plan. The MTBF is a mean: a failure may come at any time, and all work is lost with it.",
            ),
            Trap(
                JOB * HOUR * tries,
                "It takes e^(τ/M) attempts on average, but those that fail end early.",
            ),
        ],
    ),
]
