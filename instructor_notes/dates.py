"""Put dates to a syllabus: `make dates ARGS="14 2027-01-11"`, or `python instructor_notes/dates.py WEEKS START`.

Reads the weeks, sessions and deadlines of syllabus_WEEKS_weeks.md and writes them with their dates as a page, as an
iCalendar file (RFC 5545, without a time zone: times are those of the place) and as a table. Weeks off get no number.
"""

import argparse
import csv
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
ROW = re.compile(r"^\| (class|lab) \| (\d+) \| (.+) \|$", re.M)
GLANCE = re.compile(
    r"^\| (\d+) \|[^|]*\|[^|]*\|([^|]*)\|([^|]*)\|$", re.M
)  # week, what is due, exam
USUAL = {3: ("Mon", "Wed", "Fri"), 4: ("Mon", "Tue", "Wed", "Fri")}  # by sessions in a week
WEEK = timedelta(weeks=1)


class Session(NamedTuple):
    """What begins when, in its week. minutes: 0 for a deadline."""

    week: int
    begin: datetime
    minutes: int
    kind: str
    what: str


def plain(text: str) -> str:
    """Return a text without links and italics."""
    return re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", text).replace("*", "").strip()


def mondays(start: date, off: Sequence[date]) -> Iterator[date]:
    """Yield the Monday of each week of teaching, from that of `start`; a week with a day of `off` is none."""
    monday, none = (
        start - timedelta(start.weekday()),
        {day - timedelta(day.weekday()) for day in off},
    )
    while True:
        if monday not in none:
            yield monday
        monday += WEEK


def sessions(text: str, weeks: Sequence[date], days: Sequence[int], at: time) -> Iterator[Session]:
    """Yield the classes, lab sessions, deadlines and exams of a syllabus in their order.

    weeks: their Mondays. days: weekdays of the classes and the lab session.
    """
    sections = text.split("\n### Week ")[1:]
    rows = GLANCE.findall(
        text
    )  # in weeks without a section, an exam takes the hour of the first class
    for (number, due, exam), monday in zip(rows, weeks, strict=True):
        on = [datetime.combine(monday + timedelta(day), at) for day in days]
        held = ROW.findall(sections[int(number) - 1]) if int(number) <= len(sections) else []
        for begin, (kind, minutes, what) in zip(on, held, strict=bool(held)):
            yield Session(int(number), begin, int(minutes), kind, plain(what))
        if not held:
            yield Session(int(number), on[0], 50, "exam", plain(exam))
        if due.strip():
            yield Session(int(number), on[-1] if held else on[0], 0, "due", plain(due))


def page(title: str, found: Sequence[Session]) -> str:
    """Return sessions as a table in Markdown."""
    lines = [f"# {title}", "", "| week | date | time | session | what |", "|---|---|---|---|---|"]
    for week, begin, _, kind, what in found:
        lines.append(f"| {week} | {begin:%a %Y-%m-%d} | {begin:%H:%M} | {kind} | {what} |")
    return "\n".join(lines) + "\n"


def calendar(title: str, found: Sequence[Session]) -> str:
    """Return sessions as an iCalendar file."""
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//lib_dlhpc//dates//EN"]
    for place, (week, begin, minutes, kind, what) in enumerate(found):
        end = begin + timedelta(minutes=minutes)
        lines += ["BEGIN:VEVENT", f"UID:{place}-{begin:%Y%m%d}@lib-dlhpc", f"DTSTAMP:{_now()}"]
        lines += [f"DTSTART:{begin:%Y%m%dT%H%M%S}", f"DTEND:{end:%Y%m%dT%H%M%S}"]
        lines += [f"SUMMARY:{_escaped(f'Week {week}, {kind}: {what}')}"]
        lines += [f"CATEGORIES:{_escaped(title)}", "END:VEVENT"]
    folded = [part for line in (*lines, "END:VCALENDAR") for part in _folded(line)]
    return "\r\n".join(folded) + "\r\n"


def _now() -> str:
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"


def _escaped(text: str) -> str:
    return re.sub(r"([\\,;])", r"\\\1", text)


def _folded(line: str) -> Iterator[str]:
    """Yield a line in parts of at most 75 bytes; all but the first begin with a blank."""
    part = ""
    for letter in line:
        if len((part + letter).encode()) > 75:
            yield part
            part = " "
        part += letter
    yield part


def main(weeks: int, start: date, options: argparse.Namespace) -> None:
    """Write the three files into a folder."""
    text = (HERE / f"syllabus_{weeks}_weeks.md").read_text("utf-8")
    firsts = list(islice(mondays(start, options.off), len(GLANCE.findall(text))))
    named = options.days or USUAL[len(ROW.findall(text.split("\n### Week ")[1]))]
    found = list(sessions(text, firsts, [DAYS.index(day) for day in named], options.at))
    into = Path(options.folder)
    into.mkdir(parents=True, exist_ok=True)
    title = f"The {weeks} weeks from {firsts[0]}"
    (into / "dates.md").write_text(page(title, found), "utf-8")
    (into / "dates.ics").write_bytes(calendar(title, found).encode())
    with (into / "dates.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("week", "begin", "minutes", "session", "what"))
        writer.writerows(each._replace(begin=each.begin.isoformat(" ")) for each in found)
    print(f"{len(found)} dates: {into.resolve()}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Put dates to a syllabus.")
    parser.add_argument("weeks", type=int, choices=(14, 10, 6))
    parser.add_argument("start", type=date.fromisoformat, help="a day of week 1, as 2027-01-11")
    parser.add_argument("folder", nargs="?", default="build/dates")
    parser.add_argument("--days", nargs="+", choices=DAYS, help="of the classes and the lab")
    parser.add_argument("--at", type=time.fromisoformat, default=time(10), help="10:00")
    parser.add_argument("--off", nargs="+", type=date.fromisoformat, default=(), help="weeks off")
    options = parser.parse_args()
    main(options.weeks, options.start, options)
