"""Prompts that begin alike: how many requests find their prefix stored, and what a first token then takes."""

from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import numpy as np

from lib_dlhpc.explore.blocks.bars import stacks
from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, on_bench
from lib_dlhpc.explore.blocks.charts import State, marked
from lib_dlhpc.explore.blocks.lines import line_columns
from lib_dlhpc.explore.serving.served import COLORS, named, service
from lib_dlhpc.serving import Reuse, Service, ServiceTrace, simulate_service
from lib_dlhpc.serving.predict import room_of
from lib_dlhpc.serving.prefix import bytes_of_token, reuse_of
from lib_dlhpc.serving.price import Prices, StepTime
from lib_dlhpc.spec.units import format_quantity as show

SHARED = (1024, 2048, 4096, 8192)
OWN = (128, 512, 2048)
PREFIXES = (1, 4, 16, 64, 256)
EVERY = tuple(round(2 ** (k / 2)) for k in range(17))  # of the lines
MEMORIES: dict[str, dict[str, str]] = {
    "H100": {"machine": "h100-pod", "cache": "bf16"},
    "H100 with an fp8 cache": {"machine": "h100-pod", "cache": "fp8"},
    "H200": {"machine": "h200-pod", "cache": "bf16"},
}
BLOCK = 16  # tokens: the default of vLLM (Kwon et al. 2023, section 7.2)
ANSWER, RATE, SEED = 8, 2.0, 1  # tokens of a label or a call of a tool; requests/s
COUNT, FILLING = 240, 120  # requests simulated, and those of them that come while the memory fills
FULL, HIT, MEAN = "nothing stored", "prefix stored", "on average"


class Setting(NamedTuple):
    """Requests to Llama 3 8B, each with one of several prefixes, all as frequent."""

    shared: Annotated[int, Slider("Shared", "First tokens of a prompt", SHARED)] = 8192
    own: Annotated[int, Slider("Own", "Tokens after them, and no others have", OWN)] = 512
    prefixes: Annotated[int, Slider("Prefixes", "Different beginnings", PREFIXES)] = 64
    memory: Annotated[str, Dropdown("Memory", "Which holds the blocks", tuple(MEMORIES))] = "H100"


@on_bench(Setting(), "serving_first", "serving_hits", fine="")
def begin_alike(setting: Setting) -> View:
    """Look for where the lines fall: from there on, prefixes push each other out."""
    reuse, first, seen = stored(setting), means(setting), simulated(setting)
    words = (
        f"<b>{reuse.hit:.0%} of the requests find their prefix;</b> simulated, {hits(seen):.0%}. The first token then"
        f" takes {show(first[HIT].total, 's')} instead of {show(first[FULL].total, 's')}: on average"
        f" {show(first[MEAN].total, 's')}, {gain(setting):.3g} times as soon. The memory holds what"
        f" {reuse.requests:,.0f} requests have used."
    )
    wall = ""
    if reuse.hit < 0.5:
        wall = (
            f"Memory: the prefixes would take {show(wanted(setting), 'B')}, and {show(room(setting), 'B')} are left"
            " beside the weights. Most blocks are evicted before their prefix comes again."
        )
    charts = {"serving_first": first_state(setting), "serving_hits": hits_state(setting)}
    needed, left = show(wanted(setting), "B"), show(room(setting), "B")
    fine = f"All prefixes would take {needed}; {left} are left beside the weights."
    return View(words, wall, charts, fine)


def served(setting: Setting) -> Service:
    """Return the service of a setting."""
    memory, load = MEMORIES[setting.memory], dict[str, Any]()
    load |= {"prompt": setting.shared + setting.own, "answer": ANSWER, "rate": RATE}
    load |= {"shared": setting.shared, "prefixes": setting.prefixes, "count": COUNT, "seed": SEED}
    more = {"cache_precision": memory["cache"], "prefix_block": BLOCK}
    return service("llama3-8b", memory["machine"], load, **more)


@lru_cache(maxsize=64)
def _room(setting: Setting) -> tuple[Prices, float]:
    own = served(setting)
    prices = Prices(own)
    return prices, room_of(own, prices)


def room(setting: Setting) -> float:
    """Return the bytes that are left for keys and values."""
    return _room(setting._replace(prefixes=PREFIXES[0]))[1]


def wanted(setting: Setting) -> float:
    """Return the bytes of all prefixes."""
    prices, _ = _room(setting._replace(prefixes=PREFIXES[0]))
    return setting.prefixes * setting.shared * bytes_of_token(prices)


def stored(setting: Setting) -> Reuse:
    """Return how many requests fit the memory, and find their prefix there."""
    prices, left = _room(setting._replace(prefixes=PREFIXES[0]))
    return reuse_of(served(setting), prices, left)


def means(setting: Setting) -> dict[str, StepTime]:
    """Return the step that ends with the first token: of a prompt computed in full, of its own part, and the mean."""
    prices, _ = _room(setting._replace(prefixes=PREFIXES[0]))
    reuse, prompt = stored(setting), setting.shared + setting.own
    full, rest = prices.prefill(prompt), prices.prefill(prompt, reuse.tokens)
    return {FULL: full, HIT: rest, MEAN: rest.times(reuse.hit) + full.times(1 - reuse.hit)}


def gain(setting: Setting) -> float:
    """Return how many times as soon the mean first token comes as with nothing stored."""
    first = means(setting)
    return first[FULL].total / first[MEAN].total


@lru_cache(maxsize=1)
def simulated(setting: Setting) -> ServiceTrace:
    """Return the simulated requests of a setting."""
    return simulate_service(served(setting))


def hits(trace: ServiceTrace) -> float:
    """Return the part of the requests that found a prefix, once the memory is full."""
    return float(np.mean(trace.reused[FILLING:] > 0))


def first_state(setting: Setting) -> State:
    """Return what a first token waits for, with nothing, with its prefix stored, and on average."""
    rows = {name: named(step) for name, step in means(setting).items()}
    data = stacks(rows, COLORS, "s")
    each = map(": ".join, zip(rows, data["sums"]["words"], strict=True))
    return data, f"The first token, of a prompt that waits for no other: {'; '.join(each)}."


def hits_state(setting: Setting) -> State:
    """Return the part of the requests that find their prefix against the number of prefixes, for each memory."""
    curves = {}
    for name in MEMORIES:
        every = [stored(setting._replace(memory=name, prefixes=many)).hit for many in EVERY]
        curves[name] = (np.array(EVERY), np.array(every))
    seen = hits(simulated(setting))
    late = setting.prefixes > PREFIXES[2]
    data = {**line_columns(curves)}
    data["now"] = marked(f"{seen:.0%} simulated", late, 10, x=setting.prefixes, y=seen)
    ends = "; ".join(f"{name} {y[0]:.0%} to {y[-1]:.0%}" for name, (_, y) in curves.items())
    return data, f"Requests that find their prefix, with 1 to {EVERY[-1]} prefixes: {ends}."
