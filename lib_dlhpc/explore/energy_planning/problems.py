"""Problems of module 10, energy and planning."""

from math import ceil

import numpy as np

from lib_dlhpc.convergence import LAWS
from lib_dlhpc.costs import clock
from lib_dlhpc.explore.energy_planning.to_accuracy import Setting as Run
from lib_dlhpc.explore.energy_planning.to_accuracy import cost, predicted
from lib_dlhpc.prediction.energy.energy import facility_energy
from lib_dlhpc.prediction.energy.power_swings import Wave, floored
from lib_dlhpc.prediction.validation.validate import results
from lib_dlhpc.teaching.problem_texts import Numbers, written
from lib_dlhpc.teaching.problems import PAGE, Cases

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

PROBLEMS = written(
    globals(),
    limit=Numbers(
        100 * (1 / float(clock(LIMIT, BUSY, IDLE)) - 1),
        left=LIMIT - static,
        of_all=(LIMIT - static) / (BUSY - static),
        longer=100 * (1 / phi - 1),
    ),
    to_accuracy=Numbers(cost(OWN).seconds, epoch=steps * seconds, total=epochs * steps * seconds),
    facility=Numbers(
        float(facility_energy(HOURS, 400, PUE)) / MWH,
        gpus=HOURS * 400 * 3600 / MWH,
        with_cooling=HOURS * 400 * PUE * 3600 / MWH,
    ),
    which_size=Numbers(
        law.split(compute).weights / 1e9,
        product=compute / 6,
        billions=ratio * (compute / 6) ** share / 1e9,
    ),
    floor=Numbers(
        100 * (floored(WAVE, FLOOR * HIGH).joules / WAVE.joules - 1),
        step=HIGH * LONG + LOW * SHORT,
        added=(FLOOR * HIGH - LOW) * SHORT,
        share=100 * (FLOOR * HIGH - LOW) * SHORT / (HIGH * LONG + LOW * SHORT),
    ),
    no_swing=Numbers(
        100 * (floored(WAVE, HIGH).joules / WAVE.joules - 1),
        step=HIGH * LONG + LOW * SHORT,
        added=(HIGH - LOW) * SHORT,
        share=100 * (HIGH - LOW) * SHORT / (HIGH * LONG + LOW * SHORT),
    ),
    longer_step=Numbers(
        100 * (floored(SLOWER, FLOOR * HIGH).joules / SLOWER.joules - 1),
        step=2 * HIGH * LONG + LOW * SHORT,
        share=100 * (FLOOR * HIGH - LOW) * SHORT / (2 * HIGH * LONG + LOW * SHORT),
        as_before=100 * (FLOOR * HIGH - LOW) * SHORT / (HIGH * LONG + LOW * SHORT),
    ),
    watts_for_joules=Numbers(
        100 * (1 - paid / float(clock(LIMIT, BUSY, IDLE))),
        promised=1 - LIMIT / BUSY,
        energy=paid / phi,
        saving=100 * (1 - paid / phi),
        of_power=100 * (1 - paid),
        gpu_alone=100 * (1 - LIMIT / BUSY / phi),
    ),
    published=Numbers(
        JOULES / (2048 * float(facility_energy(1, 400, 1.1)) / 3600),
        mwh=JOULES / MWH,
        one=400 * 1.1,
        all_of_them=2048 * 400 * 1.1,
        time=JOULES / (2048 * 400 * 1.1),
        without_pue=JOULES / (2048 * 400),
    ),
)
