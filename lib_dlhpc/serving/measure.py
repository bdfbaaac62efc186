"""Four numbers of this machine's decoder, from some steps of it: two launch times, FLOP/s and B/s.

A step takes launch * layers + launch' * sequences * layers of attention + FLOP / rate + bytes / bandwidth, as layers do
in costs/layer_rates.py. The counts are those of price.py with rates of one; the numbers are fitted to measured steps
by least squares of relative errors, none below zero.
"""

from collections.abc import Callable
from dataclasses import replace
from time import thread_time

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.serving.decoder import Decoder
from lib_dlhpc.serving.price import Chunk, Prices
from lib_dlhpc.serving.run import check_run, dtype_of
from lib_dlhpc.serving.service import Service, is_attention
from lib_dlhpc.spec.layer_rate import LayerRate
from lib_dlhpc.training.threads import one_thread

REPEATS = 5  # of each step, of which the median counts
PLENTY = 1e30  # of a rate that takes no time
Work = tuple[int, int, int]  # sequences, new tokens of each, tokens of each in the cache


def on_this_machine(service: Service) -> Service:
    """Return the service on the core at hand, as the numpy decoder serves it; takes some seconds.

    Raises SpecError for a service that cannot run here.
    """
    check_run(service)
    with one_thread():
        return fitted(service, _timed(service))


def fitted(service: Service, seconds: Callable[[Work], float]) -> Service:
    """Return the service on a device with the four numbers that explain the seconds of some steps."""
    service = service.set(attention="apart", graph=False)
    works = _works(service)
    counts = np.stack([_counts(service, unit, works) for unit in range(4)], axis=1)
    measured = np.array([seconds(work) for work in works])
    *launches, per_flop, per_byte = _least_squares(counts / measured[:, None])
    rates = (1 / max(each, 1 / PLENTY) for each in (per_flop, per_byte))
    return _with(service, *launches, *rates)


def _works(service: Service) -> list[Work]:
    """Return steps to measure: prompts, and tokens of few and of many sequences after short and long contexts."""
    batch, load = service.service.batch, service.requests
    prompts = [(1, max(1, load.prompt // 2), 0), (1, load.prompt, 0), (1, 2 * load.prompt, 0)]
    sizes = sorted({1, max(1, batch // 2), batch})
    return prompts + [(size, 1, at) for size in sizes for at in (load.prompt, 2 * service.longest)]


def _timed(service: Service) -> Callable[[Work], float]:
    serving, load = service.service, service.requests
    longest = 2 * service.longest + load.prompt + REPEATS + 1
    decoder = Decoder(service.model, load.seed, dtype_of(serving.precision), longest)

    def seconds(work: Work) -> float:
        sequences, tokens, before = work
        found = []
        for _ in range(REPEATS + 1):
            if before:
                decoder.step([(name, [0] * before) for name in range(sequences)])
            start = thread_time()
            decoder.step([(name, [0] * tokens) for name in range(sequences)])
            found.append(thread_time() - start)
            for name in range(sequences):
                decoder.free(name)
        return float(np.median(found[1:]))

    return seconds


def _counts(service: Service, unit: int, works: list[Work]) -> NDArray[np.float64]:
    """Return the calls, FLOP or bytes of each step: its seconds if one of them takes 1 s, and the others none."""
    one = [0.0, 0.0, PLENTY, PLENTY]
    one[unit] = 1.0
    prices = Prices(_with(service, *one))
    return np.array(
        [
            prices.step([Chunk(tokens, before)] * sequences).total
            if tokens > 1
            else prices.decode(sequences, before + 1).total
            for sequences, tokens, before in works
        ]
    )


def _with(
    service: Service, launch: float, attention: float, rate: float, bandwidth: float
) -> Service:
    """Return the service on a device whose layers have these numbers, attention a launch time of its own."""
    layers = {
        layer.traits.rate_key(layer): LayerRate(
            attention if is_attention(layer.kind) else launch, rate, bandwidth
        )
        for layer in service.model.layers
    }
    device = replace(service.machine.device, layers=layers, overhead=0.0, dispatch=0.0)
    device = replace(device, slowdown=1.0)
    return replace(service, machine=replace(service.machine, device=device))


def _least_squares(counts: NDArray[np.float64]) -> list[float]:
    """Return the numbers, none below 0, that make counts @ numbers nearest to 1: the best of all sets of them."""
    many = counts.shape[1]
    best, least = np.zeros(many), np.inf
    for subset in range(1, 1 << many):
        some = [index for index in range(many) if subset >> index & 1]
        scale = np.abs(counts[:, some]).max(axis=0)
        found = (
            np.linalg.lstsq(counts[:, some] / scale, np.ones(len(counts)), rcond=None)[0] / scale
        )
        error = float(np.square(counts[:, some] @ found - 1).sum())
        if (found >= 0).all() and error < least:
            best, least = np.zeros(many), error
            best[some] = found
    return [float(each) for each in best]
