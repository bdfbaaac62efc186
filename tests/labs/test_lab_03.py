"""Lab 3: the starter misses the target, the solution reaches it, the budget and the single test are enforced."""

import re

import numpy as np
import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.labs.findings import passed
from lib_dlhpc.spec.experiment import load

LAB = "03_large_batch"


@pytest.fixture(scope="module")
def tuning(own):
    """One learner's, with real runs: some seconds."""
    return own.Tuning("your name")


@pytest.fixture
def quick(own):
    """Runs of two epochs and one seed: nothing is learned, but rules apply."""
    return own.Tuning("x", epochs=2, seeds=1)


def told(own, tuning, choice):
    tuning.add(own.Choice(*choice))
    return own.words_of(own.Choice(*choice), tuning.tried[own.Choice(*choice)], tuning.target)


def test_the_small_batch_learns(tuning):
    assert 0.94 < tuning.target < tuning.baseline.mean


def test_mistakes_miss_the_target_and_are_described(own, solution, tuning):
    for name, (choice, words) in solution(LAB).MISTAKES.items():
        said = told(own, tuning, choice)
        assert re.search(words, said), (name, said)
    assert tuning.findings()[1].right is False


def test_the_starters_attempt_misses_the_target(own, starter, tuning):
    call = starter(LAB, "tuning.attempt(")
    page = eval(call.strip(), {"tuning": tuning})
    assert "points short" in page.value


@pytest.mark.slow
def test_the_solution_reaches_it_and_the_test_is_asked_once(own, solution, tuning):
    for choice in (*solution(LAB).OTHERS, solution(LAB).CHOICE):
        assert told(own, tuning, choice) == "Target reached."
    assert not passed(tuning.findings())  # the test is still to come
    assert "Not revealed" in tuning.reveal().value and tuning.revealed is None
    assert tuning.ask_the_test() > tuning.target - 0.02
    assert passed(tuning.findings())
    before = tuning.revealed
    tuning.reveal(sure=True)
    assert tuning.revealed is before
    with pytest.raises(SpecError, match="nothing more can be chosen"):
        tuning.add(own.Choice("adam", 0.01, 0.0, "cosine"))


def test_ten_attempts_and_no_more_but_the_same_again_is_free(own, quick):
    choices = [own.Choice("sgd", 0.01 * k, 0.0, "constant") for k in range(1, own.BUDGET + 1)]
    for choice in [*choices, choices[3]]:
        quick.add(choice)
    with pytest.raises(SpecError, match="budget of 10"):
        quick.add(own.Choice("sgd", 1.0, 0.0, "constant"))
    assert "0 attempts left" in quick.attempt("sgd", 1.0).value
    assert "made this attempt before" in quick.attempt(*choices[3]).value


@pytest.mark.parametrize(
    ("warm_up", "words"), [(0.0, "When are long steps"), (8.0, "only the first 8 epochs")]
)
def test_a_collapse_asks_for_what_a_warm_up_has_not_cured(own, warm_up, words):
    choice = own.Choice("momentum", 0.64, warm_up, "cosine")
    for result in (own.Result((0.1,), np.inf), own.Result((0.1,), 5.0)):
        assert words in own.words_of(choice, result, 0.9)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"rule": "sdg"}, "rule = 'sdg': expected one of sgd, momentum"),
        ({"decay": "growth"}, "decay = 'growth'"),
        ({"rate": 0}, "above 0"),
        ({"rate": float("nan")}, "rate = nan"),
        ({"warm_up": 2}, "warm_up = 2: expected a number from 0 to below 2"),
    ],
)
def test_what_is_not_allowed_costs_nothing_and_is_reported(own, quick, wrong, words):
    said = quick.attempt(**({"rule": "sgd", "rate": 0.1} | wrong)).value
    assert words.replace("'", "&#x27;") in said and not quick.tried


def test_nobody_looks_at_the_test_samples_while_tuning(own, quick):
    data = own.load_data(own.experiment_of(own.BASELINE, own.BASE, 0))
    tested = {row.tobytes() for row in data.test_x}
    seen = [*quick._data.x, *quick._data.test_x]
    assert len(seen) == len(data.x) and {row.tobytes() for row in seen}.isdisjoint(tested)


def test_learners_have_samples_and_seeds_of_their_own(own, quick):
    other = own.Tuning("another", epochs=2, seeds=1)
    assert other._data.test_x.tobytes() != quick._data.test_x.tobytes()


def test_the_choice_is_an_experiment_that_real_ranks_train(own, quick, on_ranks, tmp_path):
    quick.add(own.Choice("lars", 10.0, 0.5, "quadratic"))
    quick.save(tmp_path / "choice.toml")
    assert load(tmp_path / "choice.toml").global_batch == own.BASE * own.TIMES
    text = on_ranks(own.HERE / "checks.py", str(tmp_path / "choice.toml"), ranks=2)
    assert "2 ranks, batch 512" in text and "on the test samples" in text


def test_a_choice_that_is_handed_in_is_judged_again(own, quick, tmp_path):
    choice = own.Choice("lars", 10, np.float64(0.5), "quadratic")
    quick.add(choice)
    quick.save(tmp_path / "choice.toml")
    again = own.Tuning("x", epochs=2, seeds=1)
    assert again.again(load(tmp_path / "choice.toml")) == quick.findings()[1]
    assert list(again.tried) == [choice]
    other = load(tmp_path / "choice.toml").set({"run.epochs": 4})
    with pytest.raises(SpecError, match="in more than rule, rate"):
        again.again(other)


def test_running_the_first_cell_again_keeps_the_attempts(own, monkeypatch):
    monkeypatch.setattr(own.Tuning, "_run", lambda *_: own.Result((0.5,), 1.0))
    own.tuning_of("x").add(own.Choice("sgd", 0.1, 0.0, "constant"))
    assert len(own.tuning_of("x").tried) == 1 and not own.tuning_of("y").tried
