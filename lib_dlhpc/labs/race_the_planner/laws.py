"""Findings on a learner's planner: legal, within the budget, it returns the best it found, and its regret.

What a planner misses is named in the words of the field, without the layout that it should have found.
"""

from collections import Counter
from collections.abc import Sequence
from math import inf

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.labs.findings import Finding, broken, kept, later
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.labs.race_the_planner.race import (
    BUDGET,
    ORDERS,
    Attempt,
    OverBudget,
    Planner,
    attempts_of,
    luck,
)
from lib_dlhpc.labs.race_the_planner.tracks import Track
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show

HALF = 0.5  # of the regret of luck
LEGAL = "It returns a legal layout that fits, on each track"
WITHIN = f"Within the budget of {BUDGET} predictions"
KEEPS = "It returns the best of what it predicted"
SHOWN = "The tracks that you see: at most the regret of random draws"
TARGET = "Target regret: half of that of random draws, over all tracks, including hidden ones"


def planner_findings(
    planner: Planner, shown: Sequence[Track], hidden: Sequence[Track] = ()
) -> list[Finding]:
    """Return what holds for a planner; without hidden tracks the target is left for later."""
    laws = (LEGAL, WITHIN, KEEPS, SHOWN, TARGET)
    attempts: list[Attempt] = []
    for track in (*shown, *hidden):
        try:
            attempts += attempts_of(planner, track)
        except OverBudget as error:
            words = f"{_name(track)}: {error} What did it know after {BUDGET}?"
            return [later(LEGAL), broken(WITHIN, words), *map(later, laws[2:])]
        except (LabError, SpecError) as error:
            return [broken(LEGAL, f"{_name(track)}: {error}"), *map(later, laws[1:])]
    legal, keeps = _legal(attempts), _keeps(attempts)
    most = max(len(one.asked) for one in attempts)
    basic = [legal, kept(WITHIN, f"{count(most, 'prediction')} at most."), keeps]
    if not (legal.right and keeps.right):
        return [*basic, later(SHOWN), later(TARGET)]
    first = _regret(SHOWN, attempts[: len(shown) * ORDERS], 1.0)
    if not hidden:
        return [*basic, first, later(TARGET, "Checked when you hand in.")]
    return [*basic, first, _regret(TARGET, attempts, HALF)]


def _legal(attempts: Sequence[Attempt]) -> Finding:
    for one in attempts:
        if one.value == inf:
            room = show(one.track.experiment.machine.device.memory, "B")
            need = show(one.track.outcome(one.row).memory, "B")
            words = f"{_name(one.track)}: its layout needs {need} of {room}."
            found = " A layout that fits was among its predictions." * (one.best_asked < inf)
            return broken(LEGAL, f"{words}{found or _unfit(one)}")
    tracks = count(len(attempts) // ORDERS, "track")
    return kept(LEGAL, f"{tracks}, each with its layouts in {ORDERS} orders.")


def _keeps(attempts: Sequence[Attempt]) -> Finding:
    for one in attempts:
        track = one.track
        if one.row not in one.asked:
            words = f"{_name(track)}: it returned a layout that it never predicted."
            return broken(KEEPS, f"{words} How does it know?")
        if one.value > one.best_asked:
            fits = one.value < inf
            returned = track.show(one.value) if fits else "a layout that does not fit"
            words = f"{_name(track)}: it returned {returned}, and had seen"
            return broken(KEEPS, f"{words} {track.show(one.best_asked)}.")
    return kept(KEEPS, "It returned the best of its predictions.")


def _regret(law: str, attempts: Sequence[Attempt], share: float) -> Finding:
    """Return whether regrets are at most a share of those of luck, on average; else what the worst attempt missed."""
    lucky = {id(one.track): luck(one.track) for one in attempts}
    ratios = [one.regret / lucky[id(one.track)] for one in attempts]
    mean, worst = float(np.mean(ratios)), attempts[int(np.argmax(ratios))]
    words = (
        f"On average {mean:.2f} of the regret of random draws; at most {share:g} is allowed. The "
        "worst:"
        f" {worst.regret:.1%}, that of random draws is {lucky[id(worst.track)]:.1%}."
    )
    if mean <= share:
        return kept(law, words)
    return broken(law, f"{words} {_name(worst.track)}: {missed(worst)}")


def missed(one: Attempt) -> str:
    """Return what an attempt missed, and by which term of the step its layout is worse than the best."""
    return f"{_habit(one)} {_term(one)}".strip()


def _habit(one: Attempt) -> str:
    track, asked = one.track, one.asked
    again = len(asked) - len(set(asked))
    if again > len(asked) / 4:
        return f"{again} of {len(asked)} predictions were of layouts that it had predicted before."
    never = [name for name in track.fields if len({track.layouts[r][name] for r in asked}) == 1]
    best = track.layouts[int(np.argmin(track.values))]
    stuck = [name for name in never if best[name] != track.layouts[one.row][name]]
    if stuck:
        only = track.layouts[one.row][stuck[0]]
        return f"It predicted only layouts with {stuck[0]} = {only}."
    unfit = _unfit(one)
    if unfit:
        return unfit.strip()
    near = [row for row, layout in enumerate(track.layouts) if _differ(track, layout, one) == 1]
    if all(track.values[row] >= one.value for row in near):
        return (
            "A local optimum: no change of one field improves its layout. Which fields have to "
            "change together?"
        )
    if len(asked) < BUDGET:
        return f"{count(BUDGET - len(asked), 'prediction')} left, and a change of one field improves its layout."
    return "A change of one field improves its layout: which predictions were wasted?"


def _differ(track: Track, layout: dict[str, object], one: Attempt) -> int:
    return sum(layout[name] != track.layouts[one.row][name] for name in track.fields)


def _unfit(one: Attempt) -> str:
    """Return how many predictions did not fit, if most did not."""
    unfit = sum(one.track.outcome(row).value == inf for row in one.asked)
    if 2 * unfit <= len(one.asked):
        return ""
    return (
        f" {unfit} of {len(one.asked)} predictions did not fit. What needs the memory? State and activations"
        " follow from the layout, before any prediction."
    )


def _term(one: Attempt) -> str:
    """Return the term of a step that is most above that of the best layout."""
    best = one.track.outcome(int(np.argmin(one.track.values))).terms
    own = one.track.outcome(one.row).terms
    more = Counter({name: seconds - best.get(name, 0.0) for name, seconds in own.items()})
    name, seconds = more.most_common(1)[0]
    if seconds <= 0:
        return "The power limit makes the difference."
    return f"Its step has {show(seconds, 's')} more of {name} than the best layout."


def _name(track: Track) -> str:
    e = track.experiment
    what = "by time" if track.objective == "time" else "by energy"
    return f"{what}, {int(e.devices)} devices of {e.machine.name}".capitalize()
