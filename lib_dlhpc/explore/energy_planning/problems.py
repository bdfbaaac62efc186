"""Problems of module 10, energy and planning."""

from math import ceil

import numpy as np

from lib_dlhpc.convergence import LAWS
from lib_dlhpc.costs import clock
from lib_dlhpc.explore.energy_planning.to_accuracy import Setting as Run
from lib_dlhpc.explore.energy_planning.to_accuracy import cost, predicted
from lib_dlhpc.prediction.energy import facility_energy
from lib_dlhpc.prediction.power_swings import Wave, floored
from lib_dlhpc.prediction.validate import results
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.problems import FADED, PAGE, WORKED, Cases, Problem, Step, Trap

draw: Cases = globals().get("draw", PAGE)

BUSY, IDLE = draw.any([400.0, 320.0, 560.0, 720.0]), draw.any([40.0, 50.0, 60.0])
LIMIT = BUSY * draw.any([0.625, 0.7, 0.75])
static = IDLE + 0.3 * (BUSY - IDLE)
phi = ((LIMIT - static) / (BUSY - static)) ** 0.25
HOURS, PUE = draw.any([61_440, 82_432, 245_760]), draw.any([1.1, 1.2, 1.4])
MWH = 3.6e9
OWN = draw.any([Run(gpus=512), Run(), Run(gpus=1024)])
run = predicted(OWN)
samples, seconds = float(run.experiment.dataset.samples), float(run.step_time)
epochs, steps = float(run.to_accuracy.epochs.epochs), ceil(samples / OWN.batch)
GPUS, DAYS, MFU = draw.any([128, 64, 256]), draw.any([7, 3, 14]), draw.any([0.5, 0.4, 0.55])
law = LAWS["besiroglu"]
compute = GPUS * 989e12 * MFU * DAYS * 86_400
share = law.beta / (law.alpha + law.beta)
ratio = (law.alpha * law.of_weights / (law.beta * law.of_tokens)) ** (1 / (law.alpha + law.beta))
HIGH, LOW = draw.any([20e6, 30e6, 12e6]), draw.any([11e6, 8e6, 10e6])
LONG, SHORT, FLOOR = draw.any([4.0, 1.5, 6.0]), draw.any([0.5, 0.8, 1.0]), 0.95
WAVE, SLOWER = (
    Wave(np.array([length, SHORT]), np.array([HIGH, LOW])) for length in (LONG, 2 * LONG)
)

HOST = draw.any([120, 160, 200])
paid = (LIMIT + HOST) / (BUSY + HOST)
MODEL, ROW = draw.any([("65B", "llama1-65b-mwh"), ("33B", "llama1-33b-mwh")])
JOULES = 3.6e9 * float(results()[ROW]["value"])

PROBLEMS = [
    Problem(
        "A power limit",
        f"A GPU draws {BUSY:.0f} W when it computes, {IDLE:.0f} W when it is idle. The idle power and three tenths of"
        " the difference remain at any clock; the other seven tenths fall with the fourth power of the clock. With"
        f" a power limit of {LIMIT:.0f} W, by how many percent does arithmetic take longer?",
        100 * (1 / float(clock(LIMIT, BUSY, IDLE)) - 1),
        Step("Power that remains at any clock", static, "W"),
        Step("Power that the limit leaves for the part that falls", LIMIT - static, "W"),
        Step("That over the same part without a limit", (LIMIT - static) / (BUSY - static)),
        Step("Its fourth root: the clock φ, relative to the highest", phi),
        Step("Additional time: 1 / φ - 1", 100 * (1 / phi - 1), "%"),
    ),
    Problem(
        "Time to accuracy",
        f"ResNet-50 needs {epochs:.0f} epochs of {samples:,.0f} images to reach its accuracy with a batch of"
        f" {OWN.batch:,}; a step takes"
        f" {show(seconds, 's', 4)}. How long does the run take?",
        cost(OWN).seconds,
        Step("Steps per epoch: images over batch, rounded up", steps),
        Step("Time of an epoch", steps * seconds, "s"),
        Step("Time of all epochs", epochs * steps * seconds, "s"),
    ),
    Problem(
        "Energy of a facility",
        f"A training run took {HOURS:,} GPU-hours at 400 W, in a facility with a PUE of {PUE}. How many MWh did the"
        " facility use for it?",
        float(facility_energy(HOURS, 400, PUE)) / MWH,
        Step("Energy of the GPUs: GPU-hours times watts", HOURS * 400 * 3600 / MWH, "MWh"),
        Step("Times the PUE", HOURS * 400 * PUE * 3600 / MWH, "MWh"),
    ),
    Problem(
        "Which size?",
        f"{GPUS} GPUs with a peak of 989 TFLOP/s each train a language model for {DAYS} days at an MFU of"
        f" {100 * MFU:.0f}%. Its loss is E + {law.of_weights:g} / N^{law.alpha:g} + {law.of_tokens:g} / D^{law.beta:g}"
        " (Besiroglu et al. 2024), that is, E + A / N^α + B / D^β for N parameters and D tokens. Training takes 6 N D"
        " FLOP. How many billion parameters are compute-optimal?",
        law.split(compute).weights / 1e9,
        Step("Compute C: GPUs times peak, MFU and seconds", compute, "FLOP"),
        Step("Parameters times tokens, N D: C / 6", compute / 6),
        Step("G = (α A / β B)^(1 / (α + β))", ratio),
        Step("N = G (C / 6)^(β / (α + β)), in billions", ratio * (compute / 6) ** share / 1e9),
    ),
    Problem(
        "A floor",
        f"A facility draws {show(HIGH, 'W')} while its GPUs compute, for {show(LONG, 's')}, and {show(LOW, 'W')} while"
        f" they all wait for an exchange, for {show(SHORT, 's')}; then the next step begins. Now waiting GPUs draw"
        f" extra power, so that the facility never falls below a floor of {FLOOR:.0%} of the higher power. By how many"
        " percent does the energy grow?",
        100 * (floored(WAVE, FLOOR * HIGH).joules / WAVE.joules - 1),
        Step("Energy of a step without a floor", HIGH * LONG + LOW * SHORT, "J"),
        Step("Energy that the floor adds in one wait", (FLOOR * HIGH - LOW) * SHORT, "J"),
        Step(
            "Added energy over that of the step",
            100 * (FLOOR * HIGH - LOW) * SHORT / (HIGH * LONG + LOW * SHORT),
            "%",
        ),
        kind=WORKED,
    ),
    Problem(
        "No swing at all",
        "The floor of problem 5 rises to the higher power itself. By how many percent does the energy grow now?",
        100 * (floored(WAVE, HIGH).joules / WAVE.joules - 1),
        Step("Energy of a step without a floor", HIGH * LONG + LOW * SHORT, "J"),
        Step("Energy that the floor adds in one wait", (HIGH - LOW) * SHORT, "J"),
        Step(
            "Added energy over that of the step",
            100 * (HIGH - LOW) * SHORT / (HIGH * LONG + LOW * SHORT),
            "%",
        ),
        kind=FADED,
    ),
    Problem(
        "A longer step",
        "In problem 5, the GPUs now compute twice as long in a step, and wait as long as before. By how many percent"
        " does the floor of problem 5 increase the energy?",
        100 * (floored(SLOWER, FLOOR * HIGH).joules / SLOWER.joules - 1),
        Step("Energy of a step without a floor", 2 * HIGH * LONG + LOW * SHORT, "J"),
        Step(
            "Energy that the floor adds, over that",
            100 * (FLOOR * HIGH - LOW) * SHORT / (2 * HIGH * LONG + LOW * SHORT),
            "%",
        ),
        traps=[
            Trap(
                100 * (FLOOR * HIGH - LOW) * SHORT / (HIGH * LONG + LOW * SHORT),
                "That is the share of problem 5. The floor adds as much as before, but to a larger energy.",
            )
        ],
    ),
    Problem(
        "Find the mistake: watts for joules",
        f"The GPU of problem 1 computes all the time, and its share of host and switches draws {HOST} W at any clock. A"
        f" plan sets the power limit of {LIMIT:.0f} W and promises {100 * (1 - LIMIT / BUSY):.1f}% less energy for the"
        " same work. How much less is it really, host and switches included?",
        100 * (1 - paid / float(clock(LIMIT, BUSY, IDLE))),
        Step("Power with the limit over power without, host and switches included", paid),
        Step("Energy over energy: times 1 / φ, the ratio of the times in problem 1", paid / phi),
        Step("Saving: 1 less that", 100 * (1 - paid / phi), "%"),
        traps=[
            Trap(
                100 * (1 - paid),
                "That is the reduction of the power. The work takes 1 / φ times as long.",
            ),
            Trap(
                100 * (1 - LIMIT / BUSY / phi),
                "That leaves out host and switches, which draw power for longer, too.",
            ),
        ],
    ),
    Problem(
        "Read a published table",
        f"Touvron et al. 2023 (table 15) report {JOULES / MWH:.0f} MWh for LLaMA {MODEL}. They did not meter it, but"
        " computed it from GPU-hours at 400 W and a PUE of 1.1. For how long do 2,048 GPUs train if they run all the"
        " time?",
        JOULES / (2048 * float(facility_energy(1, 400, 1.1)) / 3600),
        Step("Power of a GPU, times the PUE", 400 * 1.1, "W"),
        Step("Power of all GPUs", 2048 * 400 * 1.1, "W"),
        Step("Energy over power", JOULES / (2048 * 400 * 1.1), "s"),
        traps=[
            Trap(
                JOULES / (2048 * 400),
                "That leaves out the PUE of 1.1: the published energy includes cooling.",
            )
        ],
    ),
]
