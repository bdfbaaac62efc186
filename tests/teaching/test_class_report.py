"""A report of a class finds what was put into its answers, and refuses a file that no export wrote."""

from dataclasses import replace

import pytest

from lib_dlhpc.classroom import database, grades
from lib_dlhpc.errors import SpecError
from lib_dlhpc.teaching.class_report import (
    completion,
    gains,
    minutes,
    mistakes,
    read_entries,
    retention,
    table,
)
from lib_dlhpc.teaching.simulated_class import MISTAKE, Truth, simulated

EARLIER, LATER = "one_step", "allreduce"


def exported(tmp_path, entries):
    """Write entries as `dlhpc class export --csv` does; return the file."""
    file = tmp_path / "class.sqlite"
    database.create(file)
    for entry in entries:
        database.insert(file, [entry], entry.learner, entry.time)
    text, _ = grades.export(file, "csv")
    (tmp_path / "class.csv").write_text(text, "utf-8")
    return tmp_path / "class.csv"


def test_what_is_read_is_what_was_recorded(tmp_path):
    entries = simulated(learners=3)
    entries[1] = replace(entries[1], answer="=1+1", asked="-3 or +3?", value=2.5)
    read = read_entries(exported(tmp_path, entries))
    assert sorted(read, key=lambda each: each.id) == sorted(entries, key=lambda each: each.id)
    assert [each.time for each in read] == sorted(each.time for each in read)


def test_completion_counts_those_who_opened_and_what_they_did():
    certain = Truth(first=0.0, repaired=1.0, kept=1.0, absent=0.0)
    everyone = simulated(learners=10, questions=4, truth=certain)
    assert [each[1:] for each in completion(everyone)] == [(10, 10, 1.0), (10, 10, 1.0)]
    unfinished = [
        each
        for each in everyone
        if (each.learner, each.module, each.question, each.attempt)
        != ("learner 1", EARLIER, "check 4", 2)
    ]
    only_opened = [each for each in everyone if each.learner != "learner 2" or each.kind == "open"]
    by_module = {each.module: each for each in completion(unfinished)}
    assert by_module[EARLIER][1:] == (10, 9, pytest.approx((9 + 3 / 4) / 10))
    assert by_module[LATER][1:] == (10, 10, 1.0)
    assert {each[1:] for each in completion(only_opened)} == {(10, 9, 0.9)}


def test_planted_answers_give_exactly_their_gain_and_retention():
    entries = simulated(4, 1, Truth(first=0.0, repaired=1.0, kept=1.0, absent=0.0))
    right = {"learner 1": (True, True), "learner 2": (False, True), "learner 3": (False, False)}
    planted = []
    for each in entries:
        first, again = right.get(each.learner, (False, True))
        if each.module == EARLIER and each.attempt == 1:
            planted.append(replace(each, right=first))
        elif each.question.startswith("earlier."):
            planted.append(replace(each, right=again))
        else:
            planted.append(each)
    met = next(each for each in gains(planted) if each.module == EARLIER)
    assert (met.learners, met.first, met.last, met.gain.value) == (4, 0.25, 1.0, 1.0)
    (kept,) = retention(planted)
    assert kept[:7] == (EARLIER, "check 1", LATER, 4, 0.25, 1.0, 0.75)
    assert kept.kept.value == 0.75
    assert kept.days == pytest.approx(7, rel=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_the_truth_of_a_simulated_class_lies_in_its_intervals(seed):
    truth = Truth(first=0.35, repaired=0.6, kept=0.7)
    entries = simulated(learners=400, questions=3, truth=truth, seed=seed)
    inside = [each.gain.low < truth.repaired < each.gain.high for each in gains(entries)]
    inside += [each.kept.low < truth.kept < each.kept.high for each in retention(entries)]
    assert len(inside) == 9 and sum(inside) >= 8
    for each in retention(entries):
        assert each.learned == pytest.approx(0.35 + 0.65 * 0.6, abs=0.08)
        assert each.learners == pytest.approx(0.8 * 400, abs=30)


def test_who_missed_one_of_the_two_modules_says_nothing_of_retention():
    entries = simulated(learners=5, truth=Truth(absent=0.0))
    without = [each for each in entries if (each.learner, each.module) != ("learner 1", EARLIER)]
    assert {each.learners for each in retention(without)} == {4}
    assert retention([each for each in entries if each.module == LATER]) == []


def test_a_learner_counts_once_for_a_mistake():
    entries = simulated(6, 1, Truth(first=0.0, repaired=0.0, absent=1.0))
    twice = [replace(each, id=f"again {each.id}", attempt=2) for each in entries]
    other = [replace(each, id=f"b {each.id}", answer="Another.") for each in entries[:4]]
    found = mistakes([*entries, *twice, *other])
    assert [(each.answer, each.gave, each.learners) for each in found] == [
        (MISTAKE, 6, 6),
        ("Another.", 2, 6),
    ]
    assert len(mistakes([*entries, *twice, *other], most=1)) == 1


def test_time_on_task_is_the_time_between_answers_without_pauses():
    certain = Truth(first=1.0, absent=0.0, seconds=60)
    entries = simulated(learners=5, questions=3, truth=certain)
    by_module = {each.module: each for each in minutes(entries)}
    assert by_module[EARLIER] == (EARLIER, 5, 3.0, 3.0, 3.0)  # three answers after the opening
    assert by_module[LATER].median == 6.0  # and three that are asked again; not the week between
    slow = simulated(learners=5, questions=3, truth=certain._replace(seconds=601))
    assert minutes(slow) == []
    medians = sorted(each.median for each in minutes(slow, pause=700))
    assert medians == pytest.approx([3 * 601 / 60, 6 * 601 / 60])


def test_a_table_has_a_row_for_each_and_says_where_there_is_none():
    shown = table(completion(simulated(learners=3))).splitlines()
    assert shown[0].split() == ["module", "opened", "finished", "done"]
    assert [line.split()[0] for line in shown[1:]] == [LATER, EARLIER]
    assert len({len(line) for line in shown}) == 1
    assert table([]) == "none"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("True", "maybe"), "line [0-9]+: 'maybe'; expected what `dlhpc class export --csv` wrote"),
        (("2026-09-01", "yesterday"), "line 2: Invalid isoformat"),
        (("learner,module", "who,module"), "lacks learner"),
    ],
)
def test_a_file_that_no_export_wrote_is_refused(tmp_path, change, words):
    file = exported(tmp_path, simulated(learners=1, truth=Truth(first=1.0)))
    file.write_text(file.read_text("utf-8").replace(*change, 1), "utf-8")
    with pytest.raises(SpecError, match=words):
        read_entries(file)
