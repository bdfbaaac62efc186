"""Hand-ins that look alike are listed: copies, renamed ones, parts; what all were given does not count."""

import pytest
from cheats import HEAD, RIGHT

from lib_dlhpc.labs.grading.similar import pairs, report, runs, share, starter_of

RENAMED = RIGHT.replace("samples", "n").replace("total", "summe").replace("value", "wert")
OTHER = """
def step(network, loss, x, y, comm, rate):
    buffer = np.zeros(network.gradients.size + 2)
    buffer[-1] = len(x)
    if len(x):
        buffer[-2], dy = loss(network.forward(x), y, 1)
        network.backward(dy)
        buffer[:-2] = network.gradients
    whole = comm.allreduce(buffer)
    for at, gradient in enumerate(whole[:-2]):
        network.weights[at] -= rate * gradient / whole[-1]
    return whole[-2] / whole[-1]
"""


def test_a_copy_is_alike_as_written_and_a_renamed_one_in_its_structure():
    found = pairs({"a": RIGHT, "b": RIGHT, "c": RENAMED, "d": OTHER})
    assert {(p.one, p.other) for p in found} == {("a", "b"), ("a", "c"), ("b", "c")}
    assert (found[0].one, found[0].other) == ("a", "b")
    assert found[0].written == found[0].structure == 1
    assert all(pair.structure == 1 and pair.written < 0.8 for pair in found[1:])


def test_a_copy_with_other_functions_around_it_is_found():
    (pair,) = pairs({"a": RIGHT, "b": OTHER.replace("step", "other") + RIGHT})
    assert pair.written == 1


def test_what_all_were_given_does_not_count():
    assert not pairs({"a": HEAD + RIGHT, "b": RIGHT}, starter=RIGHT)


@pytest.mark.parametrize("text", ["", "x = 1\n", "def (", "'''", "x = (\n"])
def test_what_is_short_or_no_python_is_like_nothing(text):
    assert share(runs(text, True), runs(RIGHT, True)) == 0


def test_the_report_is_a_table_that_names_cannot_break():
    text = report(pairs({"a|b": RIGHT, "<b>": RIGHT}), "lab")
    assert "| a\\|b | &lt;b> | 100% | 100% |" in text
    assert "None." in report([], "lab")


def test_the_starter_is_the_code_of_the_notebook(repository):
    assert "def step(" in starter_of(repository / "labs" / "01_data_parallel_step")
