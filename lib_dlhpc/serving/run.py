"""run_service(service): the same requests, decoded for real in numpy on one core.

The scheduler is that of the simulation; a step takes the seconds that this core computes for it, without those of
other processes. The clock is the decoder's: it jumps to the next arrival where a server would wait. Blocks of prefixes
that the scheduler stores are copied from one sequence into the next; paged caches would only point to them.
"""

from time import thread_time

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.serving.decoder import Decoder
from lib_dlhpc.serving.prefix import blocks_of
from lib_dlhpc.serving.price import Prices
from lib_dlhpc.serving.scheduler import Request, Scheduler, Step
from lib_dlhpc.serving.service import Service
from lib_dlhpc.serving.simulate import ExecutedStep, ServiceTrace, ran, requests_of, scheduler_of
from lib_dlhpc.training.threads import one_thread

PRECISIONS = ("fp32", "fp64")


def run_service(service: Service) -> ServiceTrace:
    """Decode all requests of a service with one device; prompts are random tokens, drawn with the seed.

    Raises SpecError for several devices, for a precision that numpy lacks, and for a model that is not decoded.
    """
    check_run(service)
    with one_thread():
        return _run(service)


def _run(service: Service) -> ServiceTrace:
    serving, requests = service.service, requests_of(service)
    longest = max(request.prompt + request.answer for request in requests)
    decoder = Decoder(service.model, service.requests.seed, dtype_of(serving.precision), longest)
    scheduler, steps = scheduler_of(service, Prices(service)), list[ExecutedStep]()
    texts = _Texts(service, requests)
    now, coming = 0.0, list(reversed(requests))
    decoder.step([("warm up", [0])])  # so that no step has to load what numpy loads at first use
    decoder.free("warm up")
    while coming or scheduler.load:
        if not scheduler.load:
            now = max(now, coming[-1].arrival)
        while coming and coming[-1].arrival <= now:
            scheduler.add(coming.pop())
        start = thread_time()
        step = scheduler.next_step()
        if step is None:
            continue
        row = len(scheduler.running), len(scheduler.queue)
        _carry_out(step, scheduler, decoder, texts)
        end = now + thread_time() - start
        scheduler.done(step, end)
        _store(step, scheduler, decoder)
        for request in requests:
            if request.end == end:
                decoder.free(request.number)
        steps.append(ran(step, 0, now, end, *row))
        now = end
    return ServiceTrace(service, tuple(requests), tuple(steps), texts.answers)


class _Texts:
    """Prompts and answers, token by token."""

    def __init__(self, service: Service, requests: list[Request]) -> None:
        words = service.model.layers[0].attributes["vocabulary"]
        rng = np.random.default_rng([service.requests.seed, 2])
        self.prompts = [rng.integers(0, words, request.prompt).tolist() for request in requests]
        rng = np.random.default_rng([service.requests.seed, 5])
        shared = rng.integers(0, words, (service.requests.prefixes, service.requests.shared))
        for prompt, each in zip(self.prompts, requests, strict=True):
            if each.prefix >= 0:
                prompt[: each.shared] = shared[each.prefix, : each.shared].tolist()
        self.answers: list[list[int]] = [[] for _ in requests]

    def part(self, number: int, first: int, stop: int) -> list[int]:
        """Return tokens of a prompt and of the answer so far."""
        return list((self.prompts[number] + self.answers[number])[first:stop])


def _carry_out(step: Step, scheduler: Scheduler, decoder: Decoder, texts: _Texts) -> None:
    """Compute a step; each sequence whose tokens are all in the cache then has one token more."""
    for request in scheduler.queue:  # preempted
        if request.number in decoder.held:
            decoder.free(request.number)
    for request, _ in step.chunks:
        if request.blocks and request.number not in decoder.held:
            decoder.reuse(
                request.number, [(request.prefix, index) for index in range(request.blocks)]
            )
    work = [(each, chunk.before, chunk.before + chunk.tokens) for each, chunk in step.chunks] + [
        (each, each.tokens - 1, each.tokens) for each in step.decoded
    ]
    logits = decoder.step([(each.number, texts.part(each.number, a, b)) for each, a, b in work])
    for (request, _, stop), logit in zip(work, logits, strict=True):
        if stop == request.tokens:
            texts.answers[request.number].append(int(np.argmax(logit)))


def _store(step: Step, scheduler: Scheduler, decoder: Decoder) -> None:
    """Copy the blocks that the scheduler has stored since, and drop those that it has evicted."""
    stored, size = scheduler.prefixes, scheduler.prefixes.block
    for old in [block for block in decoder.blocks if block not in stored]:
        del decoder.blocks[old]
    for request, _ in step.chunks:
        for index in range(blocks_of(request.shared, size) if request.made else 0):
            block = (request.prefix, index)
            if block in stored and block not in decoder.blocks:
                decoder.store(block, request.number, index * size, (index + 1) * size)


def check_run(service: Service) -> None:
    """Raise SpecError unless numpy can serve it."""
    serving = service.service
    if service.draft:
        raise SpecError(
            f"draft = {service.draft.name or service.draft.family!r}: a real run has no draft model; legal here: none."
            " lib_dlhpc.serving.decode_with_draft decodes one sequence with a draft."
        )
    if serving.devices * serving.replicas > 1:
        raise SpecError(
            f"service.devices = {serving.devices}, service.replicas = {serving.replicas}: a real run has one of each;"
            " legal here: 1 and 1."
        )
    for name in ("precision", "cache_precision"):
        if getattr(serving, name) not in PRECISIONS or serving.cache_precision != serving.precision:
            raise SpecError(
                f"service.{name} = {getattr(serving, name)!r}: a real run computes in numpy, with weights and cache"
                f" alike; legal here: {', '.join(PRECISIONS)}."
            )


def dtype_of(precision: str) -> type[np.floating]:
    """Return the numpy type of weights and cache."""
    return np.float64 if precision == "fp64" else np.float32
