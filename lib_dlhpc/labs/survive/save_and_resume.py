"""Findings on a learner's save and resume, from the reports of a run that is killed (killed_runs.py).

restarts_of(seed)              how long the run is, and when it is killed
restart_findings(result, own)   four findings;  restarts_text(result, own): the attempts as lines
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from lib_dlhpc.labs.findings import Finding, broken, kept, later
from lib_dlhpc.labs.survive.killed_runs import Attempt, RestartResult, RestartTask

STATE = "resume restores what was saved, bit for bit"
WHOLE = "Killed at any moment of a save, it finds a complete version"
LOST = "No more steps are lost than the interval"
END = "At the end: the weights of an undisturbed run, bit for bit"
LAWS = (STATE, WHOLE, LOST, END)
PARTS = ("weights", "velocity", "order of samples")
WAY_ON = "Which state of the training carries over from step to step?"


def restarts_of(seed: int) -> RestartTask:
    """Return a learner's run: it is killed in two saves, the first one and another, and four times beside."""
    rng = np.random.default_rng([seed, 9])
    interval = int(rng.integers(3, 6))
    steps, trial = 6 * interval, int(rng.integers(2, 5)) * interval
    first, later_on = int(rng.integers(1, interval)), int(rng.integers(1, interval))
    saved = int(rng.integers(1, 3)) * interval
    # The last kill comes after a save whose step has two digits: by its name alone, s9 would be newer than s12.
    late = max(int(rng.integers(4, 6)) * interval - 1, 14)
    kills = (first, saved, saved + later_on, late)
    return RestartTask(int(seed), steps, interval, (interval, trial), kills)


def restart_findings(result: RestartResult, own: RestartTask) -> list[Finding]:
    """Return the findings on a run that was killed and restarted."""
    errors = [attempt.error for attempt in result.alone + result.journey if attempt.error]
    if errors:
        return [
            broken(STATE, f"Without any kill in a save: {errors[0]}."),
            *map(later, (WHOLE, LOST, END)),
        ]
    state = _state(result)
    return [state, _whole(result, bool(state.right)), _lost(result, own), _end(result)]


def restarts_text(result: RestartResult, own: RestartTask) -> str:
    """Return one line for each attempt of the run."""
    lines = [f"{own.steps} steps, a save after each {own.interval}"]
    for number, attempt in enumerate(result.journey, 1):
        if attempt.error:
            lines.append(f"attempt {number}: {attempt.error}")
            break
        fate = f"killed {attempt.killed}" if attempt.killed else "done"
        lines.append(f"attempt {number}: began at step {attempt.began}, {fate}")
    moments = {at: len(each) for at, each in result.trials.items()}
    tries = ", ".join(f"in {many} moments of that after step {at}" for at, many in moments.items())
    fine = [second for each in result.trials.values() for _, second in each if not second.error]
    return "\n".join(
        [*lines, f"Killed while it saves: {tries}; {len(fine)} of {sum(moments.values())} went on"]
    )


def _beginnings(result: RestartResult) -> Iterator[Attempt]:
    """Yield the attempts that follow a kill between two saves, or the end of the run."""
    yield from (result.alone[1], *result.journey[1:])


def _state(result: RestartResult) -> Finding:
    for attempt in (result.alone[0], result.journey[0]):
        if (attempt.began, attempt.state) != (0, result.reference[0]):
            return broken(
                STATE,
                "resume changes the training even if nothing was saved in its folder. Where does it read from?",
            )
    after = result.alone[1]  # a run that has saved to its end
    wrote = any(first.killed for first, _ in _trials(result))
    if wrote and (after.began, after.state) == (0, result.reference[0]):
        return broken(
            STATE,
            "After a run that wrote files in each save, resume leaves the training in its initial state. What does it"
            " find in `folder`, and does it write that into `training`?",
        )
    for attempt in _beginnings(result):
        wrong = _differs(attempt, result)
        if wrong:
            return broken(STATE, wrong)
    return kept(STATE, "Weights, velocity, the order of samples, and the step.")


def _differs(attempt: Attempt, result: RestartResult) -> str:
    """Return how the state at the start of an attempt differs from that of its step; empty if it does not."""
    steps = {tuple(state): number for number, state in enumerate(result.reference)}
    began = attempt.began if attempt.began is not None else -1
    if not 0 <= began < len(result.reference):
        return f"It began at step {began}; the run has {len(result.reference) - 1}."
    right = result.reference[began]
    if attempt.state == right:
        return ""
    if tuple(attempt.state) in steps:
        return f"Its step counter is {began}, but its state is that after step {steps[tuple(attempt.state)]}."
    weights = [
        number for number, state in enumerate(result.reference) if state[0] == attempt.state[0]
    ]
    if weights and began not in weights:
        return f"Its step counter is {began}, but its weights are those after step {weights[0]}. {WAY_ON}"
    wrong = [part for part, a, b in zip(PARTS, attempt.state, right, strict=True) if a != b]
    return f"It begins at step {began}, but these are not as they were after that step: {', '.join(wrong)}. {WAY_ON}"


def _whole(result: RestartResult, sound: bool) -> Finding:
    """Return whether the attempt after a kill within a save resumes from the state of a step, and saves again."""
    many = 0
    for first, second in _trials(result):
        many += bool(first.killed)
        if first.error:
            return broken(WHOLE, f"Before it was killed: {first.error}.")
        if second.error:
            words = f"in the next attempt {second.error}. What is in the file at that moment?"
            return broken(WHOLE, f"Killed {first.killed}; {words}")
        if first.broken:
            return broken(WHOLE, f"Killed {first.killed}; in the store then: {first.broken}")
        wrong = _differs(second, result) if sound else ""
        if wrong:
            words = f"the next attempt: {wrong} Is there a moment at which the file is a mixture of two versions?"
            return broken(WHOLE, f"Killed {first.killed}; {words}")
    if not many:
        words = (
            "save returns without any call that changes a file. What writes the state, and when?"
        )
        return broken(WHOLE, words)
    if not sound:
        return later(WHOLE, "What resume restores is not a saved state; see above.")
    return kept(WHOLE, f"Killed at {many} moments, around each file call or around some of them.")


def _lost(result: RestartResult, own: RestartTask) -> Finding:
    worst = 0
    for attempts in (result.journey, *_trials(result)):
        if any(attempt.error or attempt.began is None for attempt in attempts):
            return later(LOST)
        safe = 0
        for first, second in pairwise(attempts):
            safe = max([safe, int(first.began or 0), *first.saved])
            began = int(second.began or 0)
            if second.trained:
                words = f"Killed {first.killed}; resume itself takes {second.trained} steps."
                return broken(LOST, words)
            if began < safe:
                return broken(
                    LOST,
                    f"Killed {first.killed}: the next attempt begins at step {began}, although "
                    f"the save after step {safe} had returned. What was on the disk at that "
                    "moment?",
                )
            worst = max(worst, first.reached - began)
    return kept(LOST, f"{worst} at most; a save comes after each {own.interval}.")


def _end(result: RestartResult) -> Finding:
    right = result.reference[-1]
    if result.alone[0].ended != right:
        return broken(END, "Even without a kill the result differs: save changes the training.")
    if result.journey[-1].ended != right:
        return broken(
            END, f"Killed {len(result.journey) - 1} times, it ends with different weights."
        )
    return kept(END, f"After {len(result.journey)} attempts.")


def _trials(result: RestartResult) -> list[tuple[Attempt, Attempt]]:
    return [(first, second) for each in result.trials.values() for first, second in each]
