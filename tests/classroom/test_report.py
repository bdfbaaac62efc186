"""A learner's report: guesses beside results, first tries, labs, and what to review, the forgotten first."""

from lib_dlhpc.classroom import record, report

# module, question, kind, answer, right
ANSWERS = (
    ("one", "g", "guess", "3 ms", False),
    ("one", "h", "guess", "", None),
    ("one", "a", "check", "yes", True),
    ("one", "b", "check", "no", False),
    ("one", "b", "check", "yes", True),
    ("one", "c", "compute", "7", False),
    ("one", "d", "check", "no", False),
    ("one", "d", "check", "yes", True),
    ("02_overlap", "checks", "lab", "sums; counts", False),
    ("02_overlap", "checks", "lab", "counts", False),
    ("two", "earlier.one.a", "check", "no", False),
    ("two", "earlier.one.d", "check", "yes", True),
    ("two", "n", "step", "a note", None),
    ("02_overlap", "hints: buckets", "hint", "", None),
    ("02_overlap", "hints: buckets", "hint", "", None),
)


def made(folder, answers):
    for module, question, kind, answer, right in answers:
        about = {"asked": f"{module}/{question}?", "result": "5 ms", "answer": answer}
        record.add(folder, "me", module, question, kind, right=right, **about)
    return report.report(record.entries(folder), str.upper)


def test_first_tries_guesses_and_labs_are_those_of_the_record(tmp_path):
    found = made(tmp_path, ANSWERS)
    one, two = found["modules"]
    assert (one["title"], one["checks"], one["right"]) == ("ONE", 4, 3)
    assert one["right_at_first_try"] == 1
    assert [(g["guess"], g["result"], g["right"]) for g in one["guesses"]] == [
        ("3 ms", "5 ms", False),
        ("", "5 ms", None),
    ]
    assert (two["checks"], two["right_at_first_try"], two["guesses"]) == (2, 1, [])
    (lab,) = found["labs"]
    assert (lab["passed"], lab["attempts"], lab["does_not_hold_yet"]) == (False, 2, ["counts"])
    passed = made(tmp_path, [("02_overlap", "checks", "lab", "", True)])
    assert passed["labs"][0]["passed"] and passed["labs"][0]["attempts"] == 3


def test_what_is_forgotten_comes_first_and_what_was_right_when_asked_again_not_at_all(tmp_path):
    review = made(tmp_path, ANSWERS)["review"]
    assert [(each["title"], each["asked"], each["why"]) for each in review] == [
        ("ONE", "two/earlier.one.a?", report.FORGOTTEN),
        ("ONE", "one/c?", report.OPEN),
        ("ONE", "one/b?", report.LATE),
    ]


def test_a_report_as_text_says_all_of_it(tmp_path):
    said = "\n".join(report.lines(made(tmp_path, ANSWERS)))
    for words in (
        "ONE: 0 of 2 guesses right; 1 of 4 checks right on the first try, 3 by now",
        "you: skipped; it is 5 ms",
        "02_OVERLAP, checks: not passed yet, 2 attempts",
        "02_OVERLAP: 2 hints opened on 02_overlap/hints: buckets?",
        "ONE (forgotten): two/earlier.one.a?",
    ):
        assert words in said
    assert report.lines(report.report([])) == ["Nothing has been answered yet."]
