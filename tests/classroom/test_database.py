"""A class has each answer once, whichever way and however often it comes, and none that was taken back."""

import sqlite3
from random import Random

import pytest

from lib_dlhpc.classroom import classes, database, record
from lib_dlhpc.classroom.collecting import Collector
from lib_dlhpc.classroom.learner import ABOUT, RECORD


def answered(folder, count=3):
    folder.mkdir(parents=True, exist_ok=True)
    return [
        record.add(
            folder, folder.name, "toy", f"q{number}", "guess", answer="1", right=bool(number)
        )
        for number in range(count)
    ]


@pytest.fixture
def file(tmp_path):
    database.create(tmp_path / "class.sqlite")
    return tmp_path / "class.sqlite"


def test_an_entry_comes_back_as_it_was(file, tmp_path):
    whole = answered(tmp_path / "anna")
    whole.append(record.add(tmp_path / "anna", "anna", "toy", "", "open"))
    assert database.insert(file, whole, "Anna") == 4
    assert sorted(map(str, database.answers(file))) == sorted(map(str, whole))
    assert database.names(file) == {"anna": "Anna"}


def test_in_any_order_and_number_each_is_there_once(file, tmp_path):
    entries = answered(tmp_path / "anna", 8)
    random = Random(1)
    new, sent = 0, set()
    for _ in range(12):
        batch = random.choices(entries, k=random.randint(0, 3))
        new += database.insert(file, batch)
        sent |= {entry.id for entry in batch}
        assert {entry.id for entry in database.answers(file)} == sent
        assert new == len(sent)


def test_what_was_taken_back_is_gone_from_the_disk_and_refused(file, tmp_path):
    entries = answered(tmp_path / "anna")
    database.insert(file, entries, "A name to look for")
    before = database.version(file)
    assert database.forget(file, "anna") == 3
    assert database.version(file) != before
    assert database.insert(file, entries, "A name to look for") == 0
    assert database.answers(file) == [] and database.names(file) == {}
    for part in tmp_path.glob("class.sqlite*"):
        assert b"A name to look for" not in part.read_bytes()
        assert entries[0].id.encode() not in part.read_bytes()


def test_readers_do_not_wait_for_a_writer(file, tmp_path):
    entries = answered(tmp_path / "anna")
    database.insert(file, entries[:1])
    writer = sqlite3.connect(file, isolation_level=None)
    writer.execute("begin immediate")
    writer.execute("delete from answers")
    assert len(database.answers(file)) == 1
    writer.rollback()
    writer.close()


def test_folders_are_collected_each_line_once(file, tmp_path):
    folder = tmp_path / "learners"
    collector = Collector(folder, file)
    assert collector.collect() == 0
    answered(folder / "anna")
    answered(folder / "deep" / "bert", 2)
    assert collector.collect() == 5
    assert collector.collect() == 0
    answered(folder / "anna", 1)
    with open(folder / "anna" / RECORD, "ab") as record_file:
        record_file.write(b'{"torn')
    assert collector.collect() == 1
    answered(folder / "anna", 1)
    assert collector.collect() == 1
    assert Collector(folder, file).collect() == 0
    assert len(database.answers(file)) == 7


def test_a_name_comes_with_the_folder(file, tmp_path):
    anna = classes.admit(tmp_path, "Anna")
    record.add(anna.folder, anna.id, "toy", "q", "guess")
    Collector(tmp_path / classes.LEARNERS, file).collect()
    assert database.names(file) == {anna.id: "Anna"}


def test_a_folder_that_is_no_learners_stops_nobody_else(file, tmp_path):
    folder = tmp_path / "learners"
    for name, about in (
        ("a", "[]"),
        ("b", '{"id": "b", "name": "Bea"}'),
        ("z", '{"id": "z", "name": "Zed"}'),
    ):
        answered(folder / name)
        (folder / name / ABOUT).write_text(about, encoding="utf-8")
    with open(folder / "a" / RECORD, "r+b") as damaged:
        damaged.write(damaged.read().replace(b'"answer": "1"', b'"answer": "\\ud800"'))
    # Zed hands in what Bea did.
    (folder / "z" / RECORD).write_bytes((folder / "b" / RECORD).read_bytes())
    assert Collector(folder, file).collect() == 6
    assert database.names(file) == {"a": "", "b": "Bea"}
