"""The cache of keys and values as a wall: what fills the memory of a GPU, and tokens/s until it is full."""

from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.bars import stacks
from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, on_bench
from lib_dlhpc.explore.blocks.charts import State, columns, marked
from lib_dlhpc.explore.blocks.lines import line_columns
from lib_dlhpc.explore.serving.phases import sequences
from lib_dlhpc.explore.serving.served import WORDS, Network, Weights, bytes_read, service
from lib_dlhpc.results.palette import BACKWARD, FORWARD, GRADIENTS, IDLE
from lib_dlhpc.serving.predict import activations_of, room_of
from lib_dlhpc.serving.price import Prices
from lib_dlhpc.spec.units import format_plain as plain
from lib_dlhpc.spec.units import format_quantity as show

CACHES = {"bf16, 2 bytes": "bf16", "fp8, 1 byte": "fp8"}
GPUS = (1, 2, 4, 8)
TOKENS = tuple(2**k for k in range(9, 18))
HEADS = {"llama3-8b": (32, 8), "llama2-13b": (40, 40), "llama3-70b": (64, 8)}  # of queries, of keys
MULTI, GROUPED, SHARED = "multi-head", "grouped", "one for all"
MEMORY = {
    "weights": BACKWARD,
    "activations": FORWARD,
    "cache": GRADIENTS,
    "driver and workspace": IDLE,
}
FEW = 8  # sequences: fewer hardly share the reading of the weights


class Setting(NamedTuple):
    """A replica on H100. gpus: tensor-parallel ranks; tokens: of each sequence, prompt and answer."""

    network: Network = "llama3-8b"
    gpus: Annotated[int, Slider("GPUs", "H100, tensor parallel", GPUS)] = 1
    weights: Weights = "bf16"
    cache: Annotated[str, Dropdown("Cache", "Bytes of each number", CACHES)] = "bf16"
    tokens: Annotated[int, Slider("Tokens", "Of a sequence", TOKENS)] = 4096


class Fit(NamedTuple):
    """A replica: bytes of a GPU by what fills it, of the cache of a sequence, and how many sequences fit."""

    memory: dict[str, float]
    sequence: float
    fitting: int
    prices: Prices


@on_bench(Setting(), "serving_memory", "serving_batches", fine="")
def sequences_fit(setting: Setting) -> View:
    """Look for where each line ends: there the memory is full."""
    own = fit(setting, heads_of(setting))
    alone, full = (
        own.prices.decode(batch, setting.tokens).total for batch in (1, max(own.fitting, 1))
    )
    fit_or_fits = "fits" if own.fitting == 1 else "fit"
    words = (
        f"<b>{sequences(own.fitting).capitalize()} of {setting.tokens:,} tokens {fit_or_fits},</b>"
        f" {show(own.sequence, 'B')} of cache each on each GPU. Together they get {plain(own.fitting / full)} tokens/s,"
        f" a step takes {show(full, 's')}; one alone gets {plain(1 / alone)} tokens/s."
    )
    wall = ""
    if own.fitting < FEW:
        tokens = f"{own.fitting or 'no'} token{'s' * (own.fitting != 1)}"
        wall = (
            f"Memory: {sequences(own.fitting)} fill it. Each step still reads the weights,"
            f" {show(bytes_read(own.prices.shard), 'B')} a GPU, for {tokens}."
        )
    charts = {"serving_memory": memory_state(setting), "serving_batches": batches_state(setting)}
    return View(words, wall, charts, f"{own.fitting:,} sequences share each read of the weights.")


def heads_of(setting: Setting) -> int:
    """Return the heads of keys and values of a network as it is."""
    return HEADS[setting.network][1]


def kinds(setting: Setting) -> dict[str, int]:
    """Return the heads of keys and values by kind of attention."""
    queries, _ = HEADS[setting.network]
    return {MULTI: queries, GROUPED: 8, SHARED: 1}


@lru_cache(maxsize=256)
def fit(setting: Setting, heads: int) -> Fit:
    """Return what fits with these heads of keys and values; raises SpecError where the weights do not."""
    own_heads = heads == heads_of(setting)
    model: Any = setting.network if own_heads else {"name": setting.network, "kv_heads": heads}
    load = {"prompt": setting.tokens, "answer": 1}
    serving: dict[str, Any] = {"devices": setting.gpus, "precision": setting.weights}
    own = service(model, "h100-pod", load, cache_precision=setting.cache, **serving)
    prices = Prices(own)
    sequence = prices.shard.kv_cache_bytes(setting.tokens)
    try:
        count = int(room_of(own, prices) // sequence)
    except SpecError:
        if own_heads:
            raise
        count = 0  # the weights alone are too large with these heads
    memory = {
        "weights": prices.shard.weights,
        "activations": activations_of(own, prices),
        "cache": count * sequence,
        "driver and workspace": float(own.machine.device.reserved_memory),
    }
    return Fit(memory, sequence, count, prices)


def memory_state(setting: Setting) -> State:
    """Return the bytes of a GPU, stacked, for each kind of attention that fits."""
    capacity = float(service(setting.network, "h100-pod", {}).machine.device.memory)
    fits = {
        f"{name}, {heads} head{'s' * (heads > 1)}": fit(setting, heads)
        for name, heads in kinds(setting).items()
    }
    counts = {name: sequences(own.fitting) for name, own in fits.items()}
    data = stacks({name: own.memory for name, own in fits.items()}, MEMORY, "B", words=counts)
    data["sums"]["stop"] = [capacity] * len(fits)  # behind the wall
    data["full"] = marked(show(capacity, "B"), True, 4, x=capacity)
    said = [f"{name}: {count}" for name, count in counts.items()]
    words = f"{WORDS[setting.network]}, sequences of {setting.tokens:,} tokens that fit: {'; '.join(said)}."
    return data, words


def batches_state(setting: Setting) -> State:
    """Return tokens/s against the batch for each kind of attention, up to the last batch that fits."""
    curves, ends = {}, list[dict[str, Any]]()
    for name, heads in kinds(setting).items():
        own = fit(setting, heads)
        if own.fitting:
            batches = np.unique(np.round(np.geomspace(1, own.fitting, 12)))
            steps = [own.prices.decode(int(batch), setting.tokens).total for batch in batches]
            curves[name] = (batches, batches / np.array(steps))
            last = float(curves[name][1][-1])
            ends.append({"line": name, "x": float(batches[-1]), "y": last})
    mine = fit(setting, heads_of(setting))
    if not curves:
        raise SpecError(f"Not one sequence of {setting.tokens:,} tokens fits.")
    name = next(name for name, heads in kinds(setting).items() if heads == heads_of(setting))
    data = {**line_columns(curves), "walls": columns(ends), "now": {}}
    if name in curves:
        rate = float(curves[name][1][-1])
        data["now"] = marked(f"{plain(rate)} tokens/s", True, 10, x=mine.fitting, y=rate)
    most = "; ".join(
        f"{end['line']} {plain(end['y'])} tokens/s with {end['x']:.0f}" for end in ends
    )
    return data, f"Tokens/s with as many sequences as fit: {most}."
