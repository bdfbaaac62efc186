"""Attention that scales: windows and state spaces beside full attention, from 2,048 to a million tokens."""

from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import numpy as np

from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, on_bench
from lib_dlhpc.explore.blocks.charts import State
from lib_dlhpc.explore.blocks.lines import Curves, line_columns
from lib_dlhpc.explore.serving.served import service
from lib_dlhpc.serving.predict import room_of
from lib_dlhpc.serving.price import Prices
from lib_dlhpc.spec.units import format_quantity as show

LENGTHS = tuple(2**k for k in range(11, 21))
WINDOWS, EVERY, BATCHES = (512, 1024, 4096, 16384), (2, 4, 8, 16), (1, 4, 16, 64)
PROMPT, TOKEN = "a prompt", "a token of each answer"
LAYERS, MACHINE = 32, "h100-pod"
FULL, WINDOWED = "full attention", "windows"
MIXED, HYBRID = "windows and full", "state spaces and full"
NAMES = (FULL, WINDOWED, MIXED, HYBRID)
# The sizes of Llama 3 8B; state spaces half as wide as Mamba-2's default, to have about as many weights.
SIZES: dict[str, Any] = {"hidden": 4096, "sequence": 8192, "vocabulary": 128256}
ATTENTION = {"heads": 32, "kv_heads": 8, "rotary_base": 500000}
FEED_FORWARD = {"features": 14336, "activation": "silu", "gated": True}
STATES = {"heads": 64, "head_size": 64, "state": 128, "groups": 8, "kernel": 4, "chunk": 128}


class Setting(NamedTuple):
    """A network of 32 layers on one H100. window: tokens; every: layers per layer with full attention."""

    shown: Annotated[str, Dropdown("Time of", "Read in one pass, or written", (PROMPT, TOKEN))] = (
        PROMPT
    )
    tokens: Annotated[int, Slider("Tokens", "Of a sequence so far", LENGTHS)] = 2**17
    window: Annotated[int, Slider("Window", "Tokens that a token sees", WINDOWS)] = 4096
    every: Annotated[int, Slider("One full in", "Layers, where some are full", EVERY)] = 8
    batch: Annotated[int, Slider("Batch", "Sequences at once", BATCHES)] = 1


@on_bench(Setting(), "serving_lengths", "serving_states", fine="The sequences fit with all four.")
def long_sequences(setting: Setting) -> View:
    """Look for the slopes: which lines double with the length, which grow by four, and which stay level."""
    seconds, held = ({name: each(setting, name) for name in NAMES} for each in (time_of, bytes_of))
    faster = seconds[FULL] / seconds[HYBRID]
    words = (
        f"<b>{setting.shown.capitalize()} at {setting.tokens:,} tokens takes {show(seconds[FULL], 's')} with full"
        f" attention and {show(seconds[HYBRID], 's')} with state spaces and {LAYERS // setting.every} full layers,</b>"
        f" {faster:.3g} times as fast. A sequence leaves {show(held[FULL], 'B')} and {show(held[HYBRID], 'B')}."
    )
    times = _state(setting, curves(setting, time_of), "s", f"The time of {setting.shown}")
    charts = {"serving_lengths": times, "serving_states": states_state(setting)}
    return View(words, wall(setting), charts)


def model_of(name: str, window: int, every: int) -> dict[str, Any]:
    """Return the table of a network."""
    if name == HYBRID:
        group = "*-" + "M-" * (every - 1)
        return {
            "family": "hybrid",
            "pattern": group * (LAYERS // every),
            **SIZES,
            "state_space": STATES,
            "attention": ATTENTION,
            "feed_forward": FEED_FORWARD,
        }
    sees = {} if name == FULL else {"window": window}
    if name == MIXED:
        sees["full_every"] = every
    attention = {**ATTENTION, **sees}
    return {
        "family": "decoder",
        "layers": LAYERS,
        **SIZES,
        "attention": attention,
        "feed_forward": FEED_FORWARD,
    }


@lru_cache(maxsize=64)
def priced(name: str, window: int, every: int) -> tuple[Prices, float]:
    """Return the prices of a network, and the bytes that its weights leave free."""
    own = service(model_of(name, window, every), MACHINE, {"prompt": LENGTHS[0], "answer": 1})
    prices = Prices(own)
    return prices, float(room_of(own, prices))


def of(setting: Setting, name: str) -> tuple[Prices, float]:
    """Return what is known of a network; what a kind of layer does not have does not matter to it."""
    window = 0 if name in (FULL, HYBRID) else setting.window
    return priced(name, window, setting.every if name in (MIXED, HYBRID) else 0)


def time_of(setting: Setting, name: str) -> float:
    """Return the seconds of the prompts of a batch, or of a step that decodes a token of each."""
    prices, _ = of(setting, name)
    if setting.shown == PROMPT:
        return float(prices.prompts(setting.batch, setting.tokens).total)
    return float(prices.decode(setting.batch, setting.tokens).total)


def bytes_of(setting: Setting, name: str) -> float:
    """Return the bytes that a sequence leaves for its next token: keys and values, or states."""
    return float(of(setting, name)[0].shard.kv_cache_bytes(setting.tokens))


def longest(name: str, setting: Setting) -> int:
    """Return the longest of LENGTHS of which the batch fits, 0 if none does."""
    room = of(setting, name)[1]
    fit = [
        tokens
        for tokens in LENGTHS
        if setting.batch * bytes_of(setting._replace(tokens=tokens), name) <= room
    ]
    return max(fit, default=0)


def curves(setting: Setting, value: Any) -> Curves:
    """Return a value of each network against the tokens."""
    at = np.array(LENGTHS)
    return {
        name: (at, np.array([value(setting._replace(tokens=n), name) for n in LENGTHS]))
        for name in NAMES
    }


def states_state(setting: Setting) -> State:
    """Return the columns of "serving_states": bytes of all sequences, and the room beside the weights."""

    def held(own: Setting, name: str) -> float:
        return own.batch * bytes_of(own, name)

    data, words = _state(setting, curves(setting, held), "B", "What the sequences leave")
    room = of(setting, FULL)[1]
    return {**data, "free": {"y": [room], "words": [f"{show(room, 'B')} free"]}}, words


def _state(setting: Setting, found: Curves, unit: str, of_what: str) -> State:
    each = [f"{name} {show(y[x == setting.tokens][0], unit)}" for name, (x, y) in found.items()]
    data = {**line_columns(found), "now": {"x": [setting.tokens]}}
    return data, f"{of_what} at {setting.tokens:,} tokens: {', '.join(each)}."


def wall(setting: Setting) -> str:
    """Say which of the networks do not fit at this length, or nothing."""
    over = [
        name for name in NAMES if setting.batch * bytes_of(setting, name) > of(setting, name)[1]
    ]
    if not over:
        return ""
    held = show(setting.batch * bytes_of(setting, over[0]), "B")
    most = longest(over[0], setting)
    fits = f"up to {most:,} tokens fit" if most else "none of these lengths fits"
    verb = "does" if len(over) == 1 else "do"
    return f"Memory: {', '.join(over)} {verb} not fit; {over[0]} leaves {held}, {fits}."
