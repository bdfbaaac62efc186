"""Two phases of an answer: a prompt in one pass, then token by token, below the roof of a GPU and on a time axis."""

from functools import lru_cache
from typing import Annotated, Any, NamedTuple

from lib_dlhpc.costs import peak_rate
from lib_dlhpc.explore.blocks.bars import stacks
from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, on_bench
from lib_dlhpc.explore.blocks.charts import Data, State, columns
from lib_dlhpc.explore.serving.served import (
    COLORS,
    GPUS,
    TERMS,
    Network,
    Weights,
    bytes_read,
    named,
    service,
)
from lib_dlhpc.serving import Service
from lib_dlhpc.serving.predict import room_of
from lib_dlhpc.serving.price import Prices, StepTime
from lib_dlhpc.spec.units import format_plain as plain
from lib_dlhpc.spec.units import format_quantity as show

BATCHES = tuple(2**k for k in range(9))
Batch = Annotated[int, Slider("Batch", "Sequences decoded at once", BATCHES)]
PROMPTS = tuple(2**k for k in range(7, 16))
ANSWER = 256  # tokens
WIDEST = (0.5, 20_000.0)  # FLOP/B of the picture
PREFILL, DECODE = "prefill", "decode"


class Setting(NamedTuple):
    """Sequences on one GPU. batch: how many are decoded at once; prompt: tokens of each before its answer."""

    network: Network = "llama3-8b"
    gpu: Annotated[str, Dropdown("GPU", "One of them", GPUS)] = "h100-pod"
    weights: Weights = "bf16"
    batch: Batch = 1
    prompt: Annotated[int, Slider("Prompt", "Tokens of each", PROMPTS)] = 2048


class Point(NamedTuple):
    """A step: FLOP, bytes of weights and cache, s."""

    work: float
    moved: float
    seconds: float

    @property
    def intensity(self) -> float:
        """FLOP for each byte."""
        return self.work / self.moved

    @property
    def rate(self) -> float:
        """FLOP/s."""
        return self.work / self.seconds


@on_bench(Setting(), "serving_answer", "serving_roofline", fine="")
def two_phases(setting: Setting) -> View:
    """Look for which of the two points moves as the batch grows, and what the longer bar is made of."""
    first, rest = parts(setting)
    step = rest.total / (ANSWER - 1)
    words = (
        f"<b>The prompt takes {show(first.total, 's')}, the answer {show(rest.total, 's')}:</b> {ANSWER - 1} steps of"
        f" {show(step, 's')}, each a token for {sequences(setting.batch)}. {plain(setting.batch / step)} tokens/s while"
        " decoding."
    )
    wall, fine = bound_words(setting)
    charts = {"serving_answer": answer_state(setting), "serving_roofline": roofline_state(setting)}
    return View(words, wall, charts, fine)


def sequences(count: int) -> str:
    """Return "1 sequence", "2 sequences" ..."""
    return f"{count:,} sequence{'s' if count != 1 else ''}"


@lru_cache(maxsize=64)
def served(setting: Setting) -> tuple[Service, Prices]:
    """Return the service and its prices; raises SpecError where the weights or the batch do not fit."""
    load = {"prompt": setting.prompt, "answer": ANSWER}
    own = service(setting.network, setting.gpu, load, precision=setting.weights)
    prices = Prices(own)
    room_of(own, prices)
    return own, prices


def parts(setting: Setting) -> tuple[StepTime, StepTime]:
    """Return the seconds of one prompt, and of all steps that decode the answers of the batch."""
    _, prices = served(setting._replace(batch=1))
    return prices.prefill(setting.prompt), prices.answers(setting.batch, setting.prompt, ANSWER)


def fits(setting: Setting) -> int:
    """Return the sequences whose cache fits beside the weights."""
    own, prices = served(setting._replace(batch=1))
    return int(room_of(own, prices) // prices.shard.kv_cache_bytes(own.longest - 1))


def bound_words(setting: Setting) -> tuple[str, str]:
    """Say what decode waits for, and where it does not fit."""
    most = fits(setting)
    if most < setting.batch:
        return f"Memory: the cache of {sequences(most)} fits beside the weights.", ""
    _, rest = parts(setting)
    share = {name: seconds / rest.total for name, seconds in rest.terms.items()}
    waits = {"weights": "for the weights", "cache": "for the cache"}
    if rest.bound in waits:
        busy = share["arithmetic"] + share["attention"]
        return (
            f"Bandwidth: {share[rest.bound]:.0%} of a decode step waits {waits[rest.bound]}, {busy:.0%} for arithmetic."
            " A higher peak changes nothing."
        ), ""
    return (
        "",
        f"The largest term of a decode step: {TERMS[rest.bound][0]}, {share[rest.bound]:.0%}.",
    )


def points(setting: Setting) -> dict[str, list[tuple[int, Point]]]:
    """Return prefill by the tokens of the prompt, and decode by the batch."""
    _, prices = served(setting._replace(batch=1))
    found = {PREFILL: [(tokens, prompt_point(prices, tokens)) for tokens in PROMPTS]}
    found[DECODE] = [(batch, decode_point(prices, batch, setting.prompt)) for batch in BATCHES]
    return found


def prompt_point(prices: Prices, tokens: int) -> Point:
    """Return the step of a prompt: weights are read once, the cache is written."""
    shard = prices.shard
    moved = bytes_read(shard) + shard.kv_cache_bytes(tokens)
    return Point(prices.flop(tokens), moved, prices.prefill(tokens).total)


def decode_point(prices: Prices, batch: int, context: int) -> Point:
    """Return a step that decodes a batch: weights are read once, the cache of each sequence is read."""
    shard = prices.shard
    attended = sum(kind.layers * kind.flop * context for kind in shard.attention)
    work = batch * (float(shard.model.layer_forward_flop.sum()) + attended)
    moved = bytes_read(shard) + batch * shard.kv_cache_bytes(context)
    return Point(work, moved, prices.decode(batch, context).total)


def roofline_state(setting: Setting) -> State:
    """Return FLOP/s against FLOP a byte of both phases, below the roof of the GPU."""
    own, prices = served(setting._replace(batch=1))
    device = prices.device
    peak = float(peak_rate(device, prices.precision))
    ridge = peak / float(own.machine.device.memory_bandwidth)
    found, dots, now = points(setting), list[dict[str, Any]](), list[dict[str, Any]]()
    for name, path in found.items():
        chosen = setting.prompt if name == PREFILL else setting.batch
        unit = "tokens" if name == PREFILL else "batch"
        for size, each in path:
            words = f"{name}, {f'{size:,} tokens' if unit == 'tokens' else f'batch {size:,}'}"
            rate = f"{words}: {show(each.rate, 'FLOP/s')}"
            dot = {"line": name, "x": each.intensity, "y": each.rate, "size": size, "details": rate}
            dots.append(dot)
            if size == chosen:
                beside: dict[str, Any]
                late = each.intensity > ridge
                beside = {"side": "right", "shift": 0} if late else {"side": "left", "shift": 12}
                beside["dy"] = 20 if late else 4
                now.append({**dot, "words": words, **beside})
    least = min(dot["y"] for dot in dots)
    ends = [WIDEST[0], ridge, WIDEST[1]]
    data: Data = {
        "roof": {"x": ends, "y": [min(peak, peak * x / ridge) for x in ends]},
        "path": columns(dots),
        "now": columns(now),
        "names": {"x": [ends[0]], "y": [peak], "words": [f"peak {show(peak, 'FLOP/s')}"]},
        "room": {"x": list(WIDEST), "y": [min(least, peak * WIDEST[0] / ridge) / 2, 3 * peak]},
    }
    said = "; ".join(f"{dot['details']} at {plain(dot['x'])} FLOP per byte" for dot in now)
    return data, f"{said}. The slope ends at {plain(ridge)} FLOP per byte."


def answer_state(setting: Setting) -> State:
    """Return what the seconds of the prompt and of the answer go into."""
    names = (f"prompt of {setting.prompt:,}", f"answer of {ANSWER}")
    rows = {name: named(step) for name, step in zip(names, parts(setting), strict=True)}
    data = stacks(rows, COLORS, "s")
    each = map(" tokens: ".join, zip(names, data["sums"]["words"], strict=True))
    return data, f"{'; '.join(each)}."
