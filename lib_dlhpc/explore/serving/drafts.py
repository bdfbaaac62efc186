"""A small model drafts, a large one verifies: how many times as fast answers come, and what a token waits for."""

from functools import lru_cache
from typing import Annotated, NamedTuple

import numpy as np

from lib_dlhpc.explore.blocks.bars import stacks
from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, on_bench
from lib_dlhpc.explore.blocks.charts import State, marked
from lib_dlhpc.explore.blocks.lines import line_columns
from lib_dlhpc.explore.serving.phases import BATCHES, Batch, sequences
from lib_dlhpc.explore.serving.served import COLORS, named, service
from lib_dlhpc.results.palette import EXPERTS
from lib_dlhpc.serving import read_service
from lib_dlhpc.serving.price import Prices, StepTime
from lib_dlhpc.serving.speculate import expected_tokens, improvement
from lib_dlhpc.spec.units import format_quantity as show

TARGET, GPUS, CONTEXT = "llama3-70b", 4, 1024
MODELS = {"Llama 3.2 1B": "llama3.2-1b", "Llama 3.2 3B": "llama3.2-3b", "Llama 3 8B": "llama3-8b"}
DRAFTS = (1, 2, 3, 4, 6, 8)
ACCEPTANCES = (0.5, 0.6, 0.7, 0.8, 0.9)
PLAIN, DRAFTED, DRAFT = "without drafts", "with drafts", "draft model"
PARTS = {**COLORS, DRAFT: EXPERTS}
# gpt-fast, README.md at 0f925b5: tokens/s of Llama 2 70B in int4 on an A100, alone and with Llama 2 7B as a draft.
ALONE, TOGETHER = 25.25, 48.4


class Setting(NamedTuple):
    """Llama 3 70B in bf16 on four H100, and a draft model on the same ones."""

    draft: Annotated[str, Dropdown("Draft model", "It guesses", tuple(MODELS))] = "Llama 3.2 1B"
    drafts: Annotated[int, Slider("Drafts", "Tokens before each step", DRAFTS)] = 4
    acceptance: Annotated[
        float, Slider("Acceptance", "Of a draft, if those before it are", ACCEPTANCES)
    ] = 0.7
    batch: Batch = 1


@on_bench(Setting(), "serving_drafts", "serving_gain", fine="")
def small_and_large(setting: Setting) -> View:
    """Look for where the lines fall below 1, and which part of the lower bar grows before they do."""
    times, tokens = gain(setting), expected_tokens(setting.acceptance, setting.drafts)
    draft, verify = step(setting)
    formula = improvement(setting.acceptance, setting.drafts, cost(setting))
    words = (
        f"<b>{times:.2f} times as fast.</b> A step gives {tokens:.2f} tokens of each sequence on average:"
        f" {show(draft.total, 's')} of drafts, {show(verify.total, 's')} to verify them. Without drafts a step gives"
        f" one, in {show(plain(setting.batch).total, 's')}. If verifying took no longer than that, it would be"
        f" {formula:.2f} times."
    )
    slower = (
        f"Arithmetic: a step computes {1 + setting.drafts} tokens of {sequences(setting.batch)}, and {tokens:.2f} of"
        " each come out. That is slower than without drafts."
    )
    wall, waits = "" if times >= 1 else slower, (verify.weights + verify.cache) / verify.total
    fine = f"{waits:.0%} of the verification waits for weights and caches, which drafts do not read again."
    charts = {"serving_drafts": parts_state(setting), "serving_gain": gain_state(setting)}
    return View(words, wall, charts, fine)


@lru_cache(maxsize=8)
def alone(draft: str = "") -> Prices:
    """Return the prices of a draft model by itself, or of the large model."""
    load = {"prompt": CONTEXT, "answer": 256}
    return Prices(service(MODELS[draft] if draft else TARGET, "h100-pod", load, devices=GPUS))


@lru_cache(maxsize=64)
def plain(batch: int, draft: str = "") -> StepTime:
    """Return the seconds of a step of a draft model by itself, or of the large model."""
    return alone(draft).decode(batch, CONTEXT)


@lru_cache(maxsize=8)
def verifying(drafts: int) -> Prices:
    """Return the prices of the large model with some drafts, whichever model they are of."""
    tables = {"model": TARGET, "machine": "h100-pod", "service": {"devices": GPUS}}
    return Prices(read_service({**tables, "draft": {"name": "llama3-8b", "tokens": drafts}}))


@lru_cache(maxsize=64)
def verified(drafts: int, batch: int) -> StepTime:
    """Return the seconds of a step that verifies drafts."""
    return verifying(drafts).verify((), [CONTEXT] * batch)


def step(setting: Setting) -> tuple[StepTime, StepTime]:
    """Return the seconds of the drafts of a step, and of their verification."""
    draft = plain(setting.batch, setting.draft).times(setting.drafts)
    return draft, verified(setting.drafts, setting.batch)


def gain(setting: Setting) -> float:
    """Return how many times as fast answers come as without drafts."""
    seconds = sum(each.total for each in step(setting))
    tokens = expected_tokens(setting.acceptance, setting.drafts)
    return tokens * plain(setting.batch).total / seconds


def cost(setting: Setting) -> float:
    """Return the time of a draft over that of a step without drafts."""
    return step(setting)[0].total / setting.drafts / plain(setting.batch).total


def parts_state(setting: Setting) -> State:
    """Return what the seconds of a token go into, without and with drafts."""
    tokens = expected_tokens(setting.acceptance, setting.drafts)
    draft, verify = step(setting)
    rows = {}
    for name, one, per in ((PLAIN, plain(setting.batch), 1.0), (DRAFTED, verify, tokens)):
        rows[name] = {term: seconds / per for term, seconds in named(one).items()}
        rows[name][DRAFT] = 0.0 if name == PLAIN else draft.total / per
    data = stacks(rows, PARTS, "s")
    each = map(": ".join, zip(rows, data["sums"]["words"], strict=True))
    return data, f"A token of {sequences(setting.batch)}: {'; '.join(each)}."


def gain_state(setting: Setting) -> State:
    """Return how many times as fast answers come against the batch, for each draft model."""
    curves = {}
    for name in MODELS:
        every = [gain(setting._replace(draft=name, batch=batch)) for batch in BATCHES]
        curves[name] = (np.array(BATCHES), np.array(every))
    now = gain(setting)
    data = {**line_columns(curves), "even": {"y": [1.0], "words": ["as fast as without"]}}
    data["now"] = marked(f"{now:.2f} times", setting.batch > 16, 10, x=setting.batch, y=now)
    ends = "; ".join(f"{name} {y[0]:.2f} to {y[-1]:.2f}" for name, (_, y) in curves.items())
    return data, f"Times as fast, with 1 to {BATCHES[-1]} sequences: {ends}."


def even(setting: Setting) -> int:
    """Return the smallest batch of BATCHES at which drafts make answers slower."""
    return next(batch for batch in BATCHES if gain(setting._replace(batch=batch)) < 1)


def best(setting: Setting) -> int:
    """Return the number of drafts that is fastest."""
    return max(DRAFTS, key=lambda each: gain(setting._replace(drafts=each)))


@lru_cache(maxsize=1)
def published() -> tuple[float, float, float]:
    """Return the published gain of gpt-fast, the cost of its drafts and the acceptance that explains it with 4."""
    load = {"prompt": 5, "answer": 200}
    tables = {"machine": "selene", "service": {"precision": "int4"}, "requests": load}
    names = ("llama2-70b", "llama2-7b")
    one, draft = (
        Prices(read_service({"model": name, **tables})).decode(1, 105).total for name in names
    )
    both = Prices(read_service({"model": names[0], "draft": names[1], **tables}))
    wanted = TOGETHER / ALONE * both.decode(1, 105).total / one
    every = np.linspace(0, 1, 1001)
    near = [abs(expected_tokens(each, both.drafts) - wanted) for each in every]
    return TOGETHER / ALONE, draft / one, float(every[np.argmin(near)])
