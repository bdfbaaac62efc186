"""simulate_service(service): every request and every step, as discrete events.

A replica is a process that takes step after step from its scheduler; a step lasts as long as price.py predicts.
Requests arrive by a Poisson process, at the replica with the fewest of them.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.results import Columns, Result, Summary, percent, shown
from lib_dlhpc.serving.predict import named, room_of
from lib_dlhpc.serving.price import Prices
from lib_dlhpc.serving.scheduler import Request, Scheduler, Step
from lib_dlhpc.serving.service import Service, arrivals, lengths
from lib_dlhpc.serving.speculate import drawn_tokens

if TYPE_CHECKING:
    import altair as alt

PERCENTILES = (50, 90, 99)


class Ran(NamedTuple):
    """A step that ran, on a replica: times in s, tokens of prompts, sequences decoded, bytes of cache in use."""

    replica: int
    start: float
    end: float
    prompt_tokens: int
    sequences: int
    cache: float
    running: int
    queued: int


@dataclass(frozen=True, repr=False)
class ServiceTrace(Result):
    """What happened to each request, and each step; simulated or measured. answers: tokens, of a real run."""

    service: Service
    requests: tuple[Request, ...]
    steps: tuple[Ran, ...]
    answers: list[list[int]] = field(default_factory=list)

    @property
    def end(self) -> float:
        """When the last answer ended, s."""
        return max(each.end for each in self.requests)

    @property
    def ttft(self) -> NDArray[np.float64]:
        """Time to first token of each request, s."""
        return np.array([each.first - each.arrival for each in self.requests])

    @property
    def latency(self) -> NDArray[np.float64]:
        """Time from arrival to the last token of each request, s."""
        return np.array([each.end - each.arrival for each in self.requests])

    @property
    def tpot(self) -> NDArray[np.float64]:
        """Time per output token after the first, of each request with more than one, s."""
        longer = [each for each in self.requests if each.answer > 1]
        return np.array([(each.end - each.first) / (each.answer - 1) for each in longer])

    @property
    def tokens_per_second(self) -> float:
        """Tokens of all answers over the time until the last."""
        return sum(each.answer for each in self.requests) / self.end

    @property
    def utilization(self) -> float:
        """Fraction of the time in which replicas have a step."""
        busy = sum(each.end - each.start for each in self.steps)
        return busy / (self.end * self.service.service.replicas)

    @property
    def inside(self) -> float:
        """Mean requests of a replica until the last one arrives, by Little's law; until the end if all are there."""
        span = max(each.arrival for each in self.requests) or self.end
        return float(self.latency.sum()) / span / self.service.service.replicas

    @property
    def mean_batch(self) -> float:
        """Mean of the sequences that are decoded in a step, of steps that decode."""
        sizes = [each.sequences for each in self.steps if each.sequences]
        return float(np.mean(sizes)) if sizes else 0.0

    @property
    def preemptions(self) -> int:
        """How often a sequence lost its cache."""
        return sum(each.preemptions for each in self.requests)

    def percentiles(self) -> dict[str, dict[str, float]]:
        """Return mean and percentiles of ttft, tpot and latency, s."""
        found = {}
        for name in ("ttft", "tpot", "latency"):
            values = getattr(self, name)
            if len(values):
                found[name] = {"mean": float(np.mean(values))}
                found[name] |= {f"p{p}": float(np.percentile(values, p)) for p in PERCENTILES}
        return found

    def summary(self) -> Summary:
        """Return rates, and the percentiles of the times of requests, in words."""
        facts = {
            "tokens per second": f"{self.tokens_per_second:,.0f}",
            "busy": percent(self.utilization),
            "mean batch": f"{self.mean_batch:.1f}",
            "preemptions": str(self.preemptions),
        }
        table = self.percentiles()
        header = ["time", *table["ttft"]]
        rows = [[name, *(shown(each, "s") for each in row.values())] for name, row in table.items()]
        title = f"{len(self.requests)} requests to {named(self.service)} in {shown(self.end, 's')}"
        return Summary(title, facts, header, rows)

    def to_columns(self) -> Columns:
        """Return the requests: lengths in tokens, times in s."""
        columns: Columns = {
            name: [getattr(each, name) for each in self.requests]
            for name in ("number", "arrival", "prompt", "answer", "first", "end", "preemptions")
        }
        return {**columns, "ttft": self.ttft.tolist(), "latency": self.latency.tolist()}

    def plot(self) -> "alt.Chart":
        """Return the time to first token of each request over its arrival."""
        from lib_dlhpc.results import charts

        columns = {**self.to_columns(), "replicas": [named(self.service)] * len(self.requests)}
        title = f"Time to first token of {len(self.requests)} requests"
        return charts.lines(columns, "arrival", "ttft", "replicas", title, "s")

    def as_dict(self) -> dict[str, Any]:
        """Return the summary in SI units."""
        return {
            "requests": len(self.requests),
            "seconds": self.end,
            "tokens_per_second": self.tokens_per_second,
            "utilization": self.utilization,
            "mean_batch": self.mean_batch,
            "inside": self.inside,
            "preemptions": self.preemptions,
            **self.percentiles(),
        }


def simulate_service(service: Service) -> ServiceTrace:
    """Simulate all requests of a service; needs SimPy.

    Raises SpecError for a model that does not fit, or a request that does not fit the cache.
    """
    import simpy

    env, prices, replicas = simpy.Environment(), Prices(service), service.service.replicas
    schedulers = [scheduler_of(service, prices) for _ in range(replicas)]
    wake, steps = [env.event() for _ in schedulers], list[Ran]()
    requests = requests_of(service)

    def load() -> Generator[Any, Any, None]:
        for request in requests:
            if request.arrival > env.now:
                yield env.timeout(request.arrival - env.now)
            at = min(range(replicas), key=lambda one: schedulers[one].load)
            schedulers[at].add(request)
            if not wake[at].triggered:
                wake[at].succeed()

    def replica(at: int) -> Generator[Any, Any, None]:
        scheduler = schedulers[at]
        while True:
            step = scheduler.next_step()
            if step is None:
                wake[at] = env.event()
                yield wake[at]
                continue
            start, row = env.now, (len(scheduler.running), len(scheduler.queue))
            yield env.timeout(seconds_of(prices, step))
            scheduler.done(step, env.now)
            steps.append(ran(step, at, start, env.now, *row))

    env.process(load())
    for at in range(replicas):
        env.process(replica(at))
    env.run()
    return ServiceTrace(service, tuple(requests), tuple(steps))


def requests_of(service: Service) -> list[Request]:
    """Return the requests in the order of arrival."""
    each = zip(arrivals(service), *lengths(service), strict=True)
    return [Request(n, float(arrival), int(p), int(a)) for n, (arrival, p, a) in enumerate(each)]


def scheduler_of(service: Service, prices: Prices) -> Scheduler:
    """Return the scheduler of an idle replica; raises SpecError if the model does not fit."""
    scheduler = Scheduler(service.service, prices.cached, room_of(service, prices))
    if service.draft:
        rng = np.random.default_rng([service.requests.seed, 3])
        scheduler.advance = partial(drawn_tokens, rng, service.drafting.acceptance, service.drafts)
    return scheduler


def seconds_of(prices: Prices, step: Step) -> float:
    """Return the predicted seconds of a step."""
    contexts: Sequence[int] = [each.tokens for each in step.decoded]
    return prices.step([chunk for _, chunk in step.chunks], contexts).total


def ran(step: Step, at: int, start: float, end: float, running: int, queued: int) -> Ran:
    """Return the record of a step."""
    tokens = sum(chunk.tokens for _, chunk in step.chunks)
    return Ran(at, start, end, tokens, len(step.decoded), step.cache, running, queued)
