"""A against B in words: what was changed, what became of the step, and which term moved."""

from lib_dlhpc.explore.explorer.choice import Choice, experiment_of, value_at
from lib_dlhpc.explore.explorer.controls import NAMED, standing
from lib_dlhpc.explore.explorer.headlines import SAME, time_words
from lib_dlhpc.explore.explorer.parts import step_parts
from lib_dlhpc.prediction import Breakdown
from lib_dlhpc.prediction.advice import endless, run_time
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity as show

MOST = 4  # changed settings that are named


def changes_words(choice: Choice, a: Choice) -> str:
    """Return what differs between two choices, such as "nodes 32 → 64"."""
    if choice.preset != a.preset:
        return f"{choice.preset.title} instead of {a.preset.title}"
    before, after, found = experiment_of(a), experiment_of(choice), []
    for field in dict.fromkeys([*choice.changes, *a.changes]):
        old, new = _shown(a, before, field), _shown(choice, after, field)
        if old != new:
            known = field in NAMED
            name = NAMED[field].label if known else field.rpartition(".")[2].replace("_", " ")
            found.append(f"{name if name.isupper() else name.lower()} {old} → {new}")
    more = f" and {len(found) - MOST} more" if len(found) > MOST else ""
    return ", ".join(found[:MOST]) + more


def _shown(choice: Choice, experiment: Experiment, field: str) -> str:
    if field not in NAMED:
        found = value_at(experiment, field)
        return "" if found is None else str(found)
    value = standing(experiment, field, choice.changes.get(field, 1))
    known = {repr(v): label for label, v in NAMED[field].options(experiment)}
    return known.get(repr(value), str(value))


def difference_words(p: Breakdown, a: Breakdown, changed: str) -> str:
    """Return one or two sentences on what changed and which term moved; "" where nothing did."""
    if not changed:
        return ""
    now, then = float(p.step_time), float(a.step_time)
    by = "the same time"
    if abs(now - then) > SAME * then:
        by = f"{show(abs(now - then), 's')} {'more' if now > then else 'less'} ({now / then - 1:+z.1%})"
        moved = ", ".join(f"{name} {by}" for name, by in moved_terms(p, a))
        by += f": {moved}" if moved else ""
    words = f"Against A ({changed}), a step takes {by}."
    whole, before = run_time(p), run_time(a)
    if abs(whole - before) > SAME * before:
        took = f" The run takes {show(whole, 's')} instead of {show(before, 's')}."
        never = f" Time to train: {time_words(p)}; A: {time_words(a)}."
        words += never if endless(p) or endless(a) else took
    held = float(p.memory_total) - float(a.memory_total)
    if abs(held) > 0.01 * float(a.memory_total):
        more = "more" if held > 0 else "less"
        words += f" The fullest device holds {show(abs(held), 'B')} {more}."
    return words


def moved_terms(p: Breakdown, a: Breakdown) -> list[tuple[str, str]]:
    """Return the terms of a step that moved most, with their signed difference."""
    now, then = ({part.name: part.size for part in step_parts(one)} for one in (p, a))
    by = {name: now.get(name, 0.0) - then.get(name, 0.0) for name in {**now, **then}}
    order = sorted(by, key=lambda name: -abs(by[name]))[:3]
    return [
        (name, f"{'+' if by[name] > 0 else '−'}{show(abs(by[name]), 's')}")
        for name in order
        if abs(by[name]) > 0.05 * abs(by[order[0]])
    ]
