"""predict_service(service): bytes, times and costs of a service in closed form.

weights + sequences * cache + activations <= memory             which batch fits
time to first token    = prefill of the prompt
time per output token  = a step of decode: weights once, the cache of each sequence
tokens a second        = batch * answer / (prefill of the batch + the steps of decode)

Where requests begin alike and blocks are stored, a part of the prompts is not computed (prefix.py); where prompts and
answers have replicas of their own, a cache travels between them (pools.py).
With a draft model a step of decode drafts and verifies, and each gives several tokens (speculate.py).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lib_dlhpc.costs.power_limit import drawn
from lib_dlhpc.costs.roofline import BYTES
from lib_dlhpc.errors import SpecError
from lib_dlhpc.layout import too_few
from lib_dlhpc.results import Columns, Result, Summary, shown
from lib_dlhpc.serving.load import Load, load_of, load_of_pools
from lib_dlhpc.serving.pools import Pools, pools_of, sending
from lib_dlhpc.serving.prefix import Reuse, reuse_of
from lib_dlhpc.serving.price import STEP_TOKENS, Prices, StepTime
from lib_dlhpc.serving.service import Service
from lib_dlhpc.serving.speculate import expected_tokens
from lib_dlhpc.spec.units import HOUR, format_plain, format_quantity

if TYPE_CHECKING:
    import altair as alt

LOGITS = 4  # bytes: they are computed in fp32


class Point(NamedTuple):
    """A batch of requests served together on one replica: the throughput-latency curve has one for each size.

    ttft, tpot: s of the mean prompt and answer. tokens_per_second: of all replicas. cost: of a million tokens of
    answers, in the machine's currency; NaN without a price. joules: a token of the answers.
    """

    batch: int
    ttft: float
    tpot: float
    tokens_per_second: float
    cost: float
    joules: float
    bound: str


@dataclass(frozen=True, repr=False)
class ServicePrediction(Result):
    """A service in closed form; bytes are of a device, times of a replica.

    cache_token: bytes of cache a token, mean of the longest sequence. sequences: most that fit at their full length.
    batch: that, or the most allowed. prefill, decode: of the mean prompt, and of a step of the batch half-way through
    the answers. curve: for batches up to `batch`. load: at the offered rate; None if all arrive at once. reuse: of
    stored prefixes. pools: at the rate, where some replicas only read prompts.
    """

    service: Service
    weights: float
    activations: float
    room: float
    cache_token: float
    cache_sequence: float
    sequences: int
    batch: int
    prefill: StepTime
    decode: StepTime
    prefill_flop: float
    curve: tuple[Point, ...]
    load: Load | None
    reuse: Reuse
    pools: Pools | None

    @property
    def alone(self) -> Point:
        """One request at a time."""
        return self.curve[0]

    @property
    def tokens(self) -> float:
        """Mean tokens that a step of decode gives each sequence."""
        return expected_tokens(self.service.drafting.acceptance, self.service.drafts)

    @property
    def full(self) -> Point:
        """The full batch."""
        return self.curve[-1]

    def summary(self) -> Summary:
        """Return what fits, and the times of batches, in words."""
        facts = {
            "weights": f"{shown(self.weights, 'B')} per device",
            "cache": f"{shown(self.cache_token, 'B')} per token",
            "sequences that fit": f"{self.sequences:,}",
            "prefill": f"{shown(self.prefill.total, 's')}, limited by {self.prefill.bound}",
            "decode": f"{shown(self.decode.total, 's')}, limited by {self.decode.bound}",
        }
        if self.service.draft:
            facts["tokens of a step"] = f"{self.tokens:.2f} of each sequence"
        if self.reuse.tokens:
            facts["stored prefixes"] = (
                f"{self.reuse.hit:.0%} of requests reuse {self.reuse.tokens:,} tokens"
            )
        rows = [
            [
                *(str(point.batch), shown(point.ttft, "s"), shown(point.tpot, "s")),
                *(format_plain(point.tokens_per_second), shown(point.joules, "J"), point.bound),
            ]
            for point in self.curve
        ]
        header = ("batch", "first token", "next token", "tokens/s", "a token", "limited by")
        return Summary(named(self.service), facts, header, rows)

    def to_columns(self) -> Columns:
        """Return the curve, in SI units."""
        return {name: [getattr(each, name) for each in self.curve] for name in Point._fields}

    def plot(self) -> "alt.Chart":
        """Return throughput over the time per output token."""
        from lib_dlhpc.results import charts

        columns = {**self.to_columns(), "service": [named(self.service)] * len(self.curve)}
        title = "Tokens per second over the seconds of an output token"
        return charts.lines(columns, "tpot", "tokens_per_second", "service", title, "/s")

    def as_dict(self) -> dict[str, Any]:
        """Return the prediction in SI units."""
        return {
            "weights": self.weights,
            "activations": self.activations,
            "room": self.room,
            "cache_token": self.cache_token,
            "cache_sequence": self.cache_sequence,
            "sequences": self.sequences,
            "batch": self.batch,
            "prefill": self.prefill.terms,
            "decode": self.decode.terms,
            "tokens_per_step": self.tokens,
            "prefill_flop": self.prefill_flop,
            "curve": [point._asdict() for point in self.curve],
            "load": self.load._asdict() if self.load else None,
            "reuse": self.reuse._asdict(),
            "pools": self.pools._asdict() if self.pools else None,
        }


def predict_service(service: Service) -> ServicePrediction:
    """Predict a service; raises SpecError if the model, or one sequence, does not fit the devices."""
    prices, load = Prices(service), service.requests
    room = room_of(service, prices)
    sequence = prices.kv_cache_bytes(service.longest - 1)
    if sequence > room:
        raise SpecError(
            f"The cache of a sequence of {service.longest} tokens needs {format_quantity(sequence, 'B')} per"
            f" device, and {format_quantity(room, 'B')} are left beside the weights; legal: shorter requests,"
            " more service.devices, or fewer bytes per number."
        )
    reuse = reuse_of(service, prices, room)
    batch = min(int(reuse.requests), service.service.batch)
    sizes = sorted({*(2**n for n in range(batch.bit_length())), batch})
    curve = tuple(_point(service, prices, reuse, size) for size in sizes)
    full, pools, at_rate = curve[-1], None, None
    if load.rate and service.service.prefill_replicas:
        pools = pools_of(service, prices, batch)
        at_rate = load_of_pools(service, pools, full.tokens_per_second, full.tpot)
    elif load.rate:
        at_rate = load_of(service, prices, reuse, batch)
    return ServicePrediction(
        service=service,
        weights=weights_of(prices),
        activations=activations_of(service, prices),
        room=room,
        cache_token=sequence / max(1, service.longest - 1 + service.drafts),
        cache_sequence=sequence,
        sequences=int(reuse.requests),
        batch=batch,
        prefill=_mean((share, prices.prefill(load.prompt, n)) for share, n in reuse.cases),
        decode=prices.decode(batch, load.prompt + load.answer / 2),
        prefill_flop=prices.flop(load.prompt),
        curve=curve,
        load=at_rate,
        reuse=reuse,
        pools=pools,
    )


def named(service: Service) -> str:
    """Return the model, the machine and the devices in words."""
    model, machine, serving = service.model, service.machine, service.service
    devices = f"{serving.replicas} x {serving.devices} devices"
    return f"{model.name or model.family} on {devices} of {machine.name or 'a machine'}"


def room_of(service: Service, prices: Prices) -> float:
    """Return the bytes of a device that are left for the cache; raises SpecError if there are none."""
    device, weights = service.machine.device, weights_of(prices)
    room = float(device.memory - device.reserved_memory) - weights
    room -= activations_of(service, prices)
    if room <= 0:
        few = too_few(service.model, service.service.devices)
        least = ceil(
            service.service.devices * weights / float(device.memory - device.reserved_memory)
        )
        more = (
            f"more devices, {least} at least" if least > service.service.devices else "more devices"
        )
        raise SpecError(
            f"service.devices = {service.service.devices}: the weights of {service.model.name or 'the model'} in"
            f" {service.service.precision} take {format_quantity(weights, 'B')} per device, activations of a step"
            f" {format_quantity(activations_of(service, prices), 'B')}, and"
            f" {device.name or 'the device'} has"
            f" {format_quantity(float(device.memory - device.reserved_memory), 'B')}; legal:"
            f" {f'fewer devices ({few})' if few else more}, a precision of fewer bytes, or chunks of prompts."
        )
    return room


def activations_of(service: Service, prices: Prices) -> float:
    """Return the bytes of the widest layer's input and output, for the most tokens of a step, and of logits.

    Those of a draft model are freed before the model's own begin: the larger of both.
    """
    serving, shard = service.service, prices.shard
    new = serving.batch * (1 + prices.drafts)
    tokens = serving.chunk + new
    if not serving.chunk:
        prompt = service.requests.prompt
        tokens = max(min(max(STEP_TOKENS, prompt), serving.batch * prompt), new)
    wide = shard.widest * BYTES[shard.precision] * tokens
    own = float(wide + LOGITS * shard.logits * new)
    return max(own, activations_of(service, prices.draft)) if prices.draft else own


def weights_of(prices: Prices) -> float:
    """Return the bytes of the weights on a device, those of the draft model included."""
    return prices.shard.weights + (prices.draft.shard.weights if prices.draft else 0.0)


def _point(service: Service, prices: Prices, reuse: Reuse, batch: int) -> Point:
    """Return what a batch of mean requests takes, served from prompts to ends."""
    load, serving = service.requests, service.service
    first = _mean((share, prices.prompts(batch, load.prompt, n)) for share, n in reuse.cases)
    rest = prices.answers(batch, load.prompt, load.answer)
    both, later, moved = first + rest, load.answer - 1, 0.0
    rate, watts = batch * load.answer / both.total, _watts(service, both, both.total)
    rate, watts = serving.replicas * rate, serving.replicas * watts
    if pool := serving.prefill_replicas:
        others, moved = serving.replicas - pool, sending(service, prices)(load.prompt)
        period = max(rest.total, first.total * others / pool, batch * moved * others / pool)
        # Both pools work, on one batch after another.
        rate = others * batch * load.answer / period
        reading = _watts(service, first.times(others / pool), period)
        watts = pool * reading + others * _watts(service, rest, period)
    tpot = (rest.total + moved) / later if later else 0.0
    devices = serving.devices * serving.replicas
    price = service.machine.device_price * devices / HOUR or np.nan
    bound = (rest if load.answer > 1 else first).bound
    return Point(batch, first.total, tpot, rate, 1e6 * price / rate, watts / rate, bound)


def _mean(cases: Iterable[tuple[float, StepTime]]) -> StepTime:
    """Return the mean of steps with their probabilities."""
    return sum((step.times(share) for share, step in cases), StepTime())


def _watts(service: Service, step: StepTime, period: float) -> float:
    """Return the mean W of a replica with such steps in each `period` s, its part of hosts and of cooling included."""
    machine, serving = service.machine, service.service
    memory = step.weights + step.cache + step.activations
    parts = (step.arithmetic + step.attention, memory, step.communication)
    device = drawn(machine.device, 0.0, *(part / period for part in parts))
    host = machine.node_power / machine.devices_per_node
    return float(machine.pue * serving.devices * (device + host))
