"""Replicas that only read prompts, beside replicas that only decode (Zhong et al. 2024, "DistServe"; Patel et al. 2024,
"Splitwise"): no answer pauses for the prompt of another, and each cache travels from one pool to the other.

    time to first token = wait for a replica of the first pool + prefill
    cache on its way    = latency + bytes of a token * prompt / bandwidth, each device to its counterpart
    b                   = rate * (answer - 1) s(b)            Little's law, of the second pool: no prompts in its steps
    time per token      = s(b) + (cache on its way + wait for a place) / (answer - 1)

The first token is sent from where it is computed; what the cache waits for and travels delays the second one. A cache
is sent when its prompt has ended: sending layer by layer meanwhile would hide a part of it.
"""

from collections.abc import Callable
from math import exp
from typing import NamedTuple

from lib_dlhpc.costs.groups import Wire, wire_on
from lib_dlhpc.costs.network import joined
from lib_dlhpc.serving.price import Prices
from lib_dlhpc.serving.queueing import between, queue_wait, settled
from lib_dlhpc.serving.service import Service


class Pools(NamedTuple):
    """The steady state of both pools, of a mean request; times in s.

    reading, sending, decoding: utilization of the replicas that prefill, of the ports of the smaller pool, and of the
    places of those that decode. batch: mean sequences of one that decodes. wait, prefill: until the first token. moved:
    of the cache, its wait for the path and for a place included. rest: from there to the last token.
    """

    reading: float
    sending: float
    decoding: float
    batch: float
    wait: float
    prefill: float
    moved: float
    rest: float

    @property
    def saturated(self) -> bool:
        """Whether requests arrive faster than a pool, or the paths between pools, can serve them."""
        return max(self.reading, self.sending, self.decoding) >= 1


def sending(service: Service, prices: Prices) -> Callable[[int], float]:
    """Return the function from the tokens of a prompt to the seconds of sending its cache."""
    path = path_of(service, service.service.devices * service.service.replicas)
    return lambda prompt: path.latency + path.beta * prices.kv_cache_bytes(prompt)


def path_of(service: Service, devices: int) -> Wire:
    """Return the path from a device to one of another replica, among `devices` in all.

    Within a node where all are in one; else between nodes, at a device's part of its node's NICs.
    """
    near = service.machine.devices_per_node * service.machine.domain
    machine, _, _ = joined(service.machine, -(-devices // service.machine.devices_per_node), 1)
    return wire_on(machine, devices <= near, machine.devices_per_node, machine.devices_per_node)


def pools_of(service: Service, prices: Prices, most: int) -> Pools:
    """Return the steady state at the rate of requests; most: sequences that a replica decodes at once."""
    serving, load = service.service, service.requests
    first, second = serving.prefill_replicas, serving.replicas - serving.prefill_replicas
    read, sent = prices.prefill(load.prompt).total, sending(service, prices)(load.prompt)

    def rest(batch: int) -> float:
        context = load.prompt + load.answer / 2
        return prices.steps(load.answer) * prices.decode(batch, context).total

    rate, hold = load.rate / second, rest(most)
    batch = settled(lambda size: rate * between(rest, size), most)
    decoded = between(rest, batch)
    step = decoded / max(1.0, prices.steps(load.answer))
    wait = queue_wait(load.rate, read, first, load.prompt_spread)
    # A replica sends one cache at a time, and receives one: the smaller pool has fewer ports. Prompts leave a replica
    # one after another, so a port that sends, and is faster than prompts are read, has no queue.
    ports = min(first, second)
    path = queue_wait(load.rate, sent, ports, load.prompt_spread)
    if first <= second:
        path = path - wait if path > wait else 0.0
    place = queue_wait(load.rate, hold, most * second, load.answer_spread)
    place += (1 - exp(-batch)) * step / 2
    return Pools(
        reading=load.rate / first * read,
        sending=load.rate / ports * sent,
        decoding=rate * hold / most,
        batch=batch,
        wait=wait,
        prefill=read,
        moved=sent + path + place,
        rest=decoded,
    )
