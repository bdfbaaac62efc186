"""Problems of module 09, state and failures."""

from math import exp, sqrt

from lib_dlhpc.explore.failures.interval import DAY, MINUTE, Setting, found
from lib_dlhpc.explore.failures.ways import Setting as Saved
from lib_dlhpc.explore.failures.ways import found as saved
from lib_dlhpc.prediction.intervals import system_mtbf, young
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.problems import PAGE, Cases, Problem, Step

draw: Cases = globals().get("draw", PAGE)

TAU = draw.any([20, 15, 30, 45]) * MINUTE
run = found(Setting(interval=TAU))
M, C, R = float(run.mtbf), float(run.saving.blocked), float(run.saving.restart)
cycle = M * exp(R / M) * (exp((TAU + C) / M) - 1)
COST = draw.any([90.0, 45.0, 60.0, 150.0])
NODES, DAYS = draw.any([600, 400, 900, 1500]), draw.any([300, 200, 365, 450])
mtbf = DAYS * DAY / NODES
asynchronous = saved(Saved(), "asynchronous")
copy, link = asynchronous.saving, asynchronous.prediction.experiment.machine.host_link

PROBLEMS = [
    Problem(
        "Young's interval",
        f"{NODES} nodes, each of which fails once in {DAYS} days; a checkpoint takes {show(COST, 's')}. Which"
        " interval loses the least, to first order?",
        float(young(COST, system_mtbf(DAYS * DAY, NODES))),
        Step("MTBF of all nodes together: that of one node over their number", mtbf, "s"),
        Step("2 C M, in s²", 2 * COST * mtbf),
        Step("Its root", sqrt(2 * COST * mtbf), "s"),
    ),
    Problem(
        "Goodput",
        f"M = {show(M, 's')}, a checkpoint takes {show(C, 's')}, a restart {show(R, 's')}, training between two"
        f" checkpoints τ = {show(TAU, 's')}. Daly's model:"
        " the expected time for τ of training and its checkpoint is M e^(R/M) (e^((τ + C)/M) - 1). What is the"
        " goodput?",
        100 * float(run.goodput),
        Step("(τ + C) / M", (TAU + C) / M),
        Step("e to that, less 1", exp((TAU + C) / M) - 1),
        Step("Times M e^(R/M)", cycle, "s"),
        Step("τ over that", 100 * TAU / cycle, "%"),
    ),
    Problem(
        "Four times the machine",
        "The machine of problem 2 grows from 2,048 nodes to 8,192, each as reliable; a checkpoint still takes"
        f" {show(C, 's')}. What is Young's interval?",
        float(young(C, M)) / 2,
        Step("M / 4", M / 4, "s"),
        Step("Root of 2 C M: half of what it was", sqrt(2 * C * M / 4), "s"),
    ),
    Problem(
        "A copy",
        f"A node has {show(float(copy.host_copy), 'B')} of state on its 8 GPUs, which copy at once, each over a"
        " host link of its own; training stalls for"
        f" {show(float(copy.blocked), 's')}. How fast is a link?",
        link.bandwidth * link.efficiency,
        Step("Bytes of a GPU", float(copy.host_copy) / 8, "B"),
        Step("Bytes over seconds", float(copy.host_copy) / 8 / float(copy.blocked), "B/s"),
    ),
]
