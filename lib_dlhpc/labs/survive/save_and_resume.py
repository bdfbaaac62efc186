"""Findings on a learner's save and resume, from the reports of a run that is killed (killed_runs.py).

lives_of(seed)              how long the run is, and when it is killed
lives_findings(result, own)   four findings;  lives_text(result, own): the lives as lines
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from lib_dlhpc.labs.findings import Finding, broken, kept, later
from lib_dlhpc.labs.survive.killed_runs import Attempt, RestartResult, RestartTask

STATE = "What resume gives is what was saved, bit for bit"
WHOLE = "Killed at any moment of a save, it finds a version that is whole"
LOST = "No more steps are lost than the interval"
END = "At the end: bit for bit the weights of an undisturbed run"
LAWS = (STATE, WHOLE, LOST, END)
PARTS = ("weights", "velocity", "order of samples")
WAY_ON = "What of the training goes on from step to step?"


def lives_of(seed: int) -> RestartTask:
    """Return a learner's run: it is killed in two saves, the first one and another, and four times beside."""
    rng = np.random.default_rng([seed, 9])
    interval = int(rng.integers(3, 6))
    steps, trial = 6 * interval, int(rng.integers(2, 5)) * interval
    first, later_on = int(rng.integers(1, interval)), int(rng.integers(1, interval))
    saved = int(rng.integers(1, 3)) * interval
    kills = (first, saved, saved + later_on, int(rng.integers(4, 6)) * interval - 1)
    return RestartTask(int(seed), steps, interval, (interval, trial), kills)


def lives_findings(result: RestartResult, own: RestartTask) -> list[Finding]:
    """Return what holds for what the lives say."""
    errors = [life.error for life in result.alone + result.journey if life.error]
    if errors:
        return [
            broken(STATE, f"Not even killed in the middle of a save: {errors[0]}."),
            *map(later, (WHOLE, LOST, END)),
        ]
    state = _state(result)
    return [state, _whole(result, bool(state.right)), _lost(result, own), _end(result)]


def lives_text(result: RestartResult, own: RestartTask) -> str:
    """Return the run that is killed now and then as lines, life by life."""
    lines = [f"{own.steps} steps, a save after each {own.interval}"]
    for number, life in enumerate(result.journey, 1):
        if life.error:
            lines.append(f"life {number}: {life.error}")
            break
        fate = f"killed {life.killed}" if life.killed else "done"
        lines.append(f"life {number}: began at step {life.began}, {fate}")
    moments = {at: len(each) for at, each in result.trials.items()}
    tries = ", ".join(f"in {many} moments of that after step {at}" for at, many in moments.items())
    fine = [second for each in result.trials.values() for _, second in each if not second.error]
    return "\n".join(
        [*lines, f"Killed while it saves: {tries}; {len(fine)} of {sum(moments.values())} went on"]
    )


def _beginnings(result: RestartResult) -> Iterator[Attempt]:
    """Yield the lives that begin where one ended between two saves, or when all was done."""
    yield from (result.alone[1], *result.journey[1:])


def _state(result: RestartResult) -> Finding:
    for life in (result.alone[0], result.journey[0]):
        if (life.began, life.state) != (0, result.reference[0]):
            return broken(
                STATE, "In a folder in which nothing was saved, resume changes the training."
            )
    for life in _beginnings(result):
        wrong = _differs(life, result)
        if wrong:
            return broken(STATE, wrong)
    return kept(STATE, "Weights, velocity, the order of samples, and the step.")


def _differs(life: Attempt, result: RestartResult) -> str:
    """Return what of the state that a life began with is not that of its step."""
    steps = {tuple(state): number for number, state in enumerate(result.reference)}
    began = life.began if life.began is not None else -1
    if not 0 <= began < len(result.reference):
        return f"It began at step {began}; the run has {len(result.reference) - 1}."
    right = result.reference[began]
    if life.state == right:
        return ""
    if tuple(life.state) in steps:
        return f"It says that it is at step {began}, with the state after step {steps[tuple(life.state)]}."
    weights = [number for number, state in enumerate(result.reference) if state[0] == life.state[0]]
    if weights and began not in weights:
        return f"It says that it is at step {began}, with the weights after step {weights[0]}. {WAY_ON}"
    wrong = [part for part, a, b in zip(PARTS, life.state, right, strict=True) if a != b]
    return f"It begins at step {began}. Not as they were then: {', '.join(wrong)}. {WAY_ON}"


def _whole(result: RestartResult, sound: bool) -> Finding:
    """Whether the life after a kill in a save begins with the state of a step, and saves again."""
    many = 0
    for first, second in _trials(result):
        many += bool(first.killed)
        if first.error:
            return broken(WHOLE, f"Before it was killed: {first.error}.")
        if second.error:
            words = f"in the next life {second.error}. What is in the file then?"
            return broken(WHOLE, f"Killed {first.killed}; {words}")
        if first.broken:
            return broken(WHOLE, f"Killed {first.killed}; in the store then: {first.broken}")
        wrong = _differs(second, result) if sound else ""
        if wrong:
            words = f"the next life: {wrong} Is there a moment with half of each?"
            return broken(WHOLE, f"Killed {first.killed}; {words}")
    if not many:
        words = "Until save returns it makes no call that changes a file. Who writes, and when?"
        return broken(WHOLE, words)
    if not sound:
        return later(WHOLE, "What resume gives is no state that was saved; see above.")
    return kept(WHOLE, f"Killed in {many} moments, before each call or before some of them.")


def _lost(result: RestartResult, own: RestartTask) -> Finding:
    worst = 0
    for lives in (result.journey, *_trials(result)):
        if any(life.error or life.began is None for life in lives):
            return later(LOST)
        safe = 0
        for first, second in pairwise(lives):
            safe = max([safe, int(first.began or 0), *first.saved])
            began = int(second.began or 0)
            if second.trained:
                words = f"Killed {first.killed}; resume itself takes {second.trained} steps."
                return broken(LOST, words)
            if began < safe:
                return broken(
                    LOST,
                    f"Killed {first.killed}: the next life begins at step {began}, though the save after step {safe}"
                    " was over. What was on the disk when it returned?",
                )
            worst = max(worst, first.reached - began)
    return kept(LOST, f"{worst} at the most; a save comes after each {own.interval}.")


def _end(result: RestartResult) -> Finding:
    right = result.reference[-1]
    if result.alone[0].ended != right:
        return broken(END, "Even of a run that nobody kills: save changes the training.")
    if result.journey[-1].ended != right:
        return broken(END, f"Killed {len(result.journey) - 1} times, it ends elsewhere.")
    return kept(END, f"After {len(result.journey)} lives.")


def _trials(result: RestartResult) -> list[tuple[Attempt, Attempt]]:
    return [(first, second) for each in result.trials.values() for first, second in each]
