"""`dlhpc grade`: mark the hand-ins of a class, each in processes with no access to answers or files."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lib_dlhpc.commands.output import add_output, print_note, print_result
from lib_dlhpc.errors import SpecError

if TYPE_CHECKING:
    from lib_dlhpc.labs.grading.grade import Mark

SECONDS = 60


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `grade` to the command line."""
    command = subparsers.add_parser("grade", help="grade the hand-ins of a class, for instructors")
    command.add_argument("folder", metavar="DIR", help="a folder with one folder for each learner")
    command.add_argument(
        "--lab", required=True, help="the lab to grade, such as 01_data_parallel_step, or 1"
    )
    command.add_argument(
        "--torch", action="store_true", help="grade the PyTorch part of the lab, torch_step.py"
    )
    command.add_argument(
        "--csv", metavar="FILE", help="write the marks to a new file, one line per learner"
    )
    command.add_argument(
        "--key",
        metavar="FILE",
        help="a file with a secret, from which additional variants are drawn that learners cannot know",
    )
    command.add_argument(
        "--rubrics",
        metavar="FOLDER",
        help="write a page for each learner to a new folder, for the part of the lab that you grade yourself",
    )
    command.add_argument(
        "--similar", metavar="FILE", help="write a list of similar hand-ins to a new file"
    )
    command.add_argument(
        "--seconds",
        type=int,
        default=SECONDS,
        metavar="N",
        help=f"time limit per hand-in (default: {SECONDS})",
    )
    add_output(command)
    command.set_defaults(command=_grade)


def _grade(options: argparse.Namespace) -> int:
    from lib_dlhpc.labs.grading.grade import grades, secret
    from lib_dlhpc.labs.grading.table import COLUMNS, cell, write_marks

    if options.seconds < 1:
        raise SpecError(f"--seconds {options.seconds}: expected 1 or more.")
    for option in ("csv", "rubrics", "similar"):  # before the work, not after it
        if getattr(options, option) is not None:
            _check_new(option, Path(getattr(options, option)))
    marks = []
    key = secret(options.key)
    graded = grades(
        Path(options.folder), options.lab, key, options.seconds, print_note, options.torch
    )
    for mark in graded:
        marks.append(mark)
        words = f"{mark.passed} of {mark.total}, {mark.status}. {cell(mark.note)}"
        print_note(f"{cell(mark.learner)}: {words}")
    if options.csv:
        write_marks(Path(options.csv), marks)
    if options.rubrics:
        write_rubrics(Path(options.rubrics), options.lab, marks)
    if options.similar:
        _write_similar(Path(options.similar), options.lab, options.torch, marks)
    rows = [{name: getattr(mark, name) for name in COLUMNS} for mark in marks]
    right = sum(mark.status == "passed" for mark in marks)
    print_result(options, rows, f"{right} of {len(marks)} passed.")
    return 0


def _check_new(option: str, file: Path) -> None:
    """Raise SpecError where something would be overwritten, such as points that a person gave."""
    if not file.absolute().parent.is_dir():
        raise SpecError(f"--{option} {file}: its folder does not exist.")
    if option == "rubrics":
        if file.exists() and (not file.is_dir() or any(file.iterdir())):
            raise SpecError(f"--rubrics {file} exists: expected a new or an empty folder.")
    elif file.exists():
        raise SpecError(f"--{option} {file} exists: expected a new file.")


def write_rubrics(folder: Path, lab: str, marks: Sequence["Mark"]) -> None:
    """Write a page for each learner, named after the folder that was handed in."""
    from lib_dlhpc.labs.grading.labs import folder_of
    from lib_dlhpc.labs.grading.rubric import page, rubric_of
    from lib_dlhpc.lifetime.files import write_text

    folder.mkdir(exist_ok=True)
    own = folder_of(lab)
    rubric = rubric_of(own.parents[1] / "instructor_notes", own.name)
    for mark in marks:
        write_text(folder / f"{mark.folder.name}.md", page(mark, rubric))


def _write_similar(file: Path, name: str, torch: bool, marks: Sequence["Mark"]) -> None:
    """Write which hand-ins look alike; the published solution is one of them."""
    from lib_dlhpc.labs.grading.labs import folder_of
    from lib_dlhpc.labs.grading.similar import pairs, report, starter_of
    from lib_dlhpc.lifetime.files import write_text

    lab = folder_of(name)
    texts = {mark.folder.name: mark.text for mark in marks if mark.text}
    solved = f"torch_lab_{lab.name[:2]}.py" if torch else f"lab_{lab.name}.py"
    solution = lab.parents[1] / "instructor_notes" / "solutions" / solved
    if solution.is_file():
        texts["the solution"] = solution.read_text("utf-8")
    starter = (lab / "torch_starter.py").read_text("utf-8") if torch else starter_of(lab)
    write_text(file, report(pairs(texts, starter), marks[0].lab))
