"""The guess of a lab: its cell, which learners read in JupyterLab, does not give the answer away."""

import ast
import json
import re

import pytest

from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.course import LABS


def guesses(repository, lab):
    """Return the calls of a lab's notebook that ask for a guess, each with its arguments by name."""
    (path,) = (repository / "labs" / lab).glob("*.ipynb")
    cells = json.loads(path.read_text("utf-8"))["cells"]
    code = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
    for node in ast.walk(ast.parse(re.sub(r"^[%!].*$", "", code, flags=re.M))):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("lesson.predict"):
            yield node, {each.arg: each.value for each in node.keywords}


@pytest.mark.parametrize("lab", LABS)
def test_the_cell_of_a_guess_does_not_have_its_result(repository, lab):
    found = list(guesses(repository, lab))
    assert found
    assert not any(isinstance(given.get("result"), ast.Constant) for _, given in found)


@pytest.mark.parametrize(
    ("lab", "hidden"), [("04_pipeline", "FILL"), ("15_size_and_fit", "FROZEN")]
)
def test_an_explanation_with_the_numbers_of_a_result_is_not_in_the_cell(
    repository, checks, lab, hidden
):
    ((_, given),) = guesses(repository, lab)
    assert ast.unparse(given["explanation"]) == hidden
    assert getattr(checks(lab), hidden).endswith(".")


@pytest.mark.parametrize(
    ("lab", "hidden"), [("01_data_parallel_step", "IDENTICAL"), ("03_large_batch", "SCALED")]
)
def test_a_hidden_result_is_one_of_the_options(repository, checks, lab, hidden):
    ((call, given),) = guesses(repository, lab)
    assert ast.unparse(given[None]) == hidden
    question, options = (ast.literal_eval(each) for each in call.args)
    answer = getattr(checks(lab), hidden)
    card = Lesson().predict_choice(question, options, **answer)
    assert answer["result"] in options
    assert answer["explanation"] in card.question.answer(options[0])["words"]
