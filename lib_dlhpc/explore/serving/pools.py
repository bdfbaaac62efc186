"""Replicas that only read prompts beside replicas that only decode, or all of them mixed: first and next tokens."""

from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import numpy as np

from lib_dlhpc.explore.blocks.bars import stacks
from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, on_bench
from lib_dlhpc.explore.blocks.charts import State
from lib_dlhpc.explore.blocks.lines import line_columns, off_level
from lib_dlhpc.explore.serving.served import service
from lib_dlhpc.results.palette import BACKWARD, COLLECTIVES, FORWARD, IDLE, INPUT
from lib_dlhpc.serving import Load, Pools, Service, simulate_service
from lib_dlhpc.serving.load import load_of, load_of_pools
from lib_dlhpc.serving.pools import pools_of, sending
from lib_dlhpc.serving.predict import room_of
from lib_dlhpc.serving.prefix import reuse_of
from lib_dlhpc.serving.price import Prices
from lib_dlhpc.spec.units import format_quantity as show

REPLICAS, GPUS = 8, 4  # of Llama 3 70B, tensor parallel over four H100 each: four nodes
PROMPTS = (512, 2048, 8192)
RATES = (2, 4, 8, 16, 32)
LINE = tuple(float(each) for each in np.geomspace(1, 256, 33))
POOLS = (1, 2, 3, 4, 5, 6)
LINKS: dict[str, Any] = {
    "InfiniBand, 400 Gb/s a GPU": {"name": "ib-ndr", "latency": "10 us"},
    "Ethernet, 100 Gb/s a GPU": "ethernet-100g",
    "Ethernet, 25 Gb/s a GPU": "ethernet-25g",
}
LIMITS = (15, 20, 50)  # ms
ANSWER, COUNT, SEED, CHUNK, BATCH = 64, 48, 1, 512, 64
PATIENCE = 2.0  # s that a user waits for a first token
MIXED, CHUNKED, APART = "mixed", "mixed + chunks", "two pools"
FIRST, EACH = "first token", "each token after"
QUEUE, PROMPT, SENT, DECODE, OTHERS = (
    "queue",
    "own prompt",
    "cache sent",
    "decode",
    "prompts of others",
)
PARTS = {QUEUE: IDLE, PROMPT: FORWARD, SENT: COLLECTIVES, DECODE: BACKWARD, OTHERS: INPUT}


class Setting(NamedTuple):
    """Llama 3 70B on 32 H100, eight replicas. pool: replicas that only read prompts; limit: ms of a token."""

    prompt: Annotated[int, Slider("Prompt", "Tokens of each", PROMPTS)] = 2048
    rate: Annotated[int, Slider("Requests/s", "Arrive at random", RATES)] = 16
    pool: Annotated[int, Slider("Prefill replicas", "Of 8; the others decode", POOLS)] = 4
    link: Annotated[str, Dropdown("Network", "Between the pools", tuple(LINKS))] = next(iter(LINKS))
    limit: Annotated[int, Slider("Limit", "Of a token after the first", LIMITS, "{} ms".format)] = (
        15
    )
    shown: Annotated[str, Dropdown("Latency", "Of the first chart", (EACH, FIRST))] = EACH


@on_bench(Setting(), "serving_pools", "serving_apart", fine="")
def two_pools(setting: Setting) -> View:
    """Look for which line stays below the limit longest, and which part of the bars the two pools remove."""
    own, (first, each) = load(setting, APART), simulated(setting, APART)
    both = f"{setting.pool} + {REPLICAS - setting.pool} replicas"
    if own.saturated:
        words = f"<b>{both} are saturated by {setting.rate} requests/s.</b> {best_words(setting)}"
        return View(words, wall_of(setting), charts_of(setting))
    mixed = load(setting, MIXED)
    beside = (
        "saturated" if mixed.saturated else f"{show(mixed.ttft, 's')}, then {show(mixed.tpot, 's')}"
    )
    words = (
        f"<b>{both}: the first token after {show(own.ttft, 's')}, then one each {show(own.tpot, 's')}</b> (simulated"
        f" {show(first, 's')} and {show(each, 's')}); {REPLICAS} mixed ones:"
        f" {beside}. A cache of {show(cache(setting), 'B')} travels for {show(way(setting), 's')}."
        f" {best_words(setting)}"
    )
    fine = "Tokens of an answer wait for no prompt of another."
    return View(words, wall_of(setting), charts_of(setting), fine)


def charts_of(setting: Setting) -> dict[str, State]:
    """Return both charts."""
    return {"serving_pools": pools_state(setting), "serving_apart": apart_state(setting)}


def wall_of(setting: Setting) -> str:
    """Say which part of the two pools cannot go on, or which limit is passed, or nothing."""
    found = both_pools(setting)
    busy = {
        "replicas that read prompts": found.reading,
        "the network between the pools": found.sending,
        "replicas that decode": found.decoding,
    }
    name = max(busy, key=lambda each: busy[each])
    if busy[name] >= 1:
        return f"Queue: {name} would have to be busy {busy[name]:.0%} of the time; the queue grows without end."
    tpot = load(setting, APART).tpot
    if 1e3 * tpot > setting.limit:
        return f"Latency: a token takes {show(tpot, 's')}; the limit is {setting.limit} ms."
    return ""


def served(setting: Setting, way_of: str, rate: float) -> Service:
    """Return the service of a setting, for one of the three ways to use the replicas."""
    tables: dict[str, Any] = {"name": "h100-pod", "inter_node": LINKS[setting.link]}
    requests = {"prompt": setting.prompt, "answer": ANSWER, "rate": rate, "count": COUNT}
    more = {"chunk": CHUNK} if way_of == CHUNKED else {}
    if way_of == APART:
        more = {"prefill_replicas": setting.pool}
    serving = {"devices": GPUS, "replicas": REPLICAS, "batch": BATCH, **more}
    return service("llama3-70b", tables, {**requests, "seed": SEED}, **serving)


def _alike(setting: Setting, way_of: str) -> Setting:
    """Return the setting without what changes nothing for a way."""
    first = Setting()
    found = setting._replace(limit=first.limit, shown=first.shown)
    return found if way_of == APART else found._replace(pool=first.pool, link=first.link)


@lru_cache(maxsize=1)
def prices() -> Prices:
    """Return the prices of a step of one replica, which are the same in all settings."""
    return Prices(served(Setting(), MIXED, 1.0))


@lru_cache(maxsize=512)
def _predicted(setting: Setting, way_of: str, rate: float) -> tuple[Load, Pools | None]:
    own = served(setting, way_of, rate)
    reuse = reuse_of(own, prices(), room_of(own, prices()))
    most = min(BATCH, int(reuse.requests))
    if way_of != APART:
        return load_of(own, prices(), reuse, most), None
    pools = pools_of(own, prices(), most)
    return load_of_pools(own, pools, 0.0, np.inf), pools


def load(setting: Setting, way_of: str, rate: float = 0.0) -> Load:
    """Return the steady state of a way, at the setting's rate or another."""
    alike = _alike(setting, way_of)._replace(rate=RATES[0])
    return _predicted(alike, way_of, rate or float(setting.rate))[0]


def both_pools(setting: Setting) -> Pools:
    """Return the steady state of the two pools."""
    found = _predicted(_alike(setting, APART)._replace(rate=RATES[0]), APART, float(setting.rate))[
        1
    ]
    assert found is not None  # it has two pools
    return found


@lru_cache(maxsize=64)
def _simulated(setting: Setting, way_of: str) -> tuple[float, float]:
    trace = simulate_service(served(setting, way_of, float(setting.rate)))
    return float(trace.ttft.mean()), float(trace.tpot.mean())


def simulated(setting: Setting, way_of: str) -> tuple[float, float]:
    """Return the mean seconds to a first token, and of each after it, of the simulated requests of a way."""
    return _simulated(_alike(setting, way_of), way_of)


def way(setting: Setting) -> float:
    """Return the s that the cache of a prompt travels."""
    return sending(served(setting, APART, 1.0), prices())(setting.prompt)


def cache(setting: Setting) -> float:
    """Return the bytes of the cache of a prompt, of all GPUs of a replica."""
    return GPUS * prices().kv_cache_bytes(setting.prompt)


def sustained(setting: Setting, way_of: str) -> float:
    """Return the largest rate of LINE at which both latencies are within their limits; 0: none."""
    rate = 0.0
    for each in LINE:
        found = load(setting, way_of, each)
        if found.saturated or found.ttft > PATIENCE or 1e3 * found.tpot > setting.limit:
            break
        rate = each
    return rate


def best(setting: Setting) -> tuple[int, float]:
    """Return the number of prefill replicas that sustains the largest rate within the limits, and that rate."""
    every = {pool: sustained(setting._replace(pool=pool), APART) for pool in POOLS}
    pool = max(every, key=lambda each: every[each])
    return pool, every[pool]


def best_words(setting: Setting) -> str:
    """Say which rate each way sustains within the limits."""
    mixed, chunks, own = (rounded(sustained(setting, each)) for each in (MIXED, CHUNKED, APART))
    pool, most = best(setting)
    return (
        f"Within {PATIENCE:g} s and {setting.limit} ms: mixed {mixed} requests/s, with chunks {chunks}, these"
        f" pools {own}; the best pools, {pool} + {REPLICAS - pool}, {rounded(most)}."
    )


def rounded(rate: float) -> str:
    """Return a rate with as many digits as the steps of LINE have."""
    return f"{rate:.0f}" if rate >= 10 else f"{rate:.2g}"


def shown_of(setting: Setting, found: Load) -> float:
    """Return the latency that is shown, s."""
    return found.ttft if setting.shown == FIRST else found.tpot


def pools_state(setting: Setting) -> State:
    """Return a latency against the rate for each way, predicted, and simulated at the setting's rate."""
    curves, now = {}, dict[str, float]()
    for name in (MIXED, CHUNKED, APART):
        every = [(rate, load(setting, name, rate)) for rate in LINE]
        points = [(rate, shown_of(setting, found)) for rate, found in every if not found.saturated]
        curves[name] = (np.array([x for x, _ in points]), np.array([y for _, y in points]))
        first, each = simulated(setting, name)
        now[name] = first if setting.shown == FIRST else each
    limit = PATIENCE if setting.shown == FIRST else setting.limit / 1e3
    data = {
        **off_level(line_columns(curves), limit),
        "limit": {"y": [limit], "words": [f"limit {show(limit, 's')}"]},
    }
    data["now"] = {"line": list(now), "x": [setting.rate] * len(now), "y": list(now.values())}
    said = "; ".join(f"{name} {show(value, 's')}" for name, value in now.items())
    return data, f"{setting.shown.capitalize()} at {setting.rate} requests/s, simulated: {said}."


def parts(setting: Setting, way_of: str) -> dict[str, float]:
    """Return what the mean answer waits for, s, predicted; nothing where requests come too fast."""
    own, steps = load(setting, way_of), ANSWER - 1
    if own.saturated:
        return dict.fromkeys(PARTS, 0.0)
    prompt = own.ttft - own.wait
    if way_of == APART:
        pools = both_pools(setting)
        named = (own.wait, prompt, pools.moved, pools.rest, 0.0)
        return dict(zip(PARTS, named, strict=True))
    decode = steps * prices().decode(max(1, round(own.batch)), setting.prompt + ANSWER / 2).total
    others = max(0.0, steps * own.tpot - decode)
    return dict(zip(PARTS, (own.wait, prompt, 0.0, decode, others), strict=True))


def apart_state(setting: Setting) -> State:
    """Return what the mean answer waits for, for each way."""
    rows = {name: parts(setting, name) for name in (MIXED, CHUNKED, APART)}
    over = {name: "saturated" for name, row in rows.items() if not sum(row.values())}
    data = stacks(rows, PARTS, "s", words=over)
    each = map(": ".join, zip(rows, data["sums"]["words"], strict=True))
    return data, f"An answer of {ANSWER} tokens, predicted: {'; '.join(each)}."
