"""Write what a class gets on paper: `make course`, or `python instructor_notes/build.py [FOLDER] [SEED] [--key FILE]`.

Exams of the modules, a midterm and an exam of the 14 and the 10 weeks, an exam of the 6 weeks, the concept test,
worked problems, design problems and cases, answers apart. Another seed, a number or a learner's name, is another
version of all but the concept test, with other numbers, and options in another order; problems of seed 0 are those of
the pages. With the secret of `dlhpc grade --key` nobody else can write that version. Exams and the concept
test are also written for Moodle (`.gift`) and for text2qti (`.txt`), whose archive Canvas imports.
"""

import argparse
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from lib_dlhpc.explore.course import PATH, RECORDED
from lib_dlhpc.labs.grading.grade import hidden_name, secret
from lib_dlhpc.teaching.cases import answered, asked, case
from lib_dlhpc.teaching.designs import design, problem, solution
from lib_dlhpc.teaching.problems import PAGE, answers, page
from lib_dlhpc.teaching.problems import version as other
from lib_dlhpc.teaching.questions import (
    Draw,
    Open,
    Question,
    allowed,
    exam,
    key,
    read,
    sheet,
    shuffled,
)
from lib_dlhpc.teaching.quizzes import gift, text2qti

HERE = Path(__file__).parent
ALL = tuple(module.number for module in PATH)
PAPERS = {  # of each course: title, questions, minutes, modules; no question is in two papers of a course
    "14 weeks": {
        "midterm": ("Midterm", 20, 50, ("01", "02", "03", "04", "06", "07", "08", "11")),
        "final": ("Exam", 30, 60, ALL),
    },
    "6 weeks": {"final_6_weeks": ("Exam", 25, 50, tuple(each for each in ALL if each <= "11"))},
}
TESTS = {"concept_test": "Concept test", "concept_test_b": "Concept test, form B"}


def write(folder: Path, name: str, text: str) -> None:
    """Write a file."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def version_of(seed: str, key: bytes) -> int:
    """Return the number from which a version draws: the seed, or what its HMAC with the key says."""
    if seed.isdecimal() and not key:
        return int(seed)
    return int(hidden_name(key, f"exam {seed}")[:16], 16)


def papers(pools: Mapping[str, Sequence[Question]], version: int) -> dict[str, list[Question]]:
    """Return the questions of each paper: of each module in turn the next one of an order of the version."""
    found = {}
    for course in PAPERS.values():
        left = {each: shuffled(pool, f"papers {version} {each}") for each, pool in pools.items()}
        for name, (_, many, _, modules) in course.items():
            taken: list[tuple[str, Question]] = []
            while len(taken) < many and any(left.get(each) for each in modules):
                some = [each for each in modules if left.get(each)][: many - len(taken)]
                taken += [(each, left[each].pop()) for each in some]
            found[name] = [question for _, question in sorted(taken, key=lambda one: one[0])]
    return found


def put(
    into: Path,
    name: str,
    title: str,
    questions: Sequence[Question],
    order: int,
    last: Open | None = None,
    graded: bool = True,
    minutes: int = 0,
) -> None:
    """Write questions, their answers, and both for a learning platform. last, graded, minutes: as of `sheet`."""
    write(into, f"{name}.md", sheet(title, questions, order, last, graded, minutes))
    write(into, f"{name}_answers.md", key(title, questions, order, last))
    write(into, f"{name}.gift", gift(title, questions, order, graded))
    write(into, f"{name}.txt", text2qti(title, questions, order, graded))


def main(folder: str = "build/course", seed: str = "0", secret_file: str | None = None) -> None:
    """Write all pages into `folder`."""
    into, version = Path(folder), version_of(seed, secret(secret_file))
    for name, title in TESTS.items():  # asked twice: nobody should know the answers in between
        order = version_of(seed, b"")  # as evaluation.ipynb knows it
        put(into, name, title, exam(HERE / f"{name}.py", version), order, graded=False)
    pools = {}
    for module in PATH:
        path, title = HERE / "exam" / f"{module.name}.py", f"Module {module.number}, {module.title}"
        pools[module.number] = exam(path, version)
        last = read(path, "OPEN")
        minutes = allowed(pools[module.number], last)
        put(into, f"exam/{module.name}", title, pools[module.number], version, last, True, minutes)
    named = {name: paper for course in PAPERS.values() for name, paper in course.items()}
    for name, questions in papers(pools, version).items():
        title, _, minutes, _ = named[name]
        put(into, f"exam/{name}", title, questions, version, minutes=minutes)
    folders = {number: folder for folder, number in RECORDED.items()}
    for module in PATH:
        title = f"Problems of module {module.number}, {module.title}"
        source = find_spec(f"lib_dlhpc.explore.{folders[module.number]}.problems").origin
        problems = other(source, Draw(version, module.name) if version else PAGE)
        write(into, f"problems/{module.name}.md", page(title, problems))
        write(into, f"problems/{module.name}_answers.md", answers(title, problems))
        title = f"Design problem of module {module.number}"
        found = design(HERE / "design" / f"{module.name}.py", version)
        write(into, f"design/{module.name}.md", problem(title, found))
        write(into, f"design/{module.name}_solution.md", solution(title, found))
        path = HERE / "case" / f"{module.name}.py"
        if path.is_file():
            own, title = case(path, version), f"Case of module {module.number}"
            write(into, f"case/{module.name}.md", asked(title, own))
            write(into, f"case/{module.name}_answers.md", answered(title, own))
    print(f"The course on paper: {into.resolve()}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write exams, tests and problems, answers apart.")
    parser.add_argument("folder", nargs="?", default="build/course", metavar="FOLDER")
    parser.add_argument("seed", nargs="?", default="0", metavar="SEED", help="a number or a name")
    parser.add_argument("--key", metavar="FILE", help="a file with a secret, as of dlhpc grade")
    options = parser.parse_args()
    main(options.folder, options.seed, options.key)
