"""A decoder in numpy, on this machine: the same answers one by one and in a batch, with a token's time predicted."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np

from lib_dlhpc.explore.blocks.bars import beside_measured
from lib_dlhpc.explore.blocks.bench import Slider
from lib_dlhpc.explore.blocks.charts import State
from lib_dlhpc.explore.blocks.panel import Panel, at_click
from lib_dlhpc.explore.blocks.panels import table_html
from lib_dlhpc.explore.blocks.workbench import verdict_html
from lib_dlhpc.explore.serving.phases import sequences
from lib_dlhpc.explore.serving.served import service
from lib_dlhpc.serving import Service, ServiceTrace, run_service, simulate_service
from lib_dlhpc.serving.measure import on_this_machine
from lib_dlhpc.serving.price import Prices, StepTime
from lib_dlhpc.spec.units import format_plain as plain
from lib_dlhpc.spec.units import format_quantity as show

WIDTHS = (128, 256, 512)
BATCHES = (2, 4, 8, 16)
PROMPTS = (8, 32, 128)
ANSWERS = (8, 16, 32)
Calibrate = Callable[[Service], Service]
Run = Callable[[Service], ServiceTrace]


class Setting(NamedTuple):
    """A small Llama of random weights, in fp32. width: of its four blocks; batch: answers decoded together."""

    width: Annotated[int, Slider("Width", "Of four blocks", WIDTHS)] = 256
    batch: Annotated[int, Slider("Batch", "Sequences decoded at once", BATCHES)] = 8
    prompt: Annotated[int, Slider("Prompt", "Tokens of each", PROMPTS)] = 32
    answer: Annotated[int, Slider("Answer", "Tokens of each", ANSWERS)] = 16


class Times(NamedTuple):
    """Seconds of a prompt and of a decode step, predicted and measured, and of all answers, simulated and measured."""

    prefill: tuple[float, float]
    decode: tuple[float, float]
    whole: tuple[float, float]


def small(setting: Setting, batch: int) -> Service:
    """Return the service with `batch` requests, all there at the start."""
    width = setting.width
    model = {
        "family": "llama",
        "layers": 4,
        "hidden": width,
        "heads": 8,
        "kv_heads": 2,
        "feed_forward": 11 * width // 4,
        "vocabulary": 4096,
        "sequence": 512,
    }
    load: dict[str, Any] = {"prompt": setting.prompt, "answer": setting.answer}
    load |= {"rate": 0.0, "count": batch}
    serving: dict[str, Any] = {"precision": "fp32", "cache_precision": "fp32", "batch": batch}
    # numpy takes one call for each layer, and for each sequence.
    serving |= {"attention": "apart", "graph": False}
    return service(model, "laptop", load, **serving)


def predicted(setting: Setting, batch: int) -> tuple[StepTime, StepTime]:
    """Return a prompt and a mean step of decode on a core of the catalog's laptop."""
    prices = Prices(small(setting, batch))
    return prices.prefill(setting.prompt), prices.decode(batch, setting.prompt + setting.answer / 2)


def gain(setting: Setting) -> float:
    """Return how many times as many tokens/s a batch gets as one sequence, predicted."""
    alone, batch = (predicted(setting, each)[1].total for each in (1, setting.batch))
    return setting.batch * alone / batch


def times_of(own: Service, trace: ServiceTrace) -> Times:
    """Return the seconds of a run beside those of the service that was calibrated here."""
    load, prices = own.requests, Prices(own)
    prompts = [(s.end - s.start) / s.prompt_tokens for s in trace.steps if s.prompt_tokens]
    steps = [step.end - step.start for step in trace.steps if step.sequences]
    step = prices.decode(load.count, load.prompt + load.answer / 2).total
    return Times(
        (
            prices.prompts(load.count, load.prompt).total / load.count,
            load.prompt * float(np.median(prompts)),
        ),
        (step, float(np.median(steps))),
        (simulate_service(own).end, trace.end),
    )


def asked_words(setting: Setting) -> str:
    """Say what is predicted."""
    prompt, step = predicted(setting, setting.batch)
    weights = Prices(small(setting, 1)).shard.weights
    return (
        f"{show(weights, 'B')} of weights in fp32. On a core of the catalog's laptop a prompt of {setting.prompt}"
        f" tokens takes {show(prompt.total, 's')}, and a step that decodes {sequences(setting.batch)}"
        f" {show(step.total, 's')}: {gain(setting):.3g} times the tokens/s of one sequence alone."
        f" {setting.answer} tokens each: {setting.answer - 1} such steps after the prompts."
    )


@at_click(Setting(), asked_words, "Decode", "serving_here", "Nothing decoded yet.", "Some seconds")
def decode_here(
    panel: Panel, setting: Setting, calibrate: Calibrate = on_this_machine, run: Run = run_service
) -> None:
    """Look for how much of the gain of the batch is there, and which of the three predictions is off most."""
    found = dict[int, Times]()
    panel.say("Some steps are measured, to calibrate the prediction ...")
    here = calibrate(small(setting, setting.batch))
    for batch in (1, setting.batch):
        panel.check()
        panel.say(f"{sequences(batch).capitalize()} being decoded ...")
        own = here.set(batch=batch, count=batch)
        found[batch] = times_of(own, run(own))
    panel.show(here_state(setting, found), result_html(setting, found))
    panel.say(words_of(setting, found))


def rates(found: dict[int, Times], batch: int) -> tuple[float, float]:
    """Return the tokens/s of a batch while it decodes, predicted and measured."""
    predicted_step, measured_step = found[batch].decode
    return batch / predicted_step, batch / measured_step


def here_state(setting: Setting, found: dict[int, Times]) -> State:
    """Return tokens/s alone and in a batch, predicted and measured."""
    pairs = {sequences(batch): rates(found, batch) for batch in (1, setting.batch)}
    return beside_measured(pairs, "rate", lambda rate: f"{plain(rate)} tokens/s")


def words_of(setting: Setting, found: dict[int, Times]) -> str:
    """Say what the batch gained."""
    (guess_one, one), (guess, many) = (rates(found, batch) for batch in (1, setting.batch))
    return (
        f"<b>A batch of {setting.batch} gets {many / one:.3g} times the tokens/s of one sequence;</b> calibrated here,"
        f" the prediction is {guess / guess_one:.3g} times; for the catalog's laptop it was {gain(setting):.3g} times."
    )


def result_html(setting: Setting, found: dict[int, Times]) -> str:
    """Return times measured and predicted, and why they differ."""
    lines = [["", "prediction, calibrated here", "measured", "off"]]
    for batch, times in found.items():
        named = {
            "a prompt of them": times.prefill,
            "a step of decode": times.decode,
            "all, simulated": times.whole,
        }
        for name, (guess, came) in named.items():
            both = [show(guess, "s"), show(came, "s"), f"{guess / came - 1:+z.0%}"]
            lines.append([f"{sequences(batch)}: {name}", *both])
    step = predicted(setting, setting.batch)[1].total
    laptop = f"{show(step, 's')}, {step / found[setting.batch].decode[1] - 1:+z.0%} off"
    said = (
        f"<b>Error.</b> The catalog's laptop would need {laptop} for a step of the batch. Calibrated, four numbers of"
        " this core explain its steps: FLOP/s, B/s, and the time of a numpy call for each layer and, in attention, for"
        " each sequence. <b>Why they differ.</b> Python calls numpy for one sequence after another in attention, so a"
        " larger batch has more calls, not only more work; in narrow networks calls weigh most. Real services run one"
        " kernel for all sequences. The rest of the error: the bandwidth of a cache is not that of memory, and the"
        " core's clock and caches are shared with other processes, though only the seconds of this one count."
    )
    return table_html(lines) + verdict_html(said)
