"""One iteration of post-training by reinforcement learning: answers are generated, scored, and learned from.

    generation   all answers of an iteration, which replicas begin at once; it ends with the longest one
    score        forward passes over all samples: of the reference, and of the policy that wrote them
    update       a training step on all samples (prediction/)
    transfer     the new weights, to each replica that generates

    synchronous       generation + score + update + transfer
    one step behind   max(generation, score + update) + transfer: samples are of the weights before the last update

Sheng et al. 2025, "HybridFlow" (doi 10.1145/3689031.3696075), has both on the same devices; Noukhovitch et al. 2025,
"Asynchronous RLHF" (arXiv 2410.18252), one step behind on two pools. Continuous batching decides who is in a step
(scheduler.py); between two ends of answers the batch is constant, so that its steps are priced together.
"""

import heapq
from collections import deque
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction import Breakdown
from lib_dlhpc.serving.pools import path_of
from lib_dlhpc.serving.predict import room_of
from lib_dlhpc.serving.price import STEP_TOKENS, Chunk, Prices
from lib_dlhpc.serving.service import Service, lengths

SCORES = 2  # forward passes: of the reference, and of the policy that generated
UNUSED = {
    "batching": "continuous",
    "chunk": 0,
    "prefix_block": 0,
    "prefill_replicas": 0,
    "experts": 1,
}


class Generation(NamedTuple):
    """All answers of an iteration; times in s. seconds: until the last ends; ends: of each, in its order.

    busy: the part of these seconds in which a mean slot of the batches has an answer. tokens: of all answers.
    """

    seconds: float
    busy: float
    ends: NDArray[np.float64]
    tokens: int

    @property
    def tail(self) -> float:
        """S in which a mean slot of the batches is empty, while the longest answers end."""
        return self.seconds * (1 - self.busy)


class Iteration(NamedTuple):
    """What an iteration takes, in s. behind: samples are generated while those before them are learned from."""

    generation: Generation
    score: float
    update: float
    transfer: float
    behind: bool = False

    @property
    def training(self) -> float:
        """Seconds of the devices that train."""
        return self.score + self.update

    @property
    def seconds(self) -> float:
        """Seconds from one update to the next."""
        both = (self.generation.seconds, self.training)
        return (max(both) if self.behind else sum(both)) + self.transfer

    @property
    def staleness(self) -> int:
        """Updates between the weights that wrote a sample and those that learn from it."""
        return int(self.behind)


class _Span(NamedTuple):
    """A step that reads prompts, or steps in a row that decode the same sequences. began, ended: requests."""

    chunks: tuple[Chunk, ...]
    contexts: list[int]
    steps: int
    began: list[int]
    ended: list[int]


def predict_iteration(
    service: Service, update: Breakdown, devices: int, prices: Prices | None = None
) -> Iteration:
    """Return a synchronous iteration: the requests of a service, all there at once, and the step that learns.

    update: predicted for as many samples. devices: that generate or train, in all. prices: of a replica, if they are
    known. Raises SpecError for a model that does not fit.
    """
    prices = prices or Prices(service)
    path, weights = path_of(service, devices), prices.shard.weights
    score, sent = SCORES * float(update.forward), path.latency + path.beta * weights
    return Iteration(generate(service, prices), score, float(update.step_time), sent)


def generate(service: Service, prices: Prices | None = None) -> Generation:
    """Return when the answers of a service end, if all requests are there at once; raises SpecError.

    Requests go to the replicas in turn. A replica holds as many as have room at their mean length (predict_service).
    """
    _check(service)
    prices, serving = prices or Prices(service), service.service
    slots = min(
        serving.batch, int(room_of(service, prices) // prices.kv_cache_bytes(service.longest - 1))
    )
    if slots < 1:
        raise SpecError(f"requests.answer = {service.requests.answer}: not one answer fits.")
    prompts, answers = lengths(service)
    replicas = [
        _spans(
            prompts[index :: serving.replicas].tolist(),
            answers[index :: serving.replicas].tolist(),
            slots,
        )
        for index in range(serving.replicas)
    ]
    times = iter(_priced(prices, [span for spans in replicas for span in spans]))
    ends, held = np.zeros(len(answers)), 0.0
    for at, spans in enumerate(replicas):
        now, own = 0.0, ends[at :: serving.replicas]
        for span in spans:
            held -= now * len(span.began)
            now += next(times)
            held += now * len(span.ended)
            own[span.ended] = now
    most = min(slots, -(-len(answers) // serving.replicas)) * serving.replicas
    seconds = float(ends.max())
    busy = min(1.0, float(held) / (seconds * most))  # a sum may round above 1
    return Generation(seconds, busy, ends, int(answers.sum()))


def _check(service: Service) -> None:
    """Raise SpecError for what generation leaves out."""
    for name, legal in UNUSED.items():
        if (value := getattr(service.service, name)) != legal:
            raise SpecError(f"service.{name} = {value!r}: legal for rollouts: {legal!r}.")
    if service.draft:
        raise SpecError("draft: rollouts have none; leave [draft] out.")


def _priced(prices: Prices, spans: list[_Span]) -> NDArray[np.float64]:
    """Return the seconds of each span."""
    found = np.zeros(len(spans))
    reading = [index for index, span in enumerate(spans) if span.chunks]
    decoding = [index for index, span in enumerate(spans) if not span.chunks]
    step = cache(lambda chunks: prices.step(chunks).total)
    found[reading] = [step(spans[at].chunks) for at in reading]
    found[decoding] = prices.decodes([(spans[at].contexts, spans[at].steps) for at in decoding])
    return found


def _spans(prompts: list[int], answers: list[int], slots: int) -> list[_Span]:
    """Return what a replica does, in order: as scheduler.py has it, without a limit of memory but `slots`."""
    found, queue = list[_Span](), deque(range(len(answers)))
    running, step = list[tuple[int, int]](), 0  # the step that ends a request, and the request
    while queue or running:
        came = [queue.popleft() for _ in range(min(len(queue), slots - len(running)))]
        for number, group in enumerate(_together(prompts, came)):
            chunks = tuple(Chunk(prompts[each]) for each in group)
            ended = [each for each in group if answers[each] == 1]
            found.append(_Span(chunks, [], 1, [] if number else came, ended))
        for each in came:
            if answers[each] > 1:
                heapq.heappush(running, (step + answers[each] - 1, each))
        if not running or (queue and len(running) < slots):
            continue  # answers of one token have left their slots
        last = running[0][0]
        # A request that ends at a later step lacks one token for each step until then.
        contexts = [prompts[each] + answers[each] - (stop - step) for stop, each in running]
        steps, step, ended = last - step, last, []
        while running and running[0][0] == step:
            ended.append(heapq.heappop(running)[1])
        found.append(_Span((), contexts, steps, [], ended))
    return found


def _together(prompts: list[int], came: list[int]) -> list[list[int]]:
    """Return the requests whose prompts a step reads together, as the scheduler does."""
    found, left = list[list[int]](), 0
    for each in came:
        size = prompts[each]
        if not found or size > left:
            found.append([])
            left = STEP_TOKENS
        found[-1].append(each)
        left -= size
    return found
