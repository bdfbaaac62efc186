"""The slides of a lab: to open it, its task, law and checks; to debrief it, mistakes and the reflection.

Little is written for slides (explore/labs/slides.toml): a deck is made of the lab's README and notebook, the labs'
table, the notes for instructors, and the mistakes by name that the test suite runs.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import util
from pathlib import Path
from typing import NamedTuple

from lib_dlhpc.errors import SpecError, listed
from lib_dlhpc.explore.course import LABS, PATH
from lib_dlhpc.explore.slides import slide
from lib_dlhpc.explore.slides.deck import statements
from lib_dlhpc.explore.slides.notebook import (
    after,
    notebook_text,
    plain,
    plain_lines,
    sentences,
    table,
    taken,
)
from lib_dlhpc.explore.slides.notes import unrepeated
from lib_dlhpc.explore.slides.tex import readable
from lib_dlhpc.labs.grading.rubric import Row, rubric_of

LAWS = Path(__file__).parents[1] / "labs" / "slides.toml"
OPENS, CLOSES, TASK = "Opening the lab", "Debrief", "Task"
ROWS = 6  # of mistakes on a slide, at most
HUMAN, NONE = "read by people", "-"  # in place of a mistake
ITEM = r"^{}\. (.+?)(?=^\d\. |\n\n|\Z)"  # of a numbered list


class Law(NamedTuple):
    """What a lab rests on: a title, formulas by how they begin in a notebook or in full, and what letters mean."""

    title: str
    shown: Sequence[str] = ()
    written: Sequence[str] = ()
    said: Sequence[str] = ()
    debrief: Sequence[int] = (1, 2, 3)


class Mistake(NamedTuple):
    """A mistake that the solutions name, the check that catches it, and words of the check's message."""

    name: str
    law: str
    words: str


def lab_title(lab: str) -> str:
    """Return the title of a lab with its number, by its folder; raises SpecError where there is none."""
    if lab not in LABS:
        raise SpecError(listed(f"there is no lab {lab!r};", lab, LABS))
    return f"Lab {int(lab[:2])}: {LABS[lab].title}"


def lab_deck(lab: str, repository: Path) -> list[slide.Slide]:
    """Return the slides of a lab, by its folder. repository: the folder with labs/, modules/ and instructor_notes/.

    Raises SpecError where there is no such lab, and where a formula of slides.toml is in no notebook.
    """
    title = lab_title(lab)
    readme = (repository / "labs" / lab / "README.md").read_text("utf-8")
    notebook = _notebook(repository, lab)
    folder = repository / "instructor_notes"
    notes = (folder / f"lab_{lab}.md").read_text("utf-8")
    law, rubric = _laws()[lab], rubric_of(folder, lab)
    found = _mistakes(folder / "solutions" / f"lab_{lab}.py", rubric)
    slides = [
        _opening(lab, title, readme, notes),
        _task(lab, repository, readme),
        _law(law, notebook, repository),
        _checks(rubric, found),
        _messages(found),
        statements(notes, "Each is wrong, or only half of the truth.", CLOSES),
        *_debrief(law, notebook, notes),
    ]
    return list(unrepeated(slides))


def _laws() -> Mapping[str, Law]:
    """Return what slides.toml says of each lab."""
    read = tomllib.loads(LAWS.read_text("utf-8"))
    return {lab: Law(**own) for lab, own in read.items()}


def _notebook(repository: Path, lab: str) -> str:
    (path,) = (repository / "labs" / lab).glob("*.ipynb")
    return notebook_text(path)


def _opening(lab: str, title: str, readme: str, notes: str) -> slide.Slide:
    """Return the first slide: the goal, and in its notes the idea and the minutes of a class."""
    idea = plain(notes.split("\n\n")[1])
    rows = re.findall(r"^\| (\d+-\d+|at home) \| ([^|]+) \|", notes, re.M)
    timing = (f"{'' if when == 'at home' else 'Minutes '}{when}: {plain(do)}" for when, do in rows)
    skip = re.search(r"(Skip first: .+?)\n\n", notes, re.S)
    needs = f"Learners need {plain(after(readme, 'You need'))}"
    goal = plain(after(readme, "Goal"))
    said = [idea, f"The goal: {goal}", needs, "", *timing, plain(skip[1]) if skip else ""]
    return slide.Slide(
        f"{title} ({LABS[lab].minutes}\N{NO-BREAK SPACE}minutes)",
        tuple(taken(sentences(goal), slide.WORDS)),
        "\n".join(said).strip(),
        kind=slide.OPENING,
        section=OPENS,
    )


def _task(lab: str, repository: Path, readme: str) -> slide.Slide:
    """Return the slide of what learners write, reach and hand in: the lab's row in the table of labs/README.md."""
    rows = table((repository / "labs" / "README.md").read_text("utf-8").split("\n\n")[2])
    write, target = next((row[3], row[4]) for row in rows if row[0].startswith(f"{int(lab[:2])} "))
    hand_in = plain(after(readme, "Hand in"))
    # The speaker notes say how files are named.
    files = sentences(hand_in)[0].partition(":")[0].rstrip(".")
    return slide.Slide(
        "What you write, and what you hand in",
        (f"You write: {write}.", f"For full marks: {target}.", f"Hand in {files}."),
        f"Say when it is due.\nHand in {hand_in}\nFor full marks:\n{_full_marks(readme)}",
        kind=TASK,
        section=OPENS,
    )


def _full_marks(readme: str) -> str:
    """Return what full marks take, line by line."""
    part = readme.split("**Full marks** ", 1)[1].split("\n## ", 1)[0]
    return "\n".join(
        plain_lines(" ".join(each.split())) for each in re.split(r"\n\n|\n(?=- )", part)
    )


def _law(law: Law, notebook: str, repository: Path) -> slide.Slide:
    found = [_formula(begin, notebook, repository) for begin in law.shown]
    sources = dict.fromkeys(source for _, source in found)
    formulas = (*(tex for tex, _ in found), *law.written)
    return slide.Slide(
        law.title,
        tuple(law.said),
        "Show it once everyone has committed to the guess. Ask what each letter is in this lab, and which of them"
        f" learners can change.\nThe slide says: {'; '.join(map(readable, formulas))}. {' '.join(law.said)}",
        formulas=formulas,
        kind=slide.BOARD,
        section=OPENS,
        source=f"From {' and '.join(sources)}" if sources else "",
    )


def _formula(begin: str, notebook: str, repository: Path) -> tuple[str, str]:
    """Return the formula that begins so, and where it is: in the lab's notebook, or in a module's."""
    texts = {"the lab's notebook": notebook}
    for module in PATH:
        texts[f"module {module.number}"] = notebook_text(repository / "modules" / module.file)
    for source, text in texts.items():
        for tex in re.findall(r"\$\$(.+?)\$\$|\$([^$\n]+)\$", text, re.S):
            for part in re.split(r"\\qquad", "".join(tex)):
                if part.strip().startswith(begin):
                    return " ".join(part.split()).strip(" ,."), source
    raise SpecError(f"slides.toml: no notebook has a formula that begins with {begin!r}.")


def _mistakes(solution: Path, rubric: Sequence[Row]) -> list[Mistake]:
    """Return the mistakes by name of a solution: tables of {mistake: (..., law, words)}.

    A law is named by its beginning, as the rubric has it where that is longer. Lab 3 has one law, its target, and
    alternatives of words.
    """
    found = util.spec_from_file_location(solution.stem, solution)
    assert found is not None and found.loader is not None
    module = util.module_from_spec(found)
    found.loader.exec_module(module)
    items = [law for row in rubric for item in row.items for law in item]
    mistakes = list[Mistake]()
    for name, own in vars(module).items():
        if name.isupper() and isinstance(own, dict):
            for mistake, (*_, law, words) in own.items():
                said = str(getattr(mistake, "__name__", mistake)).replace("_", " ")
                law = law if isinstance(law, str) else items[0]
                longer = [item for item in items if item.startswith(law)]
                law = longer[0] if len(longer) == 1 else law
                mistakes.append(Mistake(said, law, words.partition("|")[0].strip(" ,")))
    return mistakes


def _checks(rubric: Sequence[Row], found: Sequence[Mistake]) -> slide.Slide:
    """Return the slide of the rubric: points, what counts, and a mistake that its checks catch."""
    rows = [(str(row.points), _counted(row), _caught(row, found)) for row in rubric]
    caught = dict[str, list[str]]()
    for each in found:
        caught.setdefault(each.law, []).append(each.name)
    said = [f"Read by people: {plain(row.what)}." for row in rubric if not row.items]
    said += [f"{law} catches: {'; '.join(names)}." for law, names in caught.items()]
    return slide.Slide(
        f"{sum(row.points for row in rubric)} points, and mistakes that the checks catch",
        (),
        "\n".join(["Run the checks on the starter, and read the first message aloud.", *said]),
        kind=slide.CHECK,
        section=OPENS,
        table=(("points", "what counts", "catches, for example"), *rows),
    )


def _counted(row: Row) -> str:
    """Return what counts in a row; what a reflection has to say would give it away before the lab."""
    what = plain(row.what)
    return "reflection" if what.startswith("reflection") else what


def _caught(row: Row, found: Sequence[Mistake]) -> str:
    """Return the first mistake that the checks of a row catch; people read the rows without checks."""
    if not row.items:
        return HUMAN
    begins = tuple(law for item in row.items for law in item)
    return next((each.name for each in found if _same(each.law, begins)), NONE)


def _same(law: str, begins: Sequence[str]) -> bool:
    return any(law.startswith(begin) or begin.startswith(law) for begin in begins)


def _messages(found: Sequence[Mistake]) -> slide.Slide:
    """Return the slide of mistakes with what the check says, at most one of each check, ROWS at most."""
    firsts = dict[str, Mistake]()
    for each in found:
        firsts.setdefault(each.law, each)
    own = list(firsts.values()) if len(firsts) > 1 else list(found)
    shown = min(ROWS, len(own))
    rows = [(each.name, each.law, f'"{each.words}"') for each in own[:: len(own) // shown][:shown]]
    said = (f'{each.name}: "{each.words}" ({each.law})' for each in own)
    return slide.Slide(
        "What a check says names the mistake, not the solution",
        (),
        "\n".join(
            ["Which message did you get first? Cover the left column and let them guess.", *said]
        ),
        kind=slide.RESULT,
        section=CLOSES,
        table=(("mistake", "check", "its message has the words"), *rows),
    )


def _debrief(law: Law, notebook: str, notes: str) -> Iterator[slide.Slide]:
    """Yield three questions of the reflection, each with its answer in the notes."""
    asked = notebook.split("## Reflect", 1)[1]
    answers = notes.split("## Answers to the reflection", 1)[1].split("\n## ", 1)[0]
    for number in law.debrief:
        question, answer = (_item(text, number) for text in (asked, answers))
        parts, in_full = sentences(question), f"\nIn full: {question}"
        lines = taken(parts, slide.QUESTION)
        yield slide.Slide(
            f"Reflection {number}: compare what you wrote",
            tuple(lines),
            f"Ask for two answers first.\nAnswer: {answer}{'' if len(lines) == len(parts) else in_full}",
            kind=slide.DISCUSS,
            section=CLOSES,
        )


def _item(text: str, number: int) -> str:
    """Return an item of a numbered list; raises SpecError where there is none."""
    found = re.search(ITEM.format(number), text, re.M | re.S)
    if not found:
        raise SpecError(f"the reflection has no question {number}, or no answer to it.")
    return plain(found[1])
