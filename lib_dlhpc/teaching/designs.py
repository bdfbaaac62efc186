"""Design problems: an open question in six parts that build on one another, with a rubric; solutions apart.

    Design(title, setting, toml, predicted, [Part(ask, [Step("Work", 6 * n, "FLOP")], said, full, half), ...])

A file of `instructor_notes/design` imports what it needs from here and defines `design(draw)`: each version has numbers
of its own, and those of a solution are computed when it is written. The first part is arithmetic with the numbers of
the setting; a test repeats it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.simulation.step import simulate_terms
from lib_dlhpc.spec.experiment import Experiment, loads
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.problems import Step
from lib_dlhpc.teaching.questions import Draw, read

__all__ = [
    "Design",
    "Draw",
    "Part",
    "Step",
    "begun",
    "design",
    "predict",
    "problem",
    "show",
    "simulate_terms",
    "solution",
    "times",
    "varied",
]


class Kind(NamedTuple):
    """One of the six parts: its heading, its points, and what all of them and half of them are given for."""

    heading: str
    points: int
    full: str
    half: str


KINDS = (
    Kind(
        "Estimate by hand",
        2,
        "each number has its formula, its inputs and its unit, and is right within 5%",
        "one number is wrong, or the formulas are right and an input is not",
    ),
    Kind(
        "Predict", 1, "the commands are given, and each estimate stands beside its prediction", ""
    ),
    Kind(
        "Explain the difference",
        2,
        "each gap of more than 10% is explained by a term of the prediction, with its size",
        "the right term without a number, or only the largest gap",
    ),
    Kind(
        "Change one thing",
        2,
        "one field is changed at a time; what it gains and what it costs are both measured",
        "the gain without the cost, or two changes in one run",
    ),
    Kind(
        "Decide",
        2,
        "the choice meets every limit of the setting, beats a named alternative by a number, and its file runs",
        "the choice is legal but its reason has no number, or one limit is not checked",
    ),
    Kind(
        "Say what the model does not know",
        1,
        "one omission that could turn the decision around, with its direction and a measurement that would settle it",
        "",
    ),
)
POINTS = sum(kind.points for kind in KINDS)
HAND_IN = (
    "**Hand in**: one page with your numbers, each with its formula or its command, and the TOML file of your decision."
    " Allow 60 to 90 minutes."
)


class Part(NamedTuple):
    """One part: what to do, the numbers of the solution, what they say, and what earns all points or half of them."""

    ask: str
    steps: Sequence[Step]
    said: str
    full: str
    half: str = ""


class Design(NamedTuple):
    """A design problem. predicted: the time in s that `command` prints for `toml`, of a step or a token."""

    title: str
    setting: str
    toml: str
    predicted: float
    parts: Sequence[Part]
    command: str = "predict"


def design(path: Path, seed: int = 0) -> Design:
    """Return the design problem of a file, in one version."""
    found: Design = read(path, "design")(Draw(seed, path.stem))
    return found


def begun(toml: str) -> tuple[Experiment, Breakdown]:
    """Return the run of a file and its prediction."""
    run = loads(toml)
    return run, predict(run)


def times(run: Experiment, now: Breakdown, steps: int = 1) -> list[Step]:
    """Return the time of a step as predicted, and as the mean of simulated ones."""
    found = simulate_terms(run, steps=steps)
    return [
        Step("Step, predicted", float(now.step_time), "s"),
        Step("Step, simulated", float(found.step_time), "s"),
    ]


def varied(run: Experiment, **fields: Any) -> Breakdown:
    """Return the prediction of a run with other fields of its strategy, or `section__field` of another section."""
    return predict(
        run.set(
            {
                name.replace("__", ".") if "__" in name else f"strategy.{name}": value
                for name, value in fields.items()
            }
        )
    )


def problem(title: str, found: Design) -> str:
    """Return the problem as Markdown: setting, file, parts and rubric, without a number of the solution."""
    lines = [f"# {title}: {found.title}", "", HAND_IN, "", "## The setting", "", found.setting, ""]
    lines += [f"Start from this file, which `dlhpc {found.command} start.toml` reads:", ""]
    lines += ["```toml", found.toml.strip(), "```", ""]
    for place, (kind, part) in enumerate(zip(KINDS, found.parts, strict=True), 1):
        lines += [f"## {place}. {kind.heading} ({_points(kind)})", "", part.ask, ""]
    lines += [f"## How it is graded ({POINTS} points)", ""]
    lines += ["| part | points | all | half |", "|---|---|---|---|"]
    lines += [f"| {kind.heading} | {kind.points} | {kind.full} | {kind.half} |" for kind in KINDS]
    lines += ["", "A part that is missing, or contradicts your own numbers, has none.", ""]
    return "\n".join(lines)


def solution(title: str, found: Design) -> str:
    """Return the solution as Markdown: of each part the numbers, what they say, and what its points are given for."""
    lines = [f"# {title}: {found.title}, solution", ""]
    lines += ["Numbers are those of the library when this page was written.", ""]
    for place, (kind, part) in enumerate(zip(KINDS, found.parts, strict=True), 1):
        lines += [f"## {place}. {kind.heading} ({_points(kind)})", ""]
        lines += [f"- {step.do}: {step.result}" for step in part.steps]
        lines += ["", part.said, "", f"**All points**: {part.full}"]
        lines += [f"**Half**: {part.half}"] if part.half else []
        lines.append("")
    return "\n".join(lines)


def _points(kind: Kind) -> str:
    return f"{kind.points} {'point' if kind.points == 1 else 'points'}"
