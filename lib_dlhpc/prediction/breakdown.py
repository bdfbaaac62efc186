"""predict(experiment): time of a step by cause, memory, cost of the run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from lib_dlhpc.costs import calibration, checkpoints, compute, length, split_calibration, stragglers
from lib_dlhpc.costs.input import input_time, start_time
from lib_dlhpc.costs.network import Cost, last_axis, network_of
from lib_dlhpc.costs.offload import offload_link
from lib_dlhpc.costs.work import Work, check_precision, device_work
from lib_dlhpc.prediction import asynchronous, energy, hybrid, ledger, memory, overlap
from lib_dlhpc.prediction.elementwise import elementwise, holds_arrays
from lib_dlhpc.prediction.offload import Need
from lib_dlhpc.results import Columns, Result, Summary
from lib_dlhpc.schedules.choice import cheapest
from lib_dlhpc.spec.experiment import Experiment

if TYPE_CHECKING:
    import altair as alt

    from lib_dlhpc.prediction.resilience import Resilience


# The terms of a step and their fields below.
TERMS = {
    "forward": "forward",
    "backward": "backward",
    "update": "update",
    "waiting for the slowest": "straggler_wait",
    "exposed communication": "exposed_communication",
    "pipeline bubble": "pipeline_bubble",
    "input stall": "input_stall",
    "checkpoint": "checkpoint",
}


@dataclass(frozen=True, repr=False)
class Breakdown(Result):
    """Predicted step and run. Seconds, bytes, joules; every value may be an array.

    A step is one update of every device, also with asynchronous updates.
    """

    experiment: Experiment
    compute_scale: Any  # measured over roofline compute time; 1 without calibration
    forward: Any
    backward: Any
    update: Any
    straggler_wait: Any  # for the slowest device
    communication: (
        Cost  # of a step, hidden and exposed, by cause; includes the queue for the servers
    )
    exposed_communication: Any
    input_time: Any
    input_stall: Any
    checkpoint: Any  # amortized over the steps between two checkpoints
    step_time: Any
    start_time: Any
    memory: dict[str, Any]
    energy: dict[str, Any]  # of one step
    single_device: Any  # s in which one device computes the batch of a replica, the network unsplit

    pipeline_bubble: Any = 0.0  # data parallelism has none
    recomputation: Any = 0.0  # the part of backward that recomputes activations
    messages: Mapping[str, Cost] = field(default_factory=dict)  # communication by purpose
    exposed: Mapping[str, Any] = field(default_factory=dict)  # exposed communication by purpose
    offloaded: Any = 0.0  # B that the fullest rank offloads
    offload_capacity: Any = np.inf  # B that a device may offload
    server_load: Any = 0.0  # utilization of the servers' slowest station

    @property
    def compute(self) -> Any:
        """Seconds of computation in a step: forward, backward and update."""
        return self.forward + self.backward + self.update

    @property
    def terms(self) -> dict[str, Any]:
        """The seconds of a step by cause; their sum is step_time.

        Floats, or all of them arrays of one shape where step_time is an array.
        """
        terms = {name: getattr(self, field) for name, field in TERMS.items()}
        if np.ndim(self.step_time) == 0:
            return {name: float(seconds) for name, seconds in terms.items()}
        return dict(zip(terms, np.broadcast_arrays(*terms.values()), strict=True))

    @property
    def step_time_bounds(self) -> tuple[Any, Any]:
        """Lower and upper bound of step_time: full overlap, and no overlap.

        Messages between stages are in flight concurrently, so their sum is no bound.
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
        """Seconds of communication in a step without overlap.

        For each kind all messages, or the wait of all ranks that a late message delays, if longer.
        """
        return sum(
            np.maximum(cost.total, self.exposed[kind]) for kind, cost in self.messages.items()
        )

    @property
    def hidden(self) -> Any:
        """Fraction of the communication that overlaps computation; 1 without communication."""
        exposed = sum(
            np.minimum(cost.total, self.exposed[kind]) for kind, cost in self.messages.items()
        )
        total = self.communication.total
        nonzero = np.where(np.greater(total, 0), total, 1.0)
        return np.clip(1 - exposed / nonzero, 0.0, 1.0)[()]

    @property
    def throughput(self) -> Any:
        """Samples per second of the whole run, checkpoints included."""
        return self.experiment.global_batch / self.step_time

    @property
    def efficiency(self) -> Any:
        """Throughput over that of as many single devices, each with the unsplit network.

        Without a split, the fraction of a step in which devices compute.
        """
        return self.single_device / (self.experiment.strategy.replica * self.step_time)

    @property
    def speedup(self) -> Any:
        """Throughput over that of one device with the unsplit network and no waiting.

        Its batch is that of a replica, even if that does not fit in memory.
        """
        return self.efficiency * self.experiment.devices

    @property
    def staleness(self) -> Any:
        """Expected number of updates between reading the weights and applying their gradient."""
        others = self.experiment.devices - 1
        return others if self.experiment.strategy.update == "asynchronous" else 0 * others

    @property
    def memory_total(self) -> Any:
        """Peak bytes on one device."""
        return sum(self.memory.values())

    @property
    def fits(self) -> Any:
        """Whether device, server and offload target have enough memory."""
        needed = np.maximum(self.memory_total, memory.server_bytes(self.experiment))
        on_device = needed <= self.experiment.machine.device.memory
        return (on_device & np.less_equal(self.offloaded, self.offload_capacity))[()]

    @property
    def offloading(self) -> Need:
        """Required and available offload bandwidth (scalar experiments that offload)."""
        return hybrid.offloading(self.experiment, self.compute_scale)

    @property
    def moments(self) -> tuple[ledger.Moment, ...]:
        """Memory of each pipeline rank at the moments that may be its peak (scalar experiments)."""
        return ledger.moments(self.experiment)

    @property
    def steps(self) -> Any:
        """Optimizer steps of the run; the last one of an epoch may have a smaller batch."""
        return length.steps(self.experiment)

    @property
    def time_to_train(self) -> Any:
        """Seconds of the run, startup included."""
        return self.start_time + self.steps * self.step_time

    @property
    def energy_to_train(self) -> Any:
        """Joules of the whole run, startup at idle power included."""
        machine = self.experiment.machine
        servers = self.experiment.servers
        idle = (self.experiment.devices + servers) * machine.device.idle_power
        idle = idle + (self.experiment.strategy.nodes + servers) * machine.node_power
        return self.steps * sum(self.energy.values()) + self.start_time * idle * machine.pue

    @property
    def device_hours(self) -> Any:
        """Cost of the run in device-hours, those of the servers included."""
        devices = self.experiment.devices + self.experiment.servers
        return devices * self.time_to_train / 3600

    @property
    def resilience(self) -> "Resilience":
        """The run with failures: goodput, expected time, best checkpoint interval."""
        from lib_dlhpc.prediction.resilience import resilience

        return resilience(self)

    @property
    def walls(self) -> list[str]:
        """One sentence for each limit that the run exceeds, and by how much (scalar experiments)."""
        from lib_dlhpc.prediction.walls import walls_hit

        return walls_hit(self)

    def summary(self) -> Summary:
        """Return the most important numbers and the terms, in words."""
        from lib_dlhpc.prediction.summary import summary

        return summary(self)

    def to_columns(self) -> Columns:
        """Return a row for each term: fields of the experiment, `term`, `seconds`."""
        from lib_dlhpc.prediction.summary import columns

        return columns(self)

    def plot(self) -> "alt.Chart":
        """Return the terms as a stacked bar; arrays as a bar for each element."""
        from lib_dlhpc.prediction.summary import bars
        from lib_dlhpc.results.charts import stacked_bars

        return stacked_bars(bars(self), "configuration", self.summary().title)


def predict(experiment: Experiment) -> Breakdown:
    """Predict one training step and the whole run in closed form.

    Fields of the experiment may be arrays: everything broadcasts, scalars give scalars. Split networks
    (hybrid.py) are predicted element by element. Raises SpecError where the device lacks the
    precision, or the network does not allow the split.
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
    # In a step without exchange; one in `every` steps has all of it.
    late = fetch - (training - exposed)
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
        single_device=work.forward + work.backward + update,
        messages={"data": cost},
        exposed={"data": exposed},
    )


def _of_a_run(step: Any, served: Any, busy: Any, **known: Any) -> Breakdown:
    """Return the Breakdown of a step of `step` s, with checkpoints, energy and startup.

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
    """Predict a split network; arrays element by element."""
    if holds_arrays(experiment) or np.ndim(scale):
        return elementwise(breakdown, experiment, scale)
    step = hybrid.split_step(experiment, scale)
    exposed = sum(step.exposed.values())
    fetch = input_time(experiment)
    stall = max(float(fetch) - (step.total - exposed), 0.0)
    stall = max(stall - exposed, 0.0)
    fullest = ledger.peak(experiment)
    offloads = experiment.strategy.offload != "none"
    cost = Cost(0.0, 0.0, 0.0)
    for price in step.messages.values():
        cost += price
    unsplit = device_work(experiment, scale)
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
        offloaded=max(m.offloaded for m in ledger.moments(experiment)) if offloads else 0.0,
        offload_capacity=offload_link(experiment).room if offloads else np.inf,
        pipeline_bubble=step.bubble,
        recomputation=step.recomputation,
        single_device=float(unsplit.forward + unsplit.backward + scale * update),
        messages=step.messages,
        exposed=step.exposed,
    )


def compute_scale(experiment: Experiment) -> Any:
    """Return measured over roofline compute time: given in [calibration], or from its rate; else 1.0.

    A rate of one device is that of the unsplit network. A rate of several devices is that of the same
    split, with any number of replicas. Raises SpecError where no compute time gives the rate.
    """
    if not experiment.strategy.is_split:
        return calibration.compute_scale(experiment, _bucket_costs)
    if holds_arrays(experiment):
        return elementwise(compute_scale, experiment)
    return split_calibration.compute_scale(
        experiment,
        lambda small: calibration.compute_scale(small, _bucket_costs),
        lambda small, scale: hybrid.split_step(small, scale).total,
    )


def _bucket_costs(experiment: Experiment, work: Work) -> Any:
    """Return the communication time of each bucket in s, shape (..., buckets)."""
    return _buckets(experiment, work).total


def _buckets(experiment: Experiment, work: Work) -> Cost:
    """Return the cost of each bucket, shape (..., buckets)."""
    name, net = experiment.strategy.allreduce, network_of(experiment)
    return cheapest("allreduce", work.sizes, net, name).times(work.sizes > 0)


def _on_devices(experiment: Experiment, work: Work, update: Any) -> tuple[Any, Any, Cost, Any, Any]:
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
    return update, busy * (slowest - 1), cost, exposed / every, 0.0


def _on_servers(experiment: Experiment, work: Work, update: Any) -> tuple[Any, Any, Cost, Any, Any]:
    """Return the same for asynchronous updates: servers update; devices wait only at the staleness bound."""
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
    """Return the cost of all buckets by cause, and its exposed part."""
    terms = _buckets(experiment, work)
    total = Cost(*(term.sum(axis=-1) for term in terms))
    if not experiment.overlaps:
        return total, total.total
    return total, overlap.exposed_time(
        work.ready * last_axis(slowest), terms.total, work.backward * slowest
    )
