"""Dates of a term: each session of a syllabus once, on its weekday, in weeks of teaching, and again in the calendar."""

import re
from datetime import date, time, timedelta
from importlib.util import module_from_spec, spec_from_file_location
from itertools import islice

import pytest

START, OFF = date(2027, 1, 13), date(2027, 2, 17)


@pytest.fixture(scope="module")
def dates(repository):
    spec = spec_from_file_location("dates", repository / "instructor_notes" / "dates.py")
    found = module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.fixture(params=[14, 10, 6])
def found(request, dates, page):
    """The sessions of a syllabus, and what its rows say."""
    text = page(f"syllabus_{request.param}_weeks")
    firsts = list(islice(dates.mondays(START, [OFF]), len(dates.GLANCE.findall(text))))
    days = (0, 1, 2, 4) if request.param == 10 else (0, 2, 4)
    return list(dates.sessions(text, firsts, days, time(10))), text


def test_each_session_has_its_day_and_none_is_in_a_week_off(found):
    sessions, text = found
    held = [each for each in sessions if each.kind in ("class", "lab")]
    assert len(held) == len(re.findall(r"^\| (?:class|lab) \| \d", text, re.M))
    assert {each.begin.weekday() for each in held if each.kind == "lab"} == {4}
    monday = OFF - timedelta(OFF.weekday())
    assert all(not 0 <= (each.begin.date() - monday).days < 7 for each in sessions)
    assert sessions[0].begin.date() == date(2027, 1, 11)
    assert [each.begin for each in sessions] == sorted(each.begin for each in sessions)


def test_a_lab_is_due_after_its_session(found):
    sessions, _ = found
    labs = {}
    for each in sessions:
        for numbers in re.findall(r"\blabs? (\d+)(?: and (\d+))?", each.what):
            for lab in filter(None, numbers):
                labs.setdefault((lab, each.kind == "due"), each)
    due = [lab for lab, is_due in labs if is_due and (lab, False) in labs]
    assert len(due) > 3
    assert all(labs[lab, True].begin > labs[lab, False].begin for lab in due)


def test_the_calendar_reads_back_as_the_sessions(found, dates):
    sessions, _ = found
    text = dates.calendar("A term", sessions)
    lines = text.split("\r\n")
    assert all(len(line.encode()) <= 75 for line in lines)
    unfolded = text.replace("\r\n ", "").split("\r\n")
    said = [line[8:] for line in unfolded if line.startswith("SUMMARY:")]
    expected = [f"Week {each.week}, {each.kind}: {each.what}" for each in sessions]
    assert [re.sub(r"\\(.)", r"\1", each) for each in said] == expected
    assert sum(line.startswith("DTSTART:") for line in lines) == len(sessions)
