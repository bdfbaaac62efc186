"""Write what a class gets on paper: `make course`, or `python instructor_notes/build.py [FOLDER] [SEED]`.

Exams, the concept test, worked problems and design problems, answers apart. Another seed is another version of exams
and design problems, with other numbers where they draw them, and options in another order. Exams and the concept test
are also written for Moodle (`.gift`) and for text2qti (`.txt`), which makes the archive that Canvas imports.
"""

import sys
from importlib import import_module
from pathlib import Path

from lib_dlhpc.explore.course import PATH, RECORDED
from lib_dlhpc.teaching.designs import design, problem, solution
from lib_dlhpc.teaching.problems import answers, page
from lib_dlhpc.teaching.questions import exam, key, sheet
from lib_dlhpc.teaching.quizzes import gift, text2qti

HERE = Path(__file__).parent


def write(folder: Path, name: str, text: str) -> None:
    """Write a file."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def main(folder: str = "build/course", seed: str = "0") -> None:
    """Write all pages into `folder`."""
    into, version = Path(folder), int(seed)
    pages = [("concept_test", "Concept test", HERE / "concept_test.py")]
    pages += [
        (
            f"exam/{module.name}",
            f"Module {module.number}, {module.title}",
            HERE / "exam" / f"{module.name}.py",
        )
        for module in PATH
    ]
    for name, title, path in pages:
        questions = exam(path, version)
        write(into, f"{name}.md", sheet(title, questions, version))
        write(into, f"{name}_answers.md", key(title, questions, version))
        feedback = name != "concept_test"  # asked twice: nobody should know the answers in between
        write(into, f"{name}.gift", gift(title, questions, version, feedback))
        write(into, f"{name}.txt", text2qti(title, questions, version, feedback))
    folders = {number: folder for folder, number in RECORDED.items()}
    for module in PATH:
        title = f"Problems of module {module.number}, {module.title}"
        problems = import_module(f"lib_dlhpc.explore.{folders[module.number]}.problems").PROBLEMS
        write(into, f"problems/{module.name}.md", page(title, problems))
        write(into, f"problems/{module.name}_answers.md", answers(title, problems))
        title = f"Design problem of module {module.number}"
        found = design(HERE / "design" / f"{module.name}.py", version)
        write(into, f"design/{module.name}.md", problem(title, found))
        write(into, f"design/{module.name}_solution.md", solution(title, found))
    print(f"The course on paper: {into.resolve()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
