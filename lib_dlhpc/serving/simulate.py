"""simulate_service(service): every request and every step, as discrete events.

A replica is a process that takes step after step from its scheduler; a step lasts as long as price.py predicts.
Requests arrive by a Poisson process, at the replica with the fewest of them. Where some replicas only read prompts,
they send each cache to the replica with the fewest requests among the others, over a path of their own, one at a time.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.results import Columns, Result, Summary, percent, shown
from lib_dlhpc.serving.pools import sending
from lib_dlhpc.serving.predict import named, room_of
from lib_dlhpc.serving.prefix import PrefixCache, bytes_of_token
from lib_dlhpc.serving.price import Prices
from lib_dlhpc.serving.scheduler import Request, Scheduler, Step
from lib_dlhpc.serving.service import Service, arrivals, lengths, prefixes
from lib_dlhpc.serving.speculate import drawn_tokens
from lib_dlhpc.spec.units import count, format_plain

if TYPE_CHECKING:
    import altair as alt
    import simpy

PERCENTILES = (50, 90, 99)


class ExecutedStep(NamedTuple):
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
    steps: tuple[ExecutedStep, ...]
    answers: list[list[int]] = field(default_factory=list)

    @property
    def end(self) -> float:
        """When the last answer ended, s."""
        return max(request.end for request in self.requests)

    @property
    def ttft(self) -> NDArray[np.float64]:
        """Time to first token of each request, s."""
        return np.array([request.first - request.arrival for request in self.requests])

    @property
    def latency(self) -> NDArray[np.float64]:
        """Time from arrival to the last token of each request, s."""
        return np.array([request.end - request.arrival for request in self.requests])

    @property
    def tpot(self) -> NDArray[np.float64]:
        """Time per output token after the first, of each request with more than one, s."""
        longer = [request for request in self.requests if request.answer > 1]
        return np.array([(each.end - each.first) / (each.answer - 1) for each in longer])

    @property
    def tokens_per_second(self) -> float:
        """Tokens of all answers over the time until the last."""
        return sum(request.answer for request in self.requests) / self.end

    @property
    def utilization(self) -> float:
        """Fraction of the time in which replicas have a step."""
        busy = sum(step.end - step.start for step in self.steps)
        return busy / (self.end * self.service.service.replicas)

    @property
    def inside(self) -> float:
        """Mean requests of a replica until the last one arrives, by Little's law; until the end if all are there."""
        span = max(request.arrival for request in self.requests) or self.end
        return float(self.latency.sum()) / span / self.service.service.replicas

    @property
    def mean_batch(self) -> float:
        """Mean of the sequences that are decoded in a step, of steps that decode."""
        sizes = [step.sequences for step in self.steps if step.sequences]
        return float(np.mean(sizes)) if sizes else 0.0

    @property
    def preemptions(self) -> int:
        """How often a sequence lost its cache."""
        return sum(request.preemptions for request in self.requests)

    @property
    def reused(self) -> NDArray[np.float64]:
        """Part of each prompt that was stored when the request was admitted."""
        return np.array([request.reused / request.prompt for request in self.requests])

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
            "tokens per second": format_plain(self.tokens_per_second),
            "busy": percent(self.utilization),
            "mean batch": f"{self.mean_batch:.1f}",
            "preemptions": str(self.preemptions),
        }
        if self.service.service.prefix_block:
            facts["prompts reused"] = percent(float(self.reused.mean()))
        table = self.percentiles()
        header = ["time", *table["ttft"]]
        rows = [[name, *(shown(each, "s") for each in row.values())] for name, row in table.items()]
        title = f"{count(len(self.requests), 'request')} to {named(self.service)} in {shown(self.end, 's')}"
        return Summary(title, facts, header, rows)

    def to_columns(self) -> Columns:
        """Return the requests: lengths in tokens, times in s."""
        columns: Columns = {
            name: [getattr(request, name) for request in self.requests]
            for name in (
                *("number", "arrival", "prompt", "answer", "first", "end", "preemptions"),
                *("reused", "moved"),
            )
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
            "reused": float(self.reused.mean()),
            **self.percentiles(),
        }


def simulate_service(service: Service) -> ServiceTrace:
    """Simulate all requests of a service; needs SimPy.

    Raises SpecError for a model that does not fit, or a request that does not fit the cache.
    """
    import simpy

    replicas = _Replicas(service, simpy.Environment())
    replicas.env.run()
    return ServiceTrace(service, tuple(replicas.requests), tuple(replicas.steps))


class _Replicas:
    """The processes of a simulation: one brings the requests, one runs each replica, one sends each cache."""

    def __init__(self, service: Service, env: "simpy.Environment") -> None:
        import simpy

        self.env, self.prices, self.steps = env, Prices(service), list[ExecutedStep]()
        self.requests, self.send = requests_of(service), sending(service, self.prices)
        every, pool = range(service.service.replicas), service.service.prefill_replicas
        self.schedulers = [scheduler_of(service, self.prices) for _ in every]
        for scheduler in self.schedulers[:pool]:
            scheduler.hands_over = True
        self.first, self.later = every[: pool or len(every)], every[pool:]
        self.wake, self.coming = [env.event() for _ in every], [0 for _ in every]
        self.ports = [simpy.Resource(env) for _ in every]
        env.process(self._arrive())
        for at in every:
            env.process(self._run(at))

    def _arrive(self) -> Generator[Any, Any, None]:
        for request in self.requests:
            if request.arrival > self.env.now:
                yield self.env.timeout(request.arrival - self.env.now)
            self._add(request, self._freest(self.first))

    def _run(self, at: int) -> Generator[Any, Any, None]:
        scheduler = self.schedulers[at]
        while True:
            step = scheduler.next_step()
            if step is None:
                self.wake[at] = self.env.event()
                yield self.wake[at]
                continue
            start, row = self.env.now, (len(scheduler.running), len(scheduler.queue))
            yield self.env.timeout(seconds_of(self.prices, step))
            before = len(scheduler.leaving)
            scheduler.done(step, self.env.now)
            self.steps.append(ran(step, at, start, self.env.now, *row))
            for request in scheduler.leaving[before:]:
                self.env.process(self._send(request, at))

    def _send(self, request: Request, at: int) -> Generator[Any, Any, None]:
        to, start = self._freest(self.later), self.env.now
        self.coming[to] += 1
        with self.ports[at].request() as out, self.ports[to].request() as into:
            yield out & into
            yield self.env.timeout(self.send(request.prompt))
        request.moved = self.env.now - start
        self.coming[to] -= 1
        self.schedulers[at].sent(request)
        self._add(request, to)
        self._wake(at)

    def _freest(self, among: Sequence[int]) -> int:
        return min(among, key=lambda at: self.schedulers[at].load + self.coming[at])

    def _add(self, request: Request, at: int) -> None:
        self.schedulers[at].add(request)
        self._wake(at)

    def _wake(self, at: int) -> None:
        if not self.wake[at].triggered:
            self.wake[at].succeed()


def requests_of(service: Service) -> list[Request]:
    """Return the requests in the order of arrival."""
    shared, found = service.requests.shared, list[Request]()
    each = zip(arrivals(service), *lengths(service), prefixes(service), strict=True)
    for number, (arrival, prompt, answer, prefix) in enumerate(each):
        request = Request(number, float(arrival), int(prompt), int(answer), prefix=int(prefix))
        request.shared = min(shared, request.prompt - 1)  # its last token is computed
        found.append(request)
    return found


def scheduler_of(service: Service, prices: Prices) -> Scheduler:
    """Return the scheduler of an idle replica; raises SpecError if the model does not fit."""
    block = service.service.prefix_block
    stored = PrefixCache(block, block * bytes_of_token(prices))
    scheduler = Scheduler(
        service.service, prices.kv_cache_bytes, room_of(service, prices), prefixes=stored
    )
    if service.draft:
        rng = np.random.default_rng([service.requests.seed, 3])
        scheduler.advance = partial(drawn_tokens, rng, service.drafting.acceptance, service.drafts)
    return scheduler


def seconds_of(prices: Prices, step: Step) -> float:
    """Return the predicted seconds of a step."""
    contexts: Sequence[int] = [each.tokens for each in step.decoded]
    return prices.step([chunk for _, chunk in step.chunks], contexts).total


def ran(step: Step, at: int, start: float, end: float, running: int, queued: int) -> ExecutedStep:
    """Return the record of a step."""
    tokens = sum(chunk.tokens for _, chunk in step.chunks)
    return ExecutedStep(at, start, end, tokens, len(step.decoded), step.cache, running, queued)
