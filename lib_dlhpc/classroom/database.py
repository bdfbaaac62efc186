"""All answers of a class in one SQLite file, each once; readers and one writer at a time do not wait for each other.

The learners' own folders are the truth: this file can be filled from them again. Standard library's sqlite3, with a
write-ahead log (https://www.sqlite.org/wal.html).
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import astuple, fields
from pathlib import Path

from lib_dlhpc.classroom.entry import Entry
from lib_dlhpc.classroom.learner import now

COLUMNS = [field.name for field in fields(Entry)]
# What a learner took back may come once more from a machine that was offline; only their id stays to refuse it.
TABLES = """
create table if not exists learners (learner text primary key, name text not null, joined text not null);
create table if not exists forgotten (learner text primary key);
create table if not exists answers (
    id text primary key, learner text not null, module text not null, question text not null, kind text not null,
    attempt integer not null, answer text not null, right integer, time text not null, final integer not null,
    value real, result text not null, asked text not null, arrived text not null);
create index if not exists by_question on answers (module, question);
create index if not exists by_learner on answers (learner, time);
"""


def create(file: Path) -> None:
    """Make the tables of a class, if they are not there."""
    file.touch(0o600)  # names and answers are the teacher's alone
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("pragma journal_mode = wal")
        connection.executescript(TABLES)


@contextmanager
def opened(file: Path) -> Iterator[sqlite3.Connection]:
    """Connect to a class for the block, which is one transaction."""
    with closing(sqlite3.connect(file, timeout=30)) as connection:
        connection.execute("pragma secure_delete = on")
        with connection:
            yield connection


def insert(file: Path, entries: Iterable[Entry], name: str = "", joined: str = "") -> int:
    """Insert the entries of one learner that are not there yet; return how many came new.

    name, joined: of the learner. Entries of a learner who took them back are refused.
    """
    rows = [(*astuple(entry), now()) for entry in entries]
    if not rows:
        return 0
    learner = rows[0][COLUMNS.index("learner")]
    with opened(file) as connection:
        connection.execute("begin immediate")  # forgetting comes before all of this, or after
        if _is_forgotten(connection, learner):
            return 0
        connection.execute(
            "insert into learners values (?, ?, ?) on conflict do update"
            " set name = excluded.name where excluded.name <> ''",
            (learner, name, joined),
        )
        before = connection.total_changes
        marks = ", ".join("?" * (len(COLUMNS) + 1))
        connection.executemany(
            f"insert or ignore into answers ({', '.join(COLUMNS)}, arrived) values ({marks})", rows
        )
        return connection.total_changes - before


def rename(file: Path, learner: str, name: str) -> None:
    """Give a learner of a class another name; without effect for one who has not answered yet."""
    with opened(file) as connection:
        connection.execute("update learners set name = ? where learner = ?", (name, learner))


def answers(file: Path) -> list[Entry]:
    """Return all answers, in the order in which they were given."""
    with opened(file) as connection:
        query = f"select {', '.join(COLUMNS)} from answers order by time, rowid"
        return [_entry(row) for row in connection.execute(query)]


def names(file: Path) -> dict[str, str]:
    """Return the names of the learners, by their ids, in the order in which they joined."""
    with opened(file) as connection:
        return dict(
            connection.execute("select learner, name from learners order by joined, learner")
        )


def version(file: Path) -> int:
    """Return a number that is another one after every change of the answers."""
    with opened(file) as connection:
        counts = "(select count(*) from answers) + (select count(*) from forgotten) * 1000000007"
        return int(connection.execute(f"select {counts}").fetchone()[0])


def forget(file: Path, learner: str) -> int:
    """Delete a learner's answers and name, and refuse them from here on; return how many answers there were."""
    with opened(file) as connection:
        count = connection.execute("delete from answers where learner = ?", (learner,)).rowcount
        connection.execute("delete from learners where learner = ?", (learner,))
        connection.execute("insert or ignore into forgotten values (?)", (learner,))
    with closing(sqlite3.connect(file, timeout=30)) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")  # the log has the old pages
    return int(count)


def is_forgotten(file: Path, learner: str) -> bool:
    """Return whether a learner has taken their answers back."""
    with opened(file) as connection:
        return _is_forgotten(connection, learner)


def _is_forgotten(connection: sqlite3.Connection, learner: str) -> bool:
    query = "select 1 from forgotten where learner = ?"
    return connection.execute(query, (learner,)).fetchone() is not None


def _entry(row: tuple[object, ...]) -> Entry:
    given = dict(zip(COLUMNS, row, strict=True))
    right = given["right"]
    given.update(right=None if right is None else bool(right), final=bool(given["final"]))
    return Entry(**given)  # type: ignore[arg-type]
