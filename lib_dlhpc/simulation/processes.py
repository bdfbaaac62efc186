"""The steps of a run with every rank a process: buckets and steps overlap as they do on a real machine.

A rank runs for itself through all steps. It waits for nobody but in an exchange, so that a late rank's
bucket shares the links with the next bucket of those that are ahead, and background traffic goes on
from step to step. What it computes in between takes no event: only its messages do.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from lib_dlhpc.schedules.rounds import Schedule, stored
from lib_dlhpc.simulation.clock import Clock, Floats, Load, StepProgress, clock
from lib_dlhpc.simulation.events import Script, take_part
from lib_dlhpc.simulation.platform import Platform
from lib_dlhpc.simulation.simulation import Process, Record, Simulation, Traffic


def simulate_events(
    load: Load,
    plan_of: Callable[[float], Schedule],
    on: Platform,
    speed: ArrayLike = 1.0,
    background: Sequence[Traffic] = (),
    record: Record | None = None,
    progress: StepProgress | None = None,
) -> list[Clock]:
    """Return the steps; every bucket is exchanged by the schedule that `plan_of`
    gives for its bytes, whose elements are as large as needed.

    speed: of each rank, for what it combines (that of its compute is in `load`). progress: called now
    and then and at the end. Raises Cancelled when it returns False before the end.
    """
    sim = Simulation(on, speed, record=record)
    sim.background(background)
    sizes = load.work.sizes[load.sent].tolist()
    kept = {plan.name: stored(plan) for plan in map(plan_of, sizes)}
    plans = [kept[plan_of(size).name] for size in sizes]
    shape = (load.steps, len(load.sent), load.ranks)
    start, joined, exchanged = np.zeros((load.steps, load.ranks)), np.empty(shape), np.empty(shape)
    scripts = [
        [Script(sim, plan, size / plan.elements) for plan, size in zip(plans, sizes, strict=True)]
        for _ in range(load.steps)
    ]
    for rank in range(load.ranks):
        sim.start(_rank(sim, load, rank, scripts, start, joined, exchanged))
    total = sum(plan.messages for plan in plans) * load.steps
    if progress is None:
        sim.run()
    else:
        sim.run(lambda time, delivered: progress(time, delivered, total))
        progress(float(sim.env.now), sim.delivered, total)
    steps = enumerate(zip(start, joined, exchanged, strict=True))
    return [clock(load, step, *of_step) for step, of_step in steps]


def _rank(
    sim: Simulation,
    load: Load,
    rank: int,
    scripts: list[list[Script]],
    start: Floats,
    joined: Floats,
    exchanged: Floats,
) -> Process:
    """What a rank does in all steps; it writes down when it starts, joins and is through."""
    begin = 0.0
    for step, of_step in enumerate(scripts):
        start[step, rank] = begin
        if load.supply is not None:
            load.supply.started(step, begin, rank)
        factor = float(load.factor[step, rank])
        forward_end, backward_end = load.computed(begin, factor)
        for row, (bucket, script) in enumerate(zip(load.sent, of_step, strict=True)):
            released = float(load.released(bucket, forward_end, backward_end, factor))
            if released > sim.env.now:
                yield sim.until(released)
            joined[step, row, rank] = sim.env.now
            yield from take_part(sim, rank, script)
            exchanged[step, row, rank] = sim.env.now
        end = load.finished(max(backward_end, sim.env.now), factor)
        begin = float(load.next_start(step, begin, end, rank))
