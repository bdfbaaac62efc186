"""predict(experiment): where the time of a step goes, what it holds in memory, what the run costs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from lib_dlhpc.costs import calibration, checkpoints, compute, length, split_calibration, stragglers
from lib_dlhpc.costs.input import input_time, start_time
from lib_dlhpc.costs.network import Cost, last_axis, network_of
from lib_dlhpc.costs.offload import way_out
from lib_dlhpc.costs.work import Work, check_precision, device_work
from lib_dlhpc.prediction import asynchronous, energy, hybrid, ledger, memory, overlap
from lib_dlhpc.prediction.each import each, holds_arrays
from lib_dlhpc.prediction.offload import Need
from lib_dlhpc.schedules.choice import cheapest
from lib_dlhpc.spec.experiment import Experiment

if TYPE_CHECKING:
    from lib_dlhpc.prediction.resilience import Resilience


@dataclass(frozen=True)
class Breakdown:
    """One step and one run, predicted. Seconds, bytes, joules; every value may be an array.

    A step is one of every device: with asynchronous updates, the time in which each makes one.
    """

    experiment: Experiment
    compute_scale: Any  # measured over roofline compute time; 1 without calibration
    forward: Any
    backward: Any
    update: Any
    straggler_wait: Any  # for the slowest of all devices
    communication: Cost  # all of a step, hidden or not, by cause; also the queue for the servers
    exposed_communication: Any
    input_time: Any
    input_stall: Any
    checkpoint: Any  # amortised over the steps between two checkpoints
    step_time: Any
    start_time: Any
    memory: dict[str, Any]
    energy: dict[str, Any]  # of one step
    alone: Any  # s in which one device computes the batch of a replica, the network in one piece

    pipeline_bubble: Any = 0.0  # data parallelism has none
    made_again: Any = 0.0  # the part of backward in which activations are made again
    messages: Mapping[str, Cost] = field(default_factory=dict)  # communication by what it is for
    exposed: Mapping[str, Any] = field(default_factory=dict)  # exposed communication likewise
    offloaded: Any = 0.0  # B of the fullest rank that wait outside of its device
    room_elsewhere: Any = np.inf  # B that a device has there
    server_load: Any = 0.0  # share of the time in which the slowest station of the servers is busy

    @property
    def compute(self) -> Any:
        """Seconds of arithmetic in a step: forward, backward and update."""
        return self.forward + self.backward + self.update

    @property
    def terms(self) -> dict[str, Any]:
        """The seconds of a step by cause; they add up to step_time."""
        return {
            "forward": self.forward,
            "backward": self.backward,
            "update": self.update,
            "waiting for the slowest": self.straggler_wait,
            "exposed communication": self.exposed_communication,
            "pipeline bubble": self.pipeline_bubble,
            "input stall": self.input_stall,
            "checkpoint": self.checkpoint,
        }

    @property
    def step_time_bounds(self) -> tuple[Any, Any]:
        """Lower and upper bound of step_time: everything hidden that can be, and nothing hidden.

        Messages between stages are on their way beside each other, so that their sum bounds nothing.
        """
        slowest = self.compute + self.straggler_wait + self.pipeline_bubble
        busy = slowest
        for kind, cost in self.messages.items():
            if kind != "pipeline":
                busy = np.maximum(busy, cost.total)
        return (
            np.maximum(busy, self.input_time) + self.checkpoint,
            slowest + self.unhidden + self.input_time + self.checkpoint,
        )

    @property
    def unhidden(self) -> Any:
        """Seconds of communication in a step that hides none of it.

        Kind by kind all of its messages, or, where a late one holds up several ranks, what they wait.
        """
        return sum(
            np.maximum(cost.total, self.exposed[kind]) for kind, cost in self.messages.items()
        )

    @property
    def hidden(self) -> Any:
        """Fraction of the communication that goes on behind computation; 1 without communication."""
        shown = sum(
            np.minimum(cost.total, self.exposed[kind]) for kind, cost in self.messages.items()
        )
        total = self.communication.total
        some = np.where(np.greater(total, 0), total, 1.0)
        return np.clip(1 - shown / some, 0.0, 1.0)[()]

    @property
    def throughput(self) -> Any:
        """Samples per second of the whole run, checkpoints included."""
        return self.experiment.global_batch / self.step_time

    @property
    def efficiency(self) -> Any:
        """Throughput over that of as many lone devices, each with the whole network.

        Without a split it is the fraction of a step in which the devices compute.
        """
        return self.alone / (self.experiment.strategy.replica * self.step_time)

    @property
    def speedup(self) -> Any:
        """Throughput over that of one device with the whole network and nothing to wait for.

        Its batch is that of a replica, whether there is room for it or not.
        """
        return self.efficiency * self.experiment.devices

    @property
    def staleness(self) -> Any:
        """Expected updates that the weights have missed when a gradient made with them is applied."""
        others = self.experiment.devices - 1
        return others if self.experiment.strategy.update == "asynchronous" else 0 * others

    @property
    def memory_total(self) -> Any:
        """Peak bytes on one device."""
        return sum(self.memory.values())

    @property
    def fits(self) -> Any:
        """Whether device, server and the place of what is offloaded have room for what they hold."""
        needed = np.maximum(self.memory_total, memory.server_bytes(self.experiment))
        here = needed <= self.experiment.machine.device.memory
        return (here & np.less_equal(self.offloaded, self.room_elsewhere))[()]

    @property
    def offloading(self) -> Need:
        """The bandwidth that offloading asks for and what there is (scalar experiments that offload)."""
        return hybrid.offloading(self.experiment, self.compute_scale)

    @property
    def moments(self) -> tuple[ledger.Moment, ...]:
        """What each rank of a pipeline holds at the moments that may be its peak (scalar experiments)."""
        return ledger.moments(self.experiment)

    @property
    def steps(self) -> Any:
        """Optimiser steps of the run; the last one of an epoch may be short."""
        return length.steps(self.experiment)

    @property
    def time_to_train(self) -> Any:
        """Seconds from start to end of the run."""
        return self.start_time + self.steps * self.step_time

    @property
    def energy_to_train(self) -> Any:
        """Joules of the whole run, the wait for the first step at idle power included."""
        machine = self.experiment.machine
        servers = self.experiment.servers
        waiting = (self.experiment.devices + servers) * machine.device.idle_power
        waiting = waiting + (self.experiment.strategy.nodes + servers) * machine.node_power
        return self.steps * sum(self.energy.values()) + self.start_time * waiting * machine.pue

    @property
    def device_hours(self) -> Any:
        """Cost of the run in hours of one device, those of the servers included."""
        devices = self.experiment.devices + self.experiment.servers
        return devices * self.time_to_train / 3600

    @property
    def resilience(self) -> "Resilience":
        """What failures make of the run: goodput, expected time, the interval to choose."""
        from lib_dlhpc.prediction.resilience import resilience

        return resilience(self)

    @property
    def walls(self) -> list[str]:
        """One sentence for each limit that the run breaks, with by how much (scalar experiments)."""
        from lib_dlhpc.prediction.walls import walls_hit

        return walls_hit(self)


def predict(experiment: Experiment) -> Breakdown:
    """Predict one training step and the whole run in closed form.

    Fields of the experiment may be arrays: everything broadcasts, scalars give scalars. Networks that are
    split (hybrid.py) are predicted one after another. Raises SpecError where the device lacks the
    precision, or the network cannot be split so.
    """
    return breakdown(experiment, compute_scale(experiment))


def breakdown(experiment: Experiment, scale: Any) -> Breakdown:
    """Predict with the roofline's compute time multiplied by `scale` (see compute_scale)."""
    check_precision(experiment)
    if experiment.strategy.is_split:
        return _split(experiment, scale)
    strategy = experiment.strategy
    work = device_work(experiment, scale)
    update = scale * compute.update_time(
        experiment.model, experiment.machine.device, strategy.optimizer
    )
    follow = _on_servers if strategy.update == "asynchronous" else _on_devices
    update, waiting, cost, exposed, load = follow(experiment, work, update)
    training = work.forward + work.backward + update + waiting + exposed
    fetch, every = input_time(experiment), strategy.local_steps
    late = fetch - (
        training - exposed
    )  # in a step without exchange; one in `every` steps has all of it
    stall = (every - 1) * np.maximum(late, 0.0) + np.maximum(late - every * exposed, 0.0)
    stall = stall / every
    step = training + stall
    served = update * (strategy.update == "asynchronous")
    busy = work.forward + work.backward + update - served
    return _of_a_run(
        step,
        served,
        busy,
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
        memory=memory.ledger(experiment),
        server_load=load * training,
        alone=work.forward + work.backward + update,
        messages={"data": cost},
        exposed={"data": exposed},
    )


def _of_a_run(step: Any, served: Any, busy: Any, **known: Any) -> Breakdown:
    """Add checkpoints, energy and the start to what is known of a step of `step` s.

    served: s that servers compute for each device; busy: s that a device computes.
    """
    experiment, run = known["experiment"], known["experiment"].run
    # A checkpoint is written between two steps: one a step at most.
    apart = np.maximum(run.checkpoint_interval, step)
    interval = np.where(np.equal(run.checkpoint_interval, 0), np.inf, apart)[()]
    saving = step * checkpoints.saving(experiment).standstill(interval) / interval
    known["server_load"] = known.get("server_load", 0.0) / (step + saving)
    exposed = known["exposed_communication"]
    return Breakdown(
        **known,
        checkpoint=saving,
        step_time=step + saving,
        start_time=start_time(experiment),
        energy=energy.step_energy(experiment, busy, exposed, step + saving, served),
    )


def _split(experiment: Experiment, scale: Any) -> Breakdown:
    """Predict a network that is split; arrays one by one."""
    if holds_arrays(experiment) or np.ndim(scale):
        return each(breakdown, experiment, scale)
    step = hybrid.split_step(experiment, scale)
    exposed = sum(step.exposed.values())
    fetch = input_time(experiment)
    stall = max(float(fetch) - (step.total - exposed), 0.0)
    stall = max(stall - exposed, 0.0)
    fullest = ledger.peak(experiment)
    away = experiment.strategy.offload != "none"
    cost = Cost(0.0, 0.0, 0.0)
    for price in step.messages.values():
        cost += price
    whole = device_work(experiment, scale)
    update = compute.update_time(
        experiment.model, experiment.machine.device, experiment.strategy.optimizer
    )
    return _of_a_run(
        step.total + stall,
        0.0,
        step.forward + step.backward + step.update,
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
        offloaded=max(moment.elsewhere for moment in ledger.moments(experiment)) if away else 0.0,
        room_elsewhere=way_out(experiment).room if away else np.inf,
        pipeline_bubble=step.bubble,
        made_again=step.again,
        alone=float(whole.forward + whole.backward + scale * update),
        messages=step.messages,
        exposed=step.exposed,
    )


def compute_scale(experiment: Experiment) -> Any:
    """Return measured over roofline compute time: as [calibration] has it, or from its rate; else 1.0.

    A rate of one device is one of the whole network on it. A rate of several is one of the same split,
    with fewer or more replicas. Raises SpecError where the rate cannot be.
    """
    if not experiment.strategy.is_split:
        return calibration.compute_scale(experiment, _bucket_costs)
    if holds_arrays(experiment):
        return each(compute_scale, experiment)
    return split_calibration.compute_scale(
        experiment,
        lambda small: calibration.compute_scale(small, _bucket_costs),
        lambda small, scale: hybrid.split_step(small, scale).total,
    )


def _bucket_costs(experiment: Experiment, work: Work) -> Any:
    """Return the seconds on the network of each bucket, shape (..., buckets)."""
    return _buckets(experiment, work).total


def _buckets(experiment: Experiment, work: Work) -> Cost:
    """Return the cost of each bucket, shape (..., buckets)."""
    name, net = experiment.strategy.allreduce, network_of(experiment)
    return cheapest("allreduce", work.sizes, net, name).times(work.sizes > 0)


def _on_devices(experiment: Experiment, work: Work, update: Any) -> tuple[Any, Any, Cost, Any, Any]:
    """Return update, waiting, cost and exposed part of the exchange, load of servers: every device updates.

    Local updates are averaged once in local_steps steps, after backward and update (Lin et al. 2020,
    "Don't use large mini-batches, use local SGD"): a step has its share of that, none of it hidden.
    """
    strategy = experiment.strategy
    every = strategy.local_steps
    slowest = stragglers.slowest(experiment.devices, experiment.machine.jitter, every)
    busy = work.forward + work.backward + update
    cost, exposed = _exchange(experiment, work, slowest)
    cost = Cost(*(term / every for term in cost))
    return update, busy * (slowest - 1), cost, exposed / every, 0.0


def _on_servers(experiment: Experiment, work: Work, update: Any) -> tuple[Any, Any, Cost, Any, Any]:
    """Return the same for asynchronous updates: the servers update, and few wait for the slowest."""
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


def _exchange(experiment: Experiment, work: Work, slowest: Any) -> tuple[Cost, Any]:
    """Return the cost of all buckets by cause, and the part of it that backward does not hide."""
    terms = _buckets(experiment, work)
    total = Cost(*(term.sum(axis=-1) for term in terms))
    if not experiment.overlaps:
        return total, total.total
    return total, overlap.exposed_time(
        work.ready * last_axis(slowest), terms.total, work.backward * slowest
    )
