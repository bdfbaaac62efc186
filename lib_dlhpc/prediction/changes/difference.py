"""Two predictions in words: which fields differ, what became of the step, and which of its terms moved."""

from collections import Counter
from collections.abc import Iterator, Mapping
from math import isinf
from typing import Any

from lib_dlhpc.prediction.breakdown import Breakdown
from lib_dlhpc.prediction.changes.advice import endless, run_time
from lib_dlhpc.prediction.what_if import alone
from lib_dlhpc.spec.experiment import Experiment, to_tables
from lib_dlhpc.spec.schema import readable
from lib_dlhpc.spec.units import format_quantity as show

MOST = 4  # changed fields that are named
SAME = 5e-4  # relative; less is no difference
EXPOSED = {  # communication by its purpose
    "tensor": "tensor collectives",
    "context": "context exchange",
    "experts": "experts' all-to-all",
    "halo": "halo exchange",
    "pipeline": "stage to stage",
    "data": "gradients",
    "offload": "offload",
}


def step_causes(p: Breakdown) -> dict[str, float]:
    """Return the causes of a step's time, in s; they add up to it, exposed communication by its purpose."""
    again = float(p.recomputation)
    found = {
        "forward": float(p.forward),
        "backward": float(p.backward) - again,
        "recompute": again,
        "update": float(p.update),
        **{name: float(p.exposed.get(kind, 0.0)) for kind, name in EXPOSED.items()},
        "bubble": float(p.pipeline_bubble),
        "waiting for the slowest": float(p.straggler_wait),
        "input": float(p.input_stall),
        "checkpoint": float(p.checkpoint),
    }
    return {name: seconds for name, seconds in found.items() if seconds > 0}


def time_words(p: Breakdown) -> str:
    """Return the time of the run in words, failures included."""
    return "never done" if endless(p) else show(run_time(p), "s")


def difference_words(p: Breakdown, a: Breakdown, changed: str, name: str = "A") -> str:
    """Return one or two sentences on what changed and which term moved; "" where nothing did.

    a: the prediction compared with, called `name`. changed: what differs, in words.
    """
    if not changed:
        return ""
    now, then = float(p.step_time), float(a.step_time)
    by = "the same time"
    if abs(now - then) > SAME * then:
        ratio = f"{now / then - 1:+z.1%}" if now < 2 * then else f"{now / then:,.3g} times as long"
        by = f"{show(abs(now - then), 's')} {'more' if now > then else 'less'} ({ratio})"
        moved = ", ".join(f"{term} {by}" for term, by in moved_terms(p, a))
        by += f": {moved}" if moved else ""
    words = f"Against {name} ({changed}), a step takes {by}."
    words += _moved_time(p, a, name)
    held = float(p.memory_total) - float(a.memory_total)
    if abs(held) > 0.01 * float(a.memory_total):
        more = "more" if held > 0 else "less"
        words += f" The fullest device holds {show(abs(held), 'B')} {more}."
    return words


def _moved_time(p: Breakdown, a: Breakdown, name: str) -> str:
    """Return in a sentence how the time of the run differs; without failures where these let neither end, or
    only one machine states them."""
    both = endless(p) and endless(a)
    unlike = len({isinf(each.experiment.machine.node_mtbf) for each in (p, a)}) > 1
    time_of = (lambda each: float(each.time_to_train)) if both or unlike else run_time
    whole, before = time_of(p), time_of(a)
    if abs(whole - before) <= SAME * before:
        return ""
    if not unlike and endless(p) != endless(a):
        return f" Time to train: {time_words(p)}; {name}: {time_words(a)}."
    head = "Failures let neither run end; without them it takes" if both else "The run takes"
    head = "Without failures, which only one machine states, the run takes" if unlike else head
    return f" {head} {show(whole, 's')} instead of {show(before, 's')}."


def moved_terms(p: Breakdown, a: Breakdown) -> list[tuple[str, str]]:
    """Return the terms of a step that moved most, with their signed difference."""
    now, then = step_causes(p), step_causes(a)
    by = {name: now.get(name, 0.0) - then.get(name, 0.0) for name in {**now, **then}}
    order = sorted(by, key=lambda name: -abs(by[name]))[:3]
    return [
        (name, f"{'+' if by[name] > 0 else '−'}{show(abs(by[name]), 's')}")
        for name in order
        if abs(by[name]) > 0.05 * abs(by[order[0]])
    ]


def named(changes: list[str]) -> str:
    """Return changes in a row, the first MOST of them."""
    more = f" and {len(changes) - MOST} more" if len(changes) > MOST else ""
    return ", ".join(changes[:MOST]) + more


def changed_fields(e: Experiment, a: Experiment) -> dict[str, tuple[Any, Any]]:
    """Return the fields, by dotted name, in which an experiment differs from `a`: (value there, value here).

    Of a model or a machine with another name, only the name: all else differs with it. Measured rates are those of one
    device, as in predictions of changes.
    """
    there, here = alone(a), alone(e)
    before, after = (dict(_leaves(to_tables(each))) for each in (there, here))
    pairs = {
        key: (_value(there, before, key), _value(here, after, key)) for key in {**before, **after}
    }
    differ = [key for key, (old, new) in pairs.items() if old != new]
    whole = tuple(key.removesuffix("name") for key in differ if key.endswith(".name"))
    kept = [key for key in differ if key.endswith(".name") or not key.startswith(whole)]
    kept.sort(key=lambda key: key.startswith("calibration."))  # which follows from the others
    return {key: pairs[key] for key in kept}


def changed_words(e: Experiment, a: Experiment) -> str:
    """Return what differs between two experiments, such as "nodes 32 → 64"."""
    changed = changed_fields(e, a)
    labels = {key: _label(key) for key in changed}
    many = Counter(labels.values())
    return named(
        [
            f"{labels[key] if many[labels[key]] == 1 else key} {_shown(old)} → {_shown(new)}"
            for key, (old, new) in changed.items()
        ]
    )


def _label(key: str) -> str:
    """Return the name of a field for readers: its last word, or what is named by it."""
    parts = key.removesuffix(".name").split(".")
    return " ".join(parts if parts[0] == "calibration" else parts[-1:]).replace("_", " ")


def _leaves(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def _value(experiment: Experiment, stated: Mapping[str, Any], key: str) -> Any:
    """Return a field as its file states it, or else its default."""
    if key in stated:
        return stated[key]
    found: Any = experiment
    for part in key.split("."):
        of = getattr(found, "__dataclass_fields__", {}).get(part)
        found = found.get(part) if isinstance(found, Mapping) else getattr(found, part, None)
    unit = of.metadata.get("unit") if of else ""
    return readable(found, unit) if unit and isinstance(found, float) else found


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return "not set" if value is None or value == "" else str(value)
