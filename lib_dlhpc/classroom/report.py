"""What a learner sees of their own answers: guesses beside results, first tries, labs, hints, and what to review.

A check that a later module asks again is retrieval practice: what is wrong there has been forgotten, and is the first
to be reviewed; what is right there need not be, whatever it was before.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from lib_dlhpc.classroom.entry import Entry

AGAIN = "earlier."  # what follows in the name of a question is module.question of the check that is asked again
FORGOTTEN, OPEN, LATE = "forgotten", "not yet right", "right on a later try"
ORDER = (FORGOTTEN, OPEN, LATE)
Answers = dict[tuple[str, str], list[Entry]]  # by module and question, in order of time


def report(entries: Sequence[Entry], title: Callable[[str], str] = lambda module: module) -> Any:
    """Return a learner's report as plain data. title: from a module or lab, as records name it, to its title."""
    answers: Answers = defaultdict(list)
    for entry in entries:
        if entry.kind != "open":
            answers[entry.module, entry.question].append(entry)
    groups = [item for item in answers.items() if item[1][0].kind not in ("lab", "hint")]
    modules = [
        _module(module, title(module), [given for (own, _), given in groups if own == module])
        for module in dict.fromkeys(module for (module, _), _ in groups)
    ]
    labs = [_lab(title(key[0]), given) for key, given in answers.items() if given[0].kind == "lab"]
    hints = [
        {"title": title(lab), "topic": given[0].asked, "opened": len(given)}
        for (lab, _), given in answers.items()
        if given[0].kind == "hint"
    ]
    return {"modules": modules, "labs": labs, "hints": hints, "review": _review(answers, title)}


def _module(name: str, title: str, questions: Sequence[Sequence[Entry]]) -> dict[str, Any]:
    checks = [given for given in questions if given[0].kind in ("check", "compute")]
    guesses = [given[0] for given in questions if given[0].kind in ("guess", "choice")]
    return {
        "module": name,
        "title": title,
        "guesses": [
            {"asked": each.asked, "guess": each.answer, "result": each.result, "right": each.right}
            for each in guesses
        ],
        "checks": len(checks),
        "right_at_first_try": sum(given[0].right is True for given in checks),
        "right": sum(any(each.right for each in given) for given in checks),
    }


def _lab(title: str, given: Sequence[Entry]) -> dict[str, Any]:
    passed = any(entry.right for entry in given)
    missing = [] if passed else [law for law in given[-1].answer.split("; ") if law]
    return {
        "title": title,
        "part": given[0].question,
        "passed": passed,
        "attempts": len(given),
        "does_not_hold_yet": missing,
    }


def _review(answers: Answers, title: Callable[[str], str]) -> list[dict[str, Any]]:
    """Return what to review, what was forgotten first, then the latest first."""
    found: Answers = {}  # of a check, what was answered when it was asked last
    for (module, question), given in sorted(answers.items(), key=lambda item: item[1][0].time):
        if given[0].kind in ("check", "compute"):
            origin, _, name = question.removeprefix(AGAIN).partition(".")
            found[(origin, name) if question.startswith(AGAIN) else (module, question)] = given
    listed = []
    latest = sorted(found.items(), key=lambda item: item[1][-1].time, reverse=True)
    for (module, _), given in latest:
        why = _why(given)
        if why:
            asked = given[0].asked
            listed.append({"module": module, "title": title(module), "asked": asked, "why": why})
    return sorted(listed, key=lambda each: ORDER.index(each["why"]))


def _why(given: Sequence[Entry]) -> str:
    """Return why to review a check; empty if it was right at once."""
    if given[0].right:
        return ""
    if given[0].question.startswith(AGAIN):
        return FORGOTTEN
    return LATE if any(entry.right for entry in given) else OPEN


def lines(found: Any) -> list[str]:
    """Return a report as lines of text."""
    said = []
    for module in found["modules"]:
        right = sum(guess["right"] is True for guess in module["guesses"])
        counts = [f"{right} of {len(module['guesses'])} guesses right"] if module["guesses"] else []
        if module["checks"]:
            first = f"{module['right_at_first_try']} of {module['checks']}"
            counts.append(f"{first} checks right on the first try, {module['right']} by now")
        said.append(": ".join(filter(None, (module["title"], "; ".join(counts)))))
        for guess in module["guesses"]:
            mark = "+" if guess["right"] else "-"
            said.append(f"  {mark} {guess['asked']}")
            said.append(f"      you: {guess['guess'] or 'skipped'}; it is {guess['result']}")
    for lab in found["labs"]:
        state = "passed" if lab["passed"] else "not passed yet"
        tries = f"{lab['attempts']} {'attempt' if lab['attempts'] == 1 else 'attempts'}"
        said.append(f"{lab['title']}, {lab['part']}: {state}, {tries}")
        said += [f"  - {law}" for law in lab["does_not_hold_yet"]]
    for hint in found["hints"]:
        count = f"{hint['opened']} {'hint' if hint['opened'] == 1 else 'hints'}"
        said.append(f"{hint['title']}: {count} opened on {hint['topic']}")
    if found["review"]:
        said.append("Review again:")
        said += [f"  {each['title']} ({each['why']}): {each['asked']}" for each in found["review"]]
    return said or ["Nothing has been answered yet."]
