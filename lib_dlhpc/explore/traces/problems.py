"""Problems of module 11, traces and waits."""

from math import sqrt

from lib_dlhpc.explore.traces import coupled
from lib_dlhpc.explore.traces.waits import Setting, analyzed, gain_of_ideal_network
from lib_dlhpc.prediction.communication.coupled import OVERSHOOT, predict_coupled, waits
from lib_dlhpc.teaching.problem_texts import Numbers, written
from lib_dlhpc.teaching.problems import PAGE, Cases

draw: Cases = globals().get("draw", PAGE)

OWN = draw.any([Setting(late=0.35), Setting(), Setting(late=0.7), Setting(rank=3, late=0.9)])
found = analyzed(OWN)
computed = [float(seconds) for seconds in found.compute]
own = found.efficiency
BATCHES = draw.any([250, 150, 400])
COUPLED = draw.any([coupled.Setting(2, 8, jitter=0.0), coupled.Setting(3, 8, jitter=0.0)])
way = predict_coupled(coupled.workflow(COUPLED, BATCHES), coupled.costs(COUPLED), coupled.RANKS)
starved = way.produce - way.consume
SHORT = COUPLED._replace(sampling=1)
hurry = predict_coupled(coupled.workflow(SHORT, BATCHES), coupled.costs(SHORT), coupled.RANKS)
EACH, VARIES, DEPTH = draw.any([20, 12, 30]), draw.any([30, 20, 25]), draw.any([2, 4, 3])
spread = sqrt(2) * VARIES / 100 * EACH / 1e3
room = DEPTH * EACH / 1e3 + 2 * OVERSHOOT * spread
OTHER = draw.any([Setting(rank=1, late=0.6), Setting(rank=0, late=0.45), Setting(rank=3, late=0.8)])
late = analyzed(OTHER)
busy, whole = [float(seconds) for seconds in late.compute], float(late.span)
TIMES, outside = 10, 1 - late.efficiency.parallel
hoped, real = (1 - 1 / TIMES) * outside * whole, (1 - late.efficiency.transfer) * whole

PROBLEMS = written(
    globals(),
    load_balance=Numbers(
        100 * own.load_balance,
        mean=sum(computed) / 4,
        busiest=max(computed),
        balance=100 * sum(computed) / 4 / max(computed),
    ),
    factors=Numbers(
        100 * own.parallel,
        communication=own.serialization * own.transfer,
        parallel=100 * own.load_balance * own.serialization * own.transfer,
    ),
    ideal_network=Numbers(
        gain_of_ideal_network(OWN), ideal=own.transfer * found.span, saved=100 * (1 - own.transfer)
    ),
    bottleneck=Numbers(
        way.seconds,
        slower=way.produce,
        total=BATCHES * way.produce + way.consume,
        in_turns=BATCHES * (way.produce + way.consume),
        training_slower=BATCHES * way.consume + way.produce,
    ),
    samples=Numbers(
        way.terms["wait for samples"] * coupled.RANKS / way.training,
        first=way.produce,
        total=way.produce + (BATCHES - 1) * starved,
        all_produced=BATCHES * way.produce,
    ),
    shorter=Numbers(
        hurry.seconds,
        slower=hurry.consume,
        total=hurry.produce + BATCHES * hurry.consume,
        producing_slower=BATCHES * hurry.produce + hurry.consume,
    ),
    both_vary=Numbers(
        waits(EACH / 1e3, EACH / 1e3, spread, DEPTH)[0],
        overshoot=2 * OVERSHOOT,
        wait=spread**2 / (2 * room),
        one_side=(spread / sqrt(2)) ** 2
        / (2 * (DEPTH * EACH / 1e3 + sqrt(2) * OVERSHOOT * spread)),
    ),
    nobody_waits=Numbers(
        own.serialization * found.span,
        factor=1 / own.serialization,
        shorter=own.serialization * found.span,
        saved=(1 - own.serialization) * found.span,
    ),
    balanced=Numbers(
        late.efficiency.load_balance * whole,
        mean=sum(busy) / 4,
        balance=100 * sum(busy) / 4 / max(busy),
        shorter=sum(busy) / 4 / max(busy) * whole,
        no_slow_work=min(busy) / max(busy) * whole,
    ),
    faster_network=Numbers(
        hoped - gain_of_ideal_network(OTHER) / 100 * whole,
        more=hoped - real,
        all_outside=outside * whole - real,
    ),
)
