"""What was changed between two choices of the explorer, in words."""

from lib_dlhpc.explore.explorer.choice import Choice, experiment_of, value_at
from lib_dlhpc.explore.explorer.controls import NAMED, standing
from lib_dlhpc.prediction.changes.difference import named
from lib_dlhpc.spec.experiment import Experiment


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
    return named(found)


def _shown(choice: Choice, experiment: Experiment, field: str) -> str:
    if field not in NAMED:
        found = value_at(experiment, field)
        return "" if found is None else str(found)
    value = standing(experiment, field, choice.changes.get(field, 1))
    known = {repr(v): label for label, v in NAMED[field].options(experiment)}
    return known.get(repr(value), str(value))
