"""The explorer's headline: time, a step, throughput, MFU, memory and energy, and how they differ from those of A."""

from dataclasses import dataclass
from html import escape

from lib_dlhpc.costs import peak_rate
from lib_dlhpc.prediction import Breakdown
from lib_dlhpc.prediction.changes.advice import endless, fits, held, run_time
from lib_dlhpc.prediction.changes.difference import SAME, time_words
from lib_dlhpc.prediction.validation.replays import Replay
from lib_dlhpc.sentences import sentences
from lib_dlhpc.spec.units import format_energy, format_plain
from lib_dlhpc.spec.units import format_quantity as show

say = sentences(__file__)

MORE_IS_BETTER = ("Throughput", "MFU")
SIGNS = {"good": "✓", "fair": "≈", "poor": "✗", "unknown": "?"}
NO_BREAK = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True)
class Headline:
    """A number of the first line. counted: what it counts, see say.meaning. unfit: it is why the run cannot be."""

    name: str
    value: float
    text: str
    remark: str
    unit: str = ""
    counted: str = ""
    unfit: bool = False


def tokens(p: Breakdown) -> float:
    """Return the tokens of a sample; 0 where samples are no sequences."""
    return float(p.experiment.model.options.get("sequence", 0))


def peak_of(p: Breakdown) -> float:
    """Return the FLOP/s of one device."""
    return float(peak_rate(p.experiment.machine.device, p.experiment.strategy.precision))


def headlines(p: Breakdown, replay: Replay | None = None) -> list[Headline]:
    """Return the headline numbers, the time to train first; the memory where it does not suffice."""
    seconds, step, energy = run_time(p), float(p.step_time), float(p.energy_to_train)
    unit, many = "tokens" if tokens(p) else "samples", float(p.throughput) * (tokens(p) or 1)
    used = float(p.utilization)
    batch = f"batch of {int(p.experiment.global_batch):,} samples"
    peak = f"of the peak, {show(peak_of(p), 'FLOP/s')} per device"
    need, have = held(p), show(float(p.experiment.machine.device.memory), "B")
    memory = Headline("Memory", need, show(need, "B"), f"of {have} per device")
    if not fits(p):
        text = f"Does not fit: {memory.text} of {have}"
        memory = Headline("Memory", need, text, _largest_held(p), unfit=True)
    used_for = show(float(p.device_hours), "device-hours")
    found = [
        Headline("Time to train", seconds, time_words(p), _time_remark(p, replay, seconds)),
        Headline("One step", step, show(step, "s"), f"of {int(p.steps):,} steps"),
        Headline("Throughput", many, format_plain(many), batch, f"{unit}/s", unit.capitalize()),
        Headline("MFU", used, f"{used:.1%}", peak),
        memory,
        Headline("Energy", energy, format_energy(energy), used_for),
    ]
    return sorted(found, key=lambda line: not line.unfit)


def _largest_held(p: Breakdown) -> str:
    """Return what takes most of the memory of the fullest device."""
    largest = sorted(((float(size), name) for name, size in p.memory.items()), reverse=True)[:3]
    named = ", ".join(f"{name} {show(size, 'B')}" for size, name in largest)
    return f"on the fullest device: {named}"


def _time_remark(p: Breakdown, replay: Replay | None, seconds: float) -> str:
    if replay:
        published = show(replay.published_time, "s")
        return f"published {published}, error{NO_BREAK}{replay.error(seconds):+z.1%}"
    if seconds > float(p.time_to_train):
        good, without = float(p.resilience.goodput), show(float(p.time_to_train), "s")
        if endless(p) or not p.experiment.run.checkpoint_interval:
            return f"{without} without failures; set Checkpoint (Failures) to keep what is done"
        return f"with failures; {without} without, goodput {good:.0%}"
    if tokens(p):
        seen = float(p.steps) * float(p.experiment.global_batch) * tokens(p)
        return f"{format_plain(seen / 1e9)} billion tokens"
    epochs = float(p.experiment.run.epochs)
    return f"{epochs:g} epoch{'s' * (epochs != 1)} of {p.experiment.dataset.name or 'the data set'}"


def headline_html(
    now: list[Headline], a: list[Headline] | None, trust: tuple[str, str, str]
) -> str:
    """Return the headline numbers with what they differ from A by. trust: short, words, level."""
    short, words, level = trust
    poor = f'<em class="trust">{escape(short)}</em>' if level == "poor" else ""
    of_a = {line.name: line for line in a or ()}
    tiles = ""
    for number, line in enumerate(now):
        unit = f' <span class="unit">{escape(line.unit)}</span>' if line.unit else ""
        by = _difference(line, of_a[line.name]) if a else ""
        text = escape(line.text if line.unfit else line.text.replace(" ", NO_BREAK))
        value = f"{text}{unit}{'' if number or line.unfit else poor}{by}"
        kind = "" if number else "first unfit" if line.unfit else f"first {level}"
        meaning = say.meaning[line.name].format(line.counted)
        tiles += _tile(kind, line.name, meaning, value, line.remark)
    meaning = "How far predictions of this kind are off from published results."
    tiles += _tile(f"trust {level}", "Trust", meaning, f"{SIGNS[level]} {escape(short)}", words)
    return f'<dl class="dl-nums" aria-label="Predicted">{tiles}</dl>'


def _tile(kind: str, name: str, meaning: str, value: str, remark: str) -> str:
    named = f' class="{kind}"' if kind else ""
    return (
        f'<div{named}><dt><abbr title="{escape(meaning)}" tabindex="0">{escape(name)}</abbr></dt>'
        f"<dd>{value}<small>{escape(remark)}</small></dd></div>"
    )


def _times(ratio: float) -> str:
    """Return a large ratio as a factor, a small one as a divisor."""
    sign, factor = ("×", ratio) if ratio > 1 else ("÷", 1 / ratio)
    return f"{sign}{NO_BREAK}{factor:,.0f}" if factor >= 100 else f"{sign}{NO_BREAK}{factor:.3g}"


def _difference(now: Headline, a: Headline) -> str:
    if not a.value or abs(now.value - a.value) <= SAME * abs(a.value):
        return ""
    ratio = now.value / a.value
    text = f"{ratio - 1:+z.1%}" if 0.5 < ratio < 2 else _times(ratio)
    if now.name == "MFU":
        text = f"{(now.value - a.value) * 100:+z.1f} points"
    word = "better" if (ratio > 1) == (now.name in MORE_IS_BETTER) else "worse"
    sign = "▲" if ratio > 1 else "▼"
    return f' <i class="{word}" title="{word} than A"><span aria-hidden="true">{sign}</span> {text}</i>'
