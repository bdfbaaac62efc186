"""predict(experiment): time of a step by cause, memory, cost of the run."""

from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np

from lib_dlhpc.costs import (
    calibration,
    checkpoints,
    energy,
    roofline,
    split_calibration,
    stragglers,
)
from lib_dlhpc.costs.compression import applied_rule, density
from lib_dlhpc.costs.device_work import DeviceWork, check_precision, device_work
from lib_dlhpc.costs.input import input_stall, input_time, start_time
from lib_dlhpc.costs.network import Cost, last_axis, network_of
from lib_dlhpc.costs.outer_optimizer import outer_time
from lib_dlhpc.costs.wire_format import SCALE_BYTES, cast_time, is_scaled, on_wire, search_time
from lib_dlhpc.gc_pause import gc_paused
from lib_dlhpc.prediction.breakdown import TERMS, Breakdown
from lib_dlhpc.prediction.communication import overlap
from lib_dlhpc.prediction.elementwise import elementwise, holds_arrays
from lib_dlhpc.prediction.memory import device_ledger
from lib_dlhpc.prediction.split_step import split_step
from lib_dlhpc.program import BoundShares
from lib_dlhpc.schedules.choice import cheapest
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.given import check_given
from lib_dlhpc.spec.strategy import AUTO


def predict(experiment: Experiment) -> Breakdown:
    """Predict one training step and the whole run in closed form.

    Fields of the experiment may be arrays: everything broadcasts, scalars give scalars. Split networks
    (split_step.py) are predicted element by element. Raises SpecError where the device lacks the
    precision, or the network does not allow the split.
    """
    check_given(experiment)
    return breakdown(experiment, compute_scale(experiment))


def breakdown(experiment: Experiment, scale: Any) -> Breakdown:
    """Predict with the roofline's compute time multiplied by `scale` (see compute_scale)."""
    check_precision(experiment)
    if experiment.strategy.is_split:
        return _split(experiment, scale)
    if experiment.compressed and (holds_arrays(experiment) or np.ndim(scale)):
        return elementwise(breakdown, experiment, scale)
    strategy = experiment.strategy
    work = device_work(experiment, scale)
    update = scale * roofline.update_time(
        experiment.model, experiment.machine.device, applied_rule(experiment)
    )
    follow = _on_servers if strategy.update == "asynchronous" else _on_devices
    update, waiting, cost, exposed, load = follow(experiment, work, update)
    training = work.forward + work.backward + update + waiting + exposed
    fetch, every = input_time(experiment), strategy.local_steps
    stall = input_stall(fetch, training - exposed, exposed, every)
    step = training + stall
    served = update * (strategy.update == "asynchronous")
    return of_a_run(
        step,
        served,
        work.mixes,
        experiment=experiment,
        compute_scale=scale,
        forward=work.forward,
        backward=work.backward,
        update=update,
        straggler_wait=waiting,
        communication=cost,
        exposed_communication=exposed,
        input_time=fetch,
        input_stall=stall,
        memory=device_ledger.ledger(experiment),
        server_load=load * training,
        messages={"data": cost},
        exposed={"data": exposed},
        warm_up=_warm_up(experiment, scale),
    )


def _warm_up(experiment: Experiment, scale: Any) -> float:
    """Return the seconds by which the steps of a run whose sparsity is still rising are longer than the others."""
    epochs, training = experiment.run.epochs, experiment.training
    if not training.sparsity or not training.sparsity_warm_up:
        return 0.0
    last = min(float(training.sparsity_warm_up), float(epochs))
    still = replace(training, sparsity_warm_up=0.0)
    usual = breakdown(replace(experiment, training=still), scale)
    longer = 0.0
    for epoch in range(ceil(last)):
        now = replace(still, sparsity=1 - density(training, epoch))
        step = breakdown(replace(experiment, training=now), scale).step_time
        longer += min(last - epoch, 1.0) * float(step - usual.step_time)
    return longer * float(usual.steps / epochs)


def of_a_run(
    step: Any, served: Any, mixes: tuple[BoundShares, BoundShares], **known: Any
) -> Breakdown:
    """Return the Breakdown of a step of `step` s, with checkpoints, energy and startup.

    served: s that servers compute for each device; mixes: what limits forward and backward.
    """
    experiment, run = known["experiment"], known["experiment"].run
    # A checkpoint is written between two steps: one a step at most.
    apart = np.maximum(run.checkpoint_interval, step)
    interval = np.where(np.equal(run.checkpoint_interval, 0), np.inf, apart)[()]
    saving = step * checkpoints.saving(experiment).standstill(interval) / interval
    known["server_load"] = known.get("server_load", 0.0) / (step + saving)
    known["checkpoint"] = saving
    watts = energy.device_watts(experiment, mixes)
    seconds = {term: known.get(name, 0.0) for term, name in TERMS.items()}
    return Breakdown(
        **known,
        step_time=step + saving,
        start_time=start_time(experiment),
        energy=energy.step_energy(experiment, seconds, watts, served),
    )


@gc_paused()
def _split(experiment: Experiment, scale: Any) -> Breakdown:
    """Predict a split network; arrays element by element."""
    from lib_dlhpc.costs.offload import offload_link  # whole networks need neither of these two
    from lib_dlhpc.prediction.memory import rank_memory

    if holds_arrays(experiment) or np.ndim(scale):
        return elementwise(breakdown, experiment, scale)
    step = split_step(experiment, scale)
    exposed = sum(step.exposed.values())
    fetch = input_time(experiment)
    stall = float(input_stall(float(fetch), step.total - exposed, exposed))
    fullest = rank_memory.peak(experiment)
    offloads = experiment.strategy.offload != "none"
    cost = Cost(0.0, 0.0, 0.0)
    for price in step.messages.values():
        cost += price
    return of_a_run(
        step.total + stall,
        0.0,
        step.mixes,
        experiment=experiment,
        compute_scale=scale,
        forward=step.forward,
        backward=step.backward,
        update=step.update,
        straggler_wait=step.waiting,
        communication=cost,
        exposed_communication=exposed,
        input_time=fetch,
        input_stall=stall,
        memory=fullest.terms,
        offloaded=max(m.offloaded for m in rank_memory.moments(experiment)) if offloads else 0.0,
        offload_capacity=offload_link(experiment).room if offloads else np.inf,
        pipeline_bubble=step.bubble,
        recomputation=step.recomputation,
        messages=step.messages,
        exposed=step.exposed,
    )


def compute_scale(experiment: Experiment) -> Any:
    """Return measured over roofline compute time: given in [calibration], or from its rate; else 1.0.

    A rate of one device is that of the unsplit network. A rate of several devices is that of the same
    split, with any number of replicas. Raises SpecError where no compute time gives the rate.
    """
    special = experiment.strategy.is_split or experiment.compressed
    if special and holds_arrays(experiment):
        return elementwise(compute_scale, experiment)
    if not experiment.strategy.is_split:
        return calibration.compute_scale(experiment, bucket_times)
    return split_calibration.compute_scale(
        experiment,
        lambda small: calibration.compute_scale(small, bucket_times),
        lambda small, scale: split_step(small, scale).total,
    )


def bucket_times(experiment: Experiment, work: DeviceWork) -> Any:
    """Return the communication time of each bucket in s, shape (..., buckets); compressed gradients are one."""
    if experiment.compressed:
        return np.array([split_step(experiment, 1.0).messages["data"].total])
    return _buckets(experiment, work).total


def _buckets(experiment: Experiment, work: DeviceWork) -> Cost:
    """Return the cost of each bucket, casts and outer update included, shape (..., buckets)."""
    strategy, net = experiment.strategy, network_of(experiment)
    sent = on_wire(strategy, work.sizes)
    cost = cheapest("allreduce", sent, net, strategy.allreduce).times(work.sizes > 0)
    if is_scaled(strategy):
        cost += cheapest("allreduce", SCALE_BYTES, net, AUTO).times(work.sizes > 0)
    casts = 2 * cast_time(experiment, work.sizes) + search_time(experiment, work.sizes)
    casts = casts * np.greater(last_axis(experiment.devices), 1)
    # Which bucket has the outer update makes no difference: local updates overlap nothing.
    outer = last_axis(outer_time(experiment)) * (np.arange(np.shape(work.sizes)[-1]) == 0)
    return cost._replace(bandwidth=cost.bandwidth + casts + outer)


def _on_devices(
    experiment: Experiment, work: DeviceWork, update: Any
) -> tuple[Any, Any, Cost, Any, Any]:
    """Return update, wait, cost and exposed part of the exchange, server load: every device updates.

    Local updates are averaged once in local_steps steps, after backward and update (Lin et al. 2020,
    "Don't use large mini-batches, use local SGD"): the cost is amortized over the steps, all of it exposed.
    """
    strategy = experiment.strategy
    every = strategy.local_steps
    slowest = stragglers.slowest(experiment.devices, experiment.machine.jitter, every)
    busy = work.forward + work.backward + update
    cost, exposed = _exchange(experiment, work, slowest)
    cost = Cost(*(term / every for term in cost))
    return update, stragglers.wait(busy, slowest), cost, exposed / every, 0.0


def _on_servers(
    experiment: Experiment, work: DeviceWork, update: Any
) -> tuple[Any, Any, Cost, Any, Any]:
    """Return the same for asynchronous updates: servers update; devices wait only at the staleness bound."""
    from lib_dlhpc.prediction.communication import asynchronous  # no other update needs it

    priced = asynchronous.service(experiment, update)
    jitter, ahead = experiment.machine.jitter, experiment.strategy.staleness
    busy = work.forward + work.backward
    own = busy + priced.update + priced.transfer.total
    waiting = stragglers.bounded_wait(busy, own, experiment.devices, jitter, ahead)
    queue = priced.waiting(own + waiting, experiment.devices)
    latency, bandwidth, reduction = priced.transfer
    cost = Cost(latency, bandwidth + queue, reduction)
    load = experiment.devices * priced.station / (own + waiting + queue)
    return priced.update, waiting, cost, cost.total, load


def _exchange(experiment: Experiment, work: DeviceWork, slowest: Any) -> tuple[Cost, Any]:
    """Return the cost of all buckets by cause, and its exposed part."""
    if experiment.compressed:
        priced = split_step(experiment, 1.0)
        return priced.messages["data"], priced.exposed["data"]
    terms = _buckets(experiment, work)
    total = Cost(*(term.sum(axis=-1) for term in terms))
    if not experiment.overlaps:
        return total, total.total
    return total, overlap.exposed_time(
        work.ready * last_axis(slowest), terms.total, work.backward * slowest
    )
