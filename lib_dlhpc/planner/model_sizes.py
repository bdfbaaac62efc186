"""Which model size and how many tokens give the least loss on N devices in T days? A scaling law, predicted rates.

Each size of a family of decoders is planned on the machine (search.py): its fastest layout that fits gives tokens/s
and W. So a budget of time or energy gives the tokens of each size, and a scaling law (convergence/loss_law.py) its
loss. A fixed utilization instead, such as 40%, would be the same for all sizes, and ignore memory.

Served tokens are taken from the same devices and budget, as forward passes at the rate of training: a third of a
trained token each. Generating tokens one by one is less efficient, so this is the least that serving costs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.convergence.loss_law import SERVE, TRAIN, LossLaw, law_of
from lib_dlhpc.costs.roofline import peak_rate
from lib_dlhpc.errors import SpecError
from lib_dlhpc.planner.search import plan
from lib_dlhpc.results import Columns, Result, Summary
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.units import WH
from lib_dlhpc.spec.units import format_quantity as show

if TYPE_CHECKING:
    import altair as alt

SEQUENCE, SEQUENCES, VOCABULARY = 4096, 512, 32000  # a batch of 2.1 M tokens
LAYERS = (8, 12, 16, 20, 24, 32, 40, 48, 56, 64, 80, 96)  # 0.17 to 175 billion parameters
WIDTH = 128  # hidden features per layer, and of each head
PREDICTIONS = 12  # layouts of a size at most; most are proved best after two
EQUAL = 1e-6  # times that differ by less are equal: where an exchange hides recomputation
CHOOSE: dict[str, tuple[Any, ...]] = {
    "tensor": (1, 2, 8),
    "pipeline": (1, 2, 4, 8),
    "spatial": (1,),
    "sequence_parallel": (True, False),
    "schedule": ("1f1b",),
    "chunks": (1,),
    "zero": (1, 3),
    "recompute": ("none", "full"),
    "microbatches": (1, 2, 4, 8, 16, 32),
}


class Size(NamedTuple):
    """A decoder on a machine: its fastest layout that fits; of equally fast ones that with the least energy.

    flop: of training on a token, from the layers; rate: tokens/s; watts: of all devices, hosts and cooling; peak:
    FLOP/s of all devices. Where nothing fits, rate is 0.
    """

    layers: int
    weights: int
    flop: float
    rate: float
    watts: float
    peak: float
    layout: str

    @property
    def utilization(self) -> float:
        """MFU: the FLOP of the layers over the peak."""
        return self.flop * self.rate / self.peak

    @property
    def uncounted(self) -> float:
        """FLOP of a token beyond 6 N, as a fraction of 6 N: attention, less the embedding table, a lookup."""
        return self.flop / (TRAIN * self.weights) - 1


def decoder(layers: int) -> dict[str, Any]:
    """Return the [model] of a Llama of `layers` layers, 128 features wide per layer, with heads of 128 features.

    12 h^2 weights per layer of h features, as in GPT: a gated feed-forward network of 8/3 h, rounded up to 256.
    """
    hidden = WIDTH * layers
    return {
        "family": "llama",
        "layers": layers,
        "hidden": hidden,
        "heads": layers,
        "feed_forward": -(-8 * hidden // 3 // 256) * 256,
        "sequence": SEQUENCE,
        "vocabulary": VOCABULARY,
    }


def sizes(
    machine: str | Mapping[str, Any],
    devices: int,
    layers: Sequence[int] = LAYERS,
    compute_scale: float = 1.0,
) -> tuple[Size, ...]:
    """Return the sizes of the family (`decoder`) on `devices` devices of a machine, each in its fastest layout.

    bf16, Adam, 512 sequences of 4,096 tokens a step. compute_scale: measured over roofline compute time, by default 1
    (prediction.compute_scale derives it from a measured rate). Raises SpecError for a number of devices that does not
    divide the batch, or fills no nodes.
    """
    probe = read_experiment({"model": decoder(LAYERS[0]), "dataset": "webtext", "machine": machine})
    node = int(probe.machine.devices_per_node)
    most = min(SEQUENCES, node * int(probe.machine.nodes))
    legal = [n for n in range(node, most + 1, node) if SEQUENCES % n == 0]
    if devices not in legal:
        named = ", ".join(map(str, legal)) or f"none, since its nodes have {node} devices"
        raise SpecError(
            f"devices = {devices}: legal are divisors of {SEQUENCES} that fill nodes: {named}."
        )
    strategy: dict[str, Any] = {
        "precision": "bf16",
        "optimizer": "adam",
        "batch": SEQUENCES // devices,
    }
    strategy |= {"nodes": devices // node}
    tables = {"dataset": "webtext", "machine": machine, "strategy": strategy}
    tables |= {"calibration": {"compute_scale": compute_scale}}
    return tuple(_size(read_experiment({**tables, "model": decoder(layer)})) for layer in layers)


def _size(run: Experiment) -> Size:
    model, devices = run.model, int(run.devices)
    flop = model.train_flop / SEQUENCE
    peak = devices * float(peak_rate(run.machine.device, run.strategy.precision))
    known = (int(model.options["layers"]), model.parameters, flop)
    try:
        ranked = plan(run, "time", choose=CHOOSE, most=PREDICTIONS, best=1).ranked
    except SpecError:
        return Size(*known, 0.0, np.nan, peak, "none of those tried fits")
    last = ranked[0].values["time"] * (1 + EQUAL)
    equal = (choice for choice in ranked if choice.values["time"] <= last)
    found = min(equal, key=lambda choice: choice.values["energy"])
    rate = SEQUENCE * SEQUENCES / found.values["step"]
    watts = found.values["energy"] / found.values["time"]
    return Size(*known, rate, watts, peak, found.words)


def guessed(family: Sequence[Size], utilization: float = 0.4) -> tuple[Size, ...]:
    """Return the same sizes, all at a fixed utilization, fitting or not; W of those that do not fit are not known.

    Raises SpecError outside of 0 to 1.
    """
    if not 0 < utilization <= 1:
        raise SpecError(f"utilization = {utilization:g}: legal: above 0, up to 1.")
    return tuple(
        each._replace(rate=utilization * each.peak / each.flop, layout="any") for each in family
    )


def trained(
    family: Sequence[Size],
    seconds: float = 0.0,
    joules: float = 0.0,
    served: float = 0.0,
    law: str = "besiroglu",
) -> "Trained":
    """Return what each size reaches within a budget: `seconds` on all devices, or `joules`.

    served: tokens that the budget has to serve, too. law: one of convergence.LAWS. Raises SpecError for both budgets or
    none, and where no size fits or trains on a single token.
    """
    if (seconds > 0) == (joules > 0):
        raise SpecError(f"seconds = {seconds:g}, joules = {joules:g}: legal: one of them above 0.")
    if joules and np.isnan([each.watts for each in family if each.rate]).any():
        raise SpecError("joules: W of sizes that do not fit are not known; legal: seconds.")
    if not 0 <= served < np.inf:
        raise SpecError(f"served = {served:g}: legal: 0 or more.")
    found = Trained(tuple(family), law_of(law), seconds, joules, served)
    if not np.isfinite(found.loss).any():
        raise SpecError("No size fits, or the budget does not cover the served tokens.")
    return found


@dataclass(frozen=True, repr=False)
class Trained(Result):
    """Sizes within a budget: their tokens, loss and energy; the loss is infinite where a size cannot be trained."""

    family: tuple[Size, ...]
    law: LossLaw
    seconds: float
    joules: float
    served: float

    @cached_property
    def time(self) -> NDArray[np.float64]:
        """Seconds of each size, serving included."""
        watts = np.array([each.watts for each in self.family])
        return np.full(len(watts), self.seconds) if self.seconds else self.joules / watts

    @cached_property
    def energy(self) -> NDArray[np.float64]:
        """J of each size, hosts and cooling included."""
        return self.time * np.array([each.watts for each in self.family])

    @cached_property
    def tokens(self) -> NDArray[np.float64]:
        """Tokens that each size trains on; 0: none."""
        rate = np.array([each.rate for each in self.family])
        left = np.nan_to_num(rate * self.time) - self.served * SERVE / TRAIN
        return np.where(rate > 0, np.maximum(left, 0.0), 0.0)

    @cached_property
    def loss(self) -> NDArray[np.float64]:
        """Loss of each size, nats per token."""
        weights = np.array([float(each.weights) for each in self.family])
        with np.errstate(divide="ignore"):
            return np.asarray(self.law.loss(weights, self.tokens))

    @cached_property
    def best(self) -> int:
        """The number of the size with the least loss."""
        return int(np.argmin(self.loss))

    @property
    def at_an_end(self) -> bool:
        """Whether the best is the smallest or the largest of the family, so that another may be better."""
        return self.best in (0, len(self.family) - 1)

    def near(self, nats: float = 0.01) -> tuple[Size, Size]:
        """Return the smallest and the largest size within `nats` of the least loss (0.01: the error of the data)."""
        rows = np.flatnonzero(self.loss <= self.loss[self.best] + nats)
        return self.family[rows[0]], self.family[rows[-1]]

    def beyond(self, row: int) -> str:
        """Say where the law extrapolates for a size, or nothing."""
        return self.law.beyond(self.family[row].weights, float(self.tokens[row]))

    def summary(self) -> Summary:
        """Return the sizes in words."""
        own = self.family[self.best]
        facts = {
            "best": f"{show(own.weights, '')} parameters on {show(float(self.tokens[self.best]), '')} tokens",
            "loss": f"{self.loss[self.best]:.3f} nats per token, {self.law.title}",
            "MFU": f"{own.utilization:.1%}",
            "energy": show(float(self.energy[self.best]) / WH, "Wh"),
        }
        low, high = self.near()
        facts["within 0.01 nats"] = (
            f"{show(low.weights, '')} to {show(high.weights, '')} parameters"
        )
        if self.at_an_end:
            facts["at an end"] = "the family has no size on one side of the best"
        if beyond := self.beyond(self.best):
            facts["extrapolated"] = beyond
        header = ("parameters", "tokens", "per parameter", "loss", "MFU", "energy", "layout")
        rows = [self._row(row) for row in range(len(self.family))]
        budget = show(self.seconds, "s") if self.seconds else show(self.joules / WH, "Wh")
        return Summary(f"sizes within {budget}", facts, header, rows)

    def _row(self, row: int) -> tuple[str, ...]:
        each, tokens = self.family[row], float(self.tokens[row])
        words = show(each.weights, "")
        if not tokens:
            return (
                words,
                "none",
                "",
                "",
                f"{each.utilization:.1%}" * (each.rate > 0),
                "",
                each.layout,
            )
        return (
            words,
            show(tokens, ""),
            f"{tokens / each.weights:.3g}",
            f"{self.loss[row]:.3f}" + "*" * bool(self.beyond(row)),
            f"{each.utilization:.1%}",
            show(float(self.energy[row]) / WH, "Wh"),
            each.layout,
        )

    def to_columns(self) -> Columns:
        """Return a row for each size: weights, tokens, loss, FLOP per token, tokens/s, MFU, s, J, layout."""
        return {
            "weights": [each.weights for each in self.family],
            "tokens": self.tokens.tolist(),
            "loss": self.loss.tolist(),
            "flop_per_token": [each.flop for each in self.family],
            "tokens_per_second": [each.rate for each in self.family],
            "utilization": [each.utilization for each in self.family],
            "seconds": self.time.tolist(),
            "joules": self.energy.tolist(),
            "layout": [each.layout for each in self.family],
            "extrapolated": [bool(self.beyond(row)) for row in range(len(self.family))],
        }

    def plot(self) -> "alt.Chart":
        """Return the loss against the weights as an Altair chart."""
        from lib_dlhpc.results.charts import lines

        rows = np.flatnonzero(np.isfinite(self.loss))
        columns = {
            "weights": [self.family[row].weights / 1e9 for row in rows],
            "loss": self.loss[rows].tolist(),
            "law": [self.law.title] * len(rows),
        }
        title = "loss of sizes (10^9 parameters) within a budget"
        return lines(columns, "weights", "loss", "law", title, "nats per token")
