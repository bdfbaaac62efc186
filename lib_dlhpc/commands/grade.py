"""`dlhpc grade`: mark the hand-ins of a class, each in processes that have neither answers nor files."""

import argparse
from dataclasses import asdict
from pathlib import Path

from lib_dlhpc.commands.output import add_output, print_note, print_result
from lib_dlhpc.errors import SpecError

SECONDS = 60


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `grade` to the command line."""
    command = subparsers.add_parser("grade", help="mark the hand-ins of a class, for instructors")
    command.add_argument("folder", metavar="DIR", help="it has a folder for each learner")
    command.add_argument("--lab", required=True, help="such as 01_data_parallel_step")
    command.add_argument("--csv", metavar="FILE", help="write the marks, a line for each learner")
    command.add_argument("--key", metavar="FILE", help="a secret; adds variants that nobody knows")
    command.add_argument(
        "--seconds", type=int, default=SECONDS, metavar="N", help=f"a hand-in (default: {SECONDS})"
    )
    add_output(command)
    command.set_defaults(command=_grade)


def _grade(options: argparse.Namespace) -> int:
    from lib_dlhpc.labs.grading.grade import grades
    from lib_dlhpc.labs.grading.table import cell, write_marks

    if options.seconds < 1:
        raise SpecError(f"--seconds {options.seconds}: expected 1 or more.")
    if options.csv and not Path(options.csv).absolute().parent.is_dir():
        raise SpecError(f"--csv {options.csv}: its folder does not exist.")
    marks = []
    for mark in grades(Path(options.folder), options.lab, _key(options.key), options.seconds):
        marks.append(mark)
        print_note(
            f"{cell(mark.learner)}: {mark.passed} of {mark.total}, {mark.status}. {cell(mark.note)}"
        )
    if options.csv:
        write_marks(Path(options.csv), marks)
    shown = ("learner", "lab", "passed", "total", "status", "note")
    rows = [
        {name: value for name, value in asdict(mark).items() if name in shown} for mark in marks
    ]
    right = sum(mark.status == "passed" for mark in marks)
    print_result(options, rows, f"{right} of {len(marks)} passed.")
    return 0


def _key(file: str | None) -> bytes:
    """Return the instructor's secret. Raises SpecError if it is too short to be one."""
    if file is None:
        return b""
    key = Path(file).read_bytes().strip()
    if len(key) < 16:
        raise SpecError(
            f"--key {file}: {len(key)} bytes; expected 16 or more, such as of `openssl rand -hex 16`."
        )
    return key
