"""A busy service, simulated: latency against the arrival rate for three ways of batching, and its batch over time."""

from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import numpy as np

from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, on_bench
from lib_dlhpc.explore.blocks.charts import Data, State, columns, marked
from lib_dlhpc.explore.blocks.lines import line_columns
from lib_dlhpc.explore.serving.served import service
from lib_dlhpc.serving import ServiceTrace, simulate_service
from lib_dlhpc.spec.units import format_plain as plain
from lib_dlhpc.spec.units import format_quantity as show

RATES = (8, 16, 24, 32, 48)
BATCHES = (4, 16, 64)
PROMPTS = (256, 1024, 4096)
ANSWER, SPREAD, COUNT, SEED = 64, 1.0, 48, 1  # tokens, standard deviation over mean, requests
STATIC, CONTINUOUS, CHUNKED = "static", "continuous", "continuous + chunks"
CHUNK = 512
BATCHINGS: dict[str, dict[str, Any]] = {
    STATIC: {"batching": "static"},
    CONTINUOUS: {"batching": "continuous"},
    CHUNKED: {"batching": "continuous", "chunk": CHUNK},
}
FIRST, EACH, PAUSE = "first token, 90%", "each token after, mean", "longest pause, 90%"
PATIENCE = 1.0  # s that a user waits for a first token
FINE = f"9 of 10 users see a first token within {PATIENCE:g} s."


class Setting(NamedTuple):
    """Requests to Llama 3 8B on one H100. shown: which latency the first chart has."""

    rate: Annotated[int, Slider("Requests/s", "Arrive at random", RATES)] = 16
    batching: Annotated[str, Dropdown("Batching", "When a request may start", tuple(BATCHINGS))] = (
        STATIC
    )
    batch: Annotated[int, Slider("Largest batch", "Sequences decoded at once", BATCHES)] = 16
    prompt: Annotated[int, Slider("Prompt", "Tokens of each", PROMPTS)] = 1024
    shown: Annotated[str, Dropdown("Latency", "Of the first chart", (FIRST, EACH, PAUSE))] = FIRST


class Felt(NamedTuple):
    """What users feel, s: to the first token (90% wait less), a token after it, the longest pause (90% less)."""

    first: float
    each: float
    pause: float

    def of(self, shown: str) -> float:
        """Return the one that is shown."""
        return {FIRST: self.first, EACH: self.each, PAUSE: self.pause}[shown]


@on_bench(Setting(), "serving_latency", "serving_batch", fine=FINE)
def busy_service(setting: Setting) -> View:
    """Look for where each line turns up: there requests wait for requests."""
    trace, own = simulated(setting), felt(setting)
    words = (
        f"<b>9 of 10 users see a first token within {show(own.first, 's')},</b> then a token each"
        f" {show(own.each, 's')}."
        f" The mean step decodes {trace.mean_batch:.3g} of at most {setting.batch} sequences;"
        f" {plain(trace.tokens_per_second)} tokens/s. For 1 of 10 the answer pauses for"
        f" {show(own.pause, 's')} or longer."
    )
    charts = {"serving_latency": latency_state(setting), "serving_batch": batch_state(setting)}
    return View(words, wall_of(setting), charts)


def wall_of(setting: Setting) -> str:
    """Say why users wait for too long, or nothing."""
    own, trace = felt(setting), simulated(setting)
    if own.first <= PATIENCE:
        return ""
    why = "the queue grows as long as requests arrive so fast"
    if setting.batching == STATIC and trace.mean_batch < setting.batch / 2:
        why = "a batch ends only with its longest answer, and until then places stay empty"
    return f"Queue: 1 of 10 users waits {show(own.first, 's')} or longer for a first token: {why}."


@lru_cache(maxsize=4)
def _simulated(rate: int, batching: str, batch: int, prompt: int) -> ServiceTrace:
    load = {"rate": float(rate), "prompt": prompt, "answer": ANSWER, "answer_spread": SPREAD}
    load |= {"count": COUNT, "seed": SEED}
    return simulate_service(
        service("llama3-8b", "h100-pod", load, batch=batch, **BATCHINGS[batching])
    )


def simulated(setting: Setting) -> ServiceTrace:
    """Return the simulated requests of a setting; the same whichever latency is shown."""
    return _simulated(setting.rate, setting.batching, setting.batch, setting.prompt)


@lru_cache(maxsize=512)
def _felt(setting: Setting) -> Felt:
    trace = simulated(setting)
    pauses = [
        longest_pause(trace, each.first, each.end) for each in trace.requests if each.answer > 1
    ]
    return Felt(
        float(np.percentile(trace.ttft, 90)),
        float(np.mean(trace.tpot)),
        float(np.percentile(pauses, 90)),
    )


def felt(setting: Setting) -> Felt:
    """Return what users of a setting feel."""
    return _felt(setting._replace(shown=FIRST))


def longest_pause(trace: ServiceTrace, first: float, end: float) -> float:
    """Return the longest time (s) between two tokens of a request that got its tokens from `first` to `end`."""
    ends = [step.end for step in trace.steps if step.sequences and first < step.end <= end]
    return float(np.max(np.diff([first, *ends])))


def latency_state(setting: Setting) -> State:
    """Return a latency against the arrival rate, for the ways of batching."""
    curves = {}
    for name in BATCHINGS:
        ways = [setting._replace(batching=name, rate=rate) for rate in RATES]
        curves[name] = (np.array(RATES), np.array([felt(way).of(setting.shown) for way in ways]))
    here = felt(setting).of(setting.shown)
    late = setting.rate > RATES[len(RATES) // 2]
    now = marked(show(here, "s"), late, 10, x=setting.rate, y=here)
    data = {**line_columns(curves), "now": now}
    said = "; ".join(
        f"{name} {show(felt(setting._replace(batching=name)).of(setting.shown), 's')}"
        for name in BATCHINGS
    )
    return data, f"{setting.shown.capitalize()}, at {setting.rate} requests/s: {said}."


def batch_state(setting: Setting) -> State:
    """Return over time how many sequences are decoded, and how many requests are in the queue."""
    trace = simulated(setting)
    rows = [
        {"x": step.start, "running": step.running, "queued": step.queued} for step in trace.steps
    ]
    changed = [
        row
        for row, before in zip(rows, [{}, *rows], strict=False)
        if (row["running"], row["queued"]) != (before.get("running"), before.get("queued"))
    ]
    steps = columns([*changed, {"x": trace.end, "running": 0, "queued": 0}])
    data: Data = {
        "running": {"x": steps["x"], "y": steps["running"]},
        "queued": {"x": steps["x"], "y": steps["queued"]},
        "most": {"y": [setting.batch], "words": [f"largest batch {setting.batch}"]},
    }
    longest = max(steps["queued"])
    return data, (
        f"{setting.batching.capitalize()}: {COUNT} requests in {show(trace.end, 's')}; at most {max(steps['running'])}"
        f" in the batch, {longest} in the queue."
    )
