"""A service to plan: a model, a node of eight devices, a load that never ends, and a latency that users accept.

tasks_of(seed, hidden)                 the services of a learner; hidden: one that is not shown
size_of, gpu_of, load_of, allreduce    what a learner's functions are given of it
service_of(task, plan)                 one replica, full all the time
served(task, plan)                     what the library's simulator says of a plan
best(task)                             the plan with the most tokens a second within the latency

The lab's devices start kernels in no time and compute at one rate whatever the shape of a product: what is left is the
roofline. Norms and the arithmetic of attention stay in, as what a learner's step leaves out.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache
from math import inf
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.costs.groups import collective
from lib_dlhpc.errors import SpecError
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.serving import Prices, Service, ServiceTrace, read_service
from lib_dlhpc.serving.predict import activations_of
from lib_dlhpc.serving.service import WIDTH, is_attention
from lib_dlhpc.serving.simulate import ExecutedStep, ran, requests_of, scheduler_of, seconds_of

NODE = 8  # devices
DEVICES = (1, 2, 4, 8)  # of a replica
BATCHES = (4, 8, 12, 16, 24, 32, 48, 64, 96)
CHUNK = 512  # most tokens of prompts in a step
FULL = 2  # requests for each place of a batch
PERCENTILE = 99
SPREAD = 0.5  # of prompts and answers: standard deviation over mean
MODELS = ("llama3-8b", "llama2-13b", "llama2-70b", "llama3-70b", "qwen2.5-72b")
MACHINES = ("h100-pod", "h200-pod")
PRECISION = "bf16"
Plan = dict[str, int]


class Task(NamedTuple):
    """A service. prompt, answer: mean tokens. limit: s that a token may take, at the 99th percentile of requests."""

    model: str
    machine: str
    prompt: int
    answer: int
    limit: float = inf


class Served(NamedTuple):
    """A plan in the simulator. p99: s a token of the answers, at the 99th percentile; infinite where it does not fit.

    tokens_per_second: of the answers, of the whole node, while requests wait. tpot: mean s of a step, decoding: mean
    sequences in it.
    """

    p99: float
    tokens_per_second: float
    tpot: float
    decoding: float
    preemptions: int
    why: str = ""


def counted(many: int, what: str) -> str:
    """Return "1 device", "2 devices"."""
    return f"{many} {what}{'s' * (many != 1)}"


PLANS = tuple({"devices": d, "batch": b} for d in DEVICES for b in BATCHES)


def plan_of(found: Any) -> tuple[int, int]:
    """Return devices and batch of a plan. Raises LabError for what is none."""
    if not isinstance(found, dict) or found not in PLANS:
        legal = f"devices {', '.join(map(str, DEVICES))}; batch {', '.join(map(str, BATCHES))}"
        raise LabError(f"{str(found)[:80]} is not a plan: a plan is one of `plans`, with {legal}.")
    return int(found["devices"]), int(found["batch"])


@lru_cache(maxsize=64)
def service_of(task: Task, devices: int, batch: int) -> Service:
    """Return one replica on the lab's devices, with requests that wait from the start to the end."""
    serving = {"devices": devices, "batch": batch, "chunk": CHUNK, "precision": PRECISION}
    requests = {"rate": 0, "prompt": task.prompt, "answer": task.answer, "count": FULL * batch + 32}
    tables = {
        "model": {"name": task.model},
        "machine": {"name": task.machine},
        "service": serving,
        "requests": requests | {"prompt_spread": SPREAD, "answer_spread": SPREAD},
    }
    service = read_service(tables)
    device = replace(service.machine.device, half_work=0.0, launch=0.0, overhead=0.0)
    device = replace(device, dispatch=0.0, multiprocessors=0)
    return replace(service, machine=replace(service.machine, device=device))


@lru_cache(maxsize=64)
def prices_of(task: Task, devices: int) -> Prices:
    """Return the prices of steps on a replica."""
    return Prices(service_of(task, devices, BATCHES[0]))


def size_of(task: Task) -> dict[str, int]:
    """Return what a learner knows of the model.

    weights: those that a step reads, without the table of the embedding. head: numbers of one head. bytes: of a number.
    """
    model = service_of(task, 1, BATCHES[0]).model
    attention = [each for each in model.layers if is_attention(each.kind)]
    heads, hidden = attention[0].attributes["heads"], model.layers[0].output_shape[-1]
    return {
        "layers": len(attention),
        "hidden": int(hidden),
        "heads": int(heads),
        "kv_heads": int(attention[0].attributes["kv_heads"]),
        "head": int(hidden) // int(heads),
        "weights": int(model.parameters - model.layers[0].parameters),
        "bytes": int(WIDTH[PRECISION]),
    }


def gpu_of(task: Task) -> dict[str, float]:
    """Return what a learner knows of a device: FLOP/s that products reach, B/s of memory, B for weights and cache."""
    prices = prices_of(task, 1)
    device = prices.device
    wide = activations_of(service_of(task, 1, BATCHES[-1]), prices)
    return {
        "flops": float(device.efficiency * device.peak[PRECISION]),
        "bandwidth": prices.bandwidth,
        "memory": float(device.memory - device.reserved_memory) - wide,
    }


def load_of(task: Task) -> dict[str, int]:
    """Return what a learner knows of the load; chunk: most tokens of prompts in a step."""
    return {"prompt": task.prompt, "answer": task.answer, "chunk": CHUNK}


def allreduce_of(task: Task) -> Callable[[float, int], float]:
    """Return a function: s of an allreduce of a buffer, in B, over the devices of a replica."""

    def allreduce(size: float, devices: int) -> float:
        if devices not in DEVICES:
            raise LabError(f"allreduce over {devices} devices; legal: 1, 2, 4, 8.")
        return exchanged(task, float(size), int(devices))

    return allreduce


@lru_cache(maxsize=4096)
def exchanged(task: Task, size: float, devices: int) -> float:
    """Return the seconds of an allreduce."""
    return float(collective("allreduce", size, prices_of(task, devices).net).total)


@cache
def served(task: Task, devices: int, batch: int) -> Served:
    """Return what the simulator says of a plan."""
    try:
        trace = simulated(service_of(task, devices, batch), prices_of(task, devices))
    except SpecError as error:
        return Served(inf, 0.0, inf, 0.0, 0, str(error).partition("; legal")[0])
    seconds, tokens, steps = _full(trace)
    p99, rate = float(np.percentile(trace.tpot, PERCENTILE)), NODE // devices * tokens / seconds
    return Served(p99, rate, seconds / steps, tokens / steps, trace.preemptions)


def simulated(service: Service, prices: Prices) -> ServiceTrace:
    """Return simulate_service(service) of one replica that has all its requests from the start; prices are kept.

    Raises SpecError for a model or a request that does not fit.
    """
    scheduler, requests = scheduler_of(service, prices), requests_of(service)
    steps, now = list[ExecutedStep](), 0.0
    for request in requests:
        scheduler.add(request)
    while (step := scheduler.next_step()) is not None:
        row, start = (len(scheduler.running), len(scheduler.queue)), now
        now += seconds_of(prices, step)
        scheduler.done(step, now)
        steps.append(ran(step, 0, start, now, *row))
    return ServiceTrace(service, tuple(requests), tuple(steps))


def _full(trace: ServiceTrace) -> tuple[float, int, int]:
    """Return seconds, tokens and steps of the time in which requests wait and answers end."""
    first = min(each.end for each in trace.requests)
    steps = [each for each in trace.steps if each.queued and each.start >= first] or trace.steps
    return sum(x.end - x.start for x in steps), sum(x.sequences for x in steps), len(steps)


@cache
def best(task: Task) -> tuple[int, int]:
    """Return devices and batch of the plan with the most tokens a second within the limit."""
    found = [(devices, _largest(task, devices)) for devices in DEVICES]
    fitting = [(served(task, *plan).tokens_per_second, plan) for plan in found if plan[1]]
    return max(fitting)[1]


def _largest(task: Task, devices: int) -> int:
    """Return the largest batch of a replica within the limit, 0 if there is none."""
    low, high = 0, len(BATCHES)  # how many are within it
    while low < high:
        middle = (low + high + 1) // 2
        within = served(task, devices, BATCHES[middle - 1]).p99 <= task.limit
        low, high = (middle, high) if within else (low, middle - 1)
    return BATCHES[low - 1] if low else 0


@cache
def tasks_of(seed: int, hidden: bool = False) -> tuple[Task, ...]:
    """Return the services of a learner: one that is shown, or one that is hidden."""
    rng = np.random.default_rng([seed, 11, hidden])

    def one(*values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    answer = one(48, 64, 96)  # so that a chunk is longer than the prompts of a mean step
    plain = Task(one(*MODELS), one(*MACHINES), one(3, 4) * answer, answer)
    fitting = [each for each in DEVICES if served(plain, each, BATCHES[0]).p99 < inf]
    near = served(plain, one(*fitting), one(16, 24, 32, 48))
    return (plain._replace(limit=float(f"{1.02 * near.p99:.3g}")),)
