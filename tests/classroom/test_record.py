"""A record only grows: whatever is killed, and however many write, what was answered stays, once."""

import json
import multiprocessing

import pytest

from lib_dlhpc.classroom import record
from lib_dlhpc.classroom.entry import Entry
from lib_dlhpc.classroom.learner import RECORD
from lib_dlhpc.errors import SpecError


def give(folder, answer="a", question="q", **more):
    return record.add(folder, "anna", "one_step", question, "guess", answer=answer, **more)


def test_what_is_written_is_read_in_order(tmp_path):
    given = [
        give(tmp_path, str(number), value=number / 3, right=number == 2) for number in range(3)
    ]
    assert record.entries(tmp_path) == given
    assert [entry.attempt for entry in given] == [1, 2, 3]
    assert give(tmp_path, question="other").attempt == 1
    assert record.add(tmp_path, "anna", "one_step", "", "open").attempt == 0


def test_a_line_has_the_names_that_teachers_know(tmp_path):
    give(tmp_path, 'ü\n"', asked="How many?")
    found = json.loads((tmp_path / RECORD).read_text("utf-8"))
    assert {"learner", "module", "question", "try", "answer", "right", "time"} <= set(found)


@pytest.mark.parametrize("torn", [1, 20, -2, -1])
def test_a_torn_last_line_is_skipped_and_the_next_writer_removes_it(tmp_path, torn):
    kept = give(tmp_path)
    give(tmp_path, "torn")
    file = tmp_path / RECORD
    first, second, _ = file.read_bytes().split(b"\n")
    file.write_bytes(first + b"\n" + second[:torn])
    assert record.entries(tmp_path) == [kept]
    after = give(tmp_path, "after")
    assert record.entries(tmp_path) == [kept, after]
    assert after.attempt == 2
    assert file.read_bytes().count(b"\n") == 2


def test_a_damaged_line_hides_no_other(tmp_path):
    kept = give(tmp_path)
    with open(tmp_path / RECORD, "ab") as file:
        file.write(b'{"id": 3}\n\0\0\0\n')
    assert record.entries(tmp_path) == [kept]
    after = give(tmp_path)
    assert record.entries(tmp_path) == [kept, after]


def test_reading_goes_on_where_it_stopped(tmp_path):
    give(tmp_path)
    _, end = record.read_from(tmp_path, 0)
    assert record.read_from(tmp_path, end) == ([], end)
    second = give(tmp_path, "second")
    found, _ = record.read_from(tmp_path, end)
    assert found == [second]


def many(folder, name):
    for number in range(20):
        give(folder, f"{name} {number}")


def test_several_processes_write_at_a_time_and_nothing_is_lost(tmp_path):
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=many, args=(tmp_path, name)) for name in "abc"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = record.entries(tmp_path)
    assert {entry.answer for entry in found} == {f"{name} {n}" for name in "abc" for n in range(20)}
    assert [entry.attempt for entry in found] == list(range(1, 61))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "quiz"}, "kind = 'quiz': expected one of open, guess"),
        ({"id": ""}, "not empty"),
        ({"answer": 3}, "answer: expected a text"),
        ({"answer": "x" * 30_000}, "at most 20,000"),
        ({"try": "1"}, "try = '1'"),
        ({"right": "yes"}, "right: expected true"),
        ({"value": "3"}, "value = '3'"),
        ({"value": 1e300}, "a number up to 1e"),
        ({"try": 2**63}, "expected an integer"),
        ({"answer": "\ud800"}, "answer: expected a text"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_what_is_no_entry_is_refused_by_name(tmp_path, change, words):
    line = {**json.loads(give(tmp_path).line()), **change}
    with pytest.raises(SpecError, match=words):
        Entry.read(json.dumps(line))
    for nonsense in ("", "[]", "{"):
        with pytest.raises(SpecError, match="an entry of a record"):
            Entry.read(nonsense)
