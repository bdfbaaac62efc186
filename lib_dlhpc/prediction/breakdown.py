"""Breakdown: the predicted time of a step by cause, memory, and cost of the run."""

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from lib_dlhpc.costs import energy, step_count
from lib_dlhpc.costs.device_work import device_work
from lib_dlhpc.costs.network import Cost
from lib_dlhpc.costs.roofline import peak_rate, update_time
from lib_dlhpc.prediction.elementwise import elementwise
from lib_dlhpc.prediction.memory.device_ledger import server_bytes
from lib_dlhpc.records import dataclass
from lib_dlhpc.results import Columns, Result, Summary
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import HOUR, KWH

if TYPE_CHECKING:
    import altair as alt

    from lib_dlhpc.prediction.accuracy import ToAccuracy
    from lib_dlhpc.prediction.failures.resilience import Resilience
    from lib_dlhpc.prediction.memory.offload import OffloadNeed
    from lib_dlhpc.prediction.memory.rank_memory import Moment


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


def _unsplit(experiment: Experiment, scale: Any) -> float:
    """Return the seconds of one device that has the whole network of a scalar experiment."""
    work, optimizer = device_work(experiment, scale), experiment.strategy.optimizer
    update = scale * update_time(experiment.model, experiment.machine.device, optimizer)
    return float(work.forward + work.backward + update)


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
    # Of a step, hidden and exposed, by term; includes the queue at parameter servers.
    communication: Cost
    exposed_communication: Any
    input_time: Any
    input_stall: Any
    checkpoint: Any  # amortized over the steps between two checkpoints
    step_time: Any
    start_time: Any
    memory: dict[str, Any]
    energy: dict[str, Any]  # of one step

    pipeline_bubble: Any = 0.0  # data parallelism has none
    recomputation: Any = 0.0  # the part of backward that recomputes activations
    messages: Mapping[str, Cost] = field(default_factory=dict)  # communication by purpose
    exposed: Mapping[str, Any] = field(default_factory=dict)  # exposed communication by purpose
    offloaded: Any = 0.0  # B that the fullest rank offloads
    offload_capacity: Any = np.inf  # B that a device may offload
    warm_up: Any = 0.0  # s of the run while more gradients are sent than in this step
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
    def tokens(self) -> Any:
        """Tokens per second of the whole run, checkpoints included; 0 where samples are not tokens."""
        model = self.experiment.model
        return self.throughput * (model.input_shape[0] if model.reads_tokens else 0)

    @property
    def model_rate(self) -> Any:
        """FLOP/s of a device for forward and backward passes; recomputation is overhead, and does not count."""
        return self.throughput * self.experiment.model.train_flop / self.experiment.devices

    @property
    def utilization(self) -> Any:
        """MFU: model_rate over the device's peak in the precision of the run.

        Source: Chowdhery et al. 2022, arXiv:2204.02311, section 4.1; FLOP are those of the layers, attention included.
        """
        device, precision = self.experiment.machine.device, self.experiment.strategy.precision
        return self.model_rate / peak_rate(device, precision)

    @cached_property
    def single_device(self) -> Any:
        """Seconds in which one device computes the batch of a replica, the network unsplit."""
        if not self.experiment.strategy.is_split:
            return self.compute
        return elementwise(_unsplit, self.experiment, self.compute_scale)[()]

    @property
    def efficiency(self) -> Any:
        """Throughput over that of the same number of single devices, each with the unsplit network.

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
        needed = np.maximum(self.memory_total, server_bytes(self.experiment))
        on_device = needed <= self.experiment.machine.device.memory
        return (on_device & np.less_equal(self.offloaded, self.offload_capacity))[()]

    @property
    def offloading(self) -> "OffloadNeed":
        """Required and available offload bandwidth (scalar experiments that offload)."""
        from lib_dlhpc.prediction.memory import rank_parts

        return rank_parts.offloading(self.experiment, self.compute_scale)

    @property
    def moments(self) -> tuple["Moment", ...]:
        """Memory of each pipeline rank at the moments that may be its peak (scalar experiments)."""
        from lib_dlhpc.prediction.memory import rank_memory

        return rank_memory.moments(self.experiment)

    @property
    def steps(self) -> Any:
        """Optimizer steps of the run; the last one of an epoch may have a smaller batch."""
        return step_count.steps(self.experiment)

    @property
    def time_to_train(self) -> Any:
        """Seconds of the run, startup included."""
        return self.start_time + self.steps * self.step_time + self.warm_up

    @property
    def energy_to_train(self) -> Any:
        """Joules of the whole run, startup at idle power included."""
        steps = self.steps + self.warm_up / self.step_time  # at the power of the others
        return steps * sum(self.energy.values()) + self.start_time * energy.idle_watts(
            self.experiment
        )

    @property
    def device_hours(self) -> Any:
        """Cost of the run in device-hours, including those of the servers."""
        devices = self.experiment.devices + self.experiment.servers
        return devices * self.time_to_train / HOUR

    @property
    def carbon(self) -> Any:
        """Kilograms of CO2 equivalent from the run's electricity; NaN where the grid is not known."""
        return energy.carbon(self.experiment, self.energy_to_train)

    @property
    def price(self) -> Any:
        """Price of the run in machine.currency: device-hours and electricity, as far as their prices are known."""
        machine = self.experiment.machine
        electricity = machine.electricity_price * self.energy_to_train / KWH
        return self.device_hours * machine.device_price + electricity

    @property
    def to_accuracy(self) -> "ToAccuracy":
        """Epochs, time and energy to run.target, each with its 90% interval, or why they are unknown."""
        from lib_dlhpc.prediction.accuracy import to_accuracy

        return to_accuracy(self)

    @property
    def resilience(self) -> "Resilience":
        """The run with failures: goodput, expected time, best checkpoint interval."""
        from lib_dlhpc.prediction.failures.resilience import resilience

        return resilience(self)

    @property
    def walls(self) -> list[str]:
        """One sentence for each limit that the run exceeds, and by how much (scalar experiments)."""
        from lib_dlhpc.prediction.limits.exceeded_limits import walls_hit

        return walls_hit(self)

    def summary(self) -> Summary:
        """Return the most important numbers and the terms, in words."""
        from lib_dlhpc.prediction.reports.summary import summary

        return summary(self)

    def to_columns(self) -> Columns:
        """Return a row for each term: fields of the experiment, `term`, `seconds`."""
        from lib_dlhpc.prediction.reports.summary import columns

        return columns(self)

    def plot(self) -> "alt.Chart":
        """Return the terms as a stacked bar; arrays as a bar for each element."""
        from lib_dlhpc.prediction.reports.summary import bars
        from lib_dlhpc.results.charts import stacked_bars

        return stacked_bars(bars(self), "configuration", self.summary().title)
