"""Exam questions as files that a course's own system imports: Moodle (GIFT), and Canvas (by text2qti).

Both carry the feedback: why the right option is right, and the misconception behind each wrong one. Without feedback a
file is for a test whose answers must not be seen, as the concept test before the course.
"""

import re
from collections.abc import Sequence

from lib_dlhpc.teaching.questions import Question, options

_SPECIAL = re.compile(r"([~=#{}:\\])")


def gift(title: str, questions: Sequence[Question], seed: int = 0, feedback: bool = True) -> str:
    """Return the questions in Moodle's GIFT format, in a category that has their title."""
    lines = [f"$CATEGORY: {title.replace('/', '//')}", ""]
    for question in questions:
        lines.append(f"::{_plain(question.name)}::[markdown]{_plain(question.text)} {{")
        for option in options(question, seed):
            mark = "=" if option == question.right else "~"
            after = f"#{_plain(_feedback(question, option))}" if feedback else ""
            lines.append(f"{mark}{_plain(option)}{after}")
        lines += ["}", ""]
    return "\n".join(lines)


def text2qti(
    title: str, questions: Sequence[Question], seed: int = 0, feedback: bool = True
) -> str:
    """Return the questions for `uvx text2qti FILE.txt`, which writes the QTI archive that Canvas imports."""
    lines = [f"Quiz title: {title}", "Quiz description: One option is right.", ""]
    for number, question in enumerate(questions, 1):
        lines += [f"Title: {question.name}", f"{number}. {_literal(question.text)}"]
        for letter, option in zip("abcd", options(question, seed), strict=True):
            mark = "*" if option == question.right else ""
            lines.append(f"{mark}{letter}) {_literal(option)}")
            lines += [f"... {_literal(_feedback(question, option))}"] if feedback else []
        lines.append("")
    return "\n".join(lines)


def _feedback(question: Question, option: str) -> str:
    return question.because if option == question.right else question.wrong[option]


def _line(text: str) -> str:
    return " ".join(text.split())


def _literal(text: str) -> str:
    return _line(text).replace("$", r"\$")


def _plain(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", _line(text))
