"""Policies, projects and syllabi agree on deadlines, and have room for what they ask of a class."""

import re

ROW = re.compile(r"^\| (\w+) \| (\d+) \| (.+) \|$", re.M)  # session, minutes, what
DUE = re.compile(r"^\| (\d+) \|[^|]*\|[^|]*\|([^|]*)\|[^|]*\|$", re.M)  # of the overview
WEEKS = ["syllabus_14_weeks", "syllabus_10_weeks", "syllabus_6_weeks"]
WORDS = {6: "six", 8: "eight"}
DAYS = ["syllabus_one_day", "syllabus_half_day"]


def test_lab_1_takes_no_late_days_as_lab_2_is_given_when_it_is_due(page):
    """The hand-out of lab 2 contains a solution of lab 1."""
    policy = re.search(r"^\| lab 1 \| (.+) \|$", page("policies"), re.M)[1]
    assert policy.startswith("not accepted late, and no late days")
    assert "lab 1 takes no late days" in page("grading")
    for name in WEEKS:
        weeks = page(name).split("\n### Week ")[1:]
        first, second = (
            [
                number
                for number, week in enumerate(weeks, 1)
                if any(f"({lab})" in what.replace("../labs/", "") for *_, what in ROW.findall(week))
            ]
            for lab in ("01_data_parallel_step/README.md", "02_overlap/README.md")
        )
        assert [each + 1 for each in first] == second, name


def test_sessions_have_room_for_all_explanations(page):
    text = page("policies")
    learners = int(re.search(r"^\| for (\d+) learners", text, re.M)[1])
    rows = {}
    for line in text.split("| for 30", 1)[1].split("\n\n")[0].splitlines()[2:]:
        what, *cells = line.strip("| ").split(" | ")
        rows[what.split(",")[0]] = [list(map(int, re.findall(r"\d+", cell))) for cell in cells]
    assert "| labs explained at the screen | two | two | one |" in text
    for course, labs in enumerate((2, 2, 1)):
        assert rows["explanations"][course] == [learners * labs]
        many, first, last = rows["lab sessions"][course]
        assert many == last - first + 1
        (each,) = rows["in each session"][course]
        assert many * each >= learners * labs
        assert rows["minutes of the assistant in each session"][course] == [2 * each]
        said = f"in the lab sessions of weeks {first} to {last}, by {WORDS[each]} of thirty learners in each"
        assert said in " ".join(page(WEEKS[course]).split())
        assert rows["minutes of a learner in the whole term"][course] == [2 * labs]


def test_the_steps_of_a_project_have_days_and_weights_that_add_up(page):
    table = page("projects").split("**Steps**", 1)[1].split("\n\n")[1]
    steps = re.findall(r"^\| ([^|]+) \| week (\d+)([^|]*) \| (\d+) \|", table, re.M)
    assert sum(int(weight) for *_, weight in steps) == 30 == 2 * 15
    assert "| 1 | 30 | steps in weeks 9 to 14 |" in page("syllabus_14_weeks")
    weeks = [int(week) for _, week, *_ in steps]
    assert weeks == sorted(weeks) and (weeks[0], weeks[-1]) == (9, 14)
    due = {int(week): text for week, text in DUE.findall(page("syllabus_14_weeks"))}
    for step, week, *_ in steps:
        word = {"first measurement": "measurement", "error of each term": "errors"}
        name = step.split(",")[0].split(" and ")[0]
        assert word.get(name, name) in due[int(week)], step


def test_the_last_week_has_time_for_every_talk(page):
    week = page("syllabus_14_weeks").split("### Week 14", 1)[1]
    rows = ROW.findall(week)
    classes = sum(int(minutes) for kind, minutes, _ in rows if kind == "class")
    lab = next(what for kind, _, what in rows if kind == "lab")
    parts = [int(each) for each in re.findall(r"\((\d+)(?: minutes)?\)", lab)]
    assert sum(parts) == 100
    length = 8 + 2
    assert f"| up to {classes // length} | up to {3 * classes // length} |" in week
    most = (classes + parts[2]) // length
    assert f"to {most} | up to {3 * most} |" in week and f"to {2 * most} | up to" in week


def test_all_syllabi_have_the_same_policies(page):
    text = page("policies")
    for policy in ("Grades", "Late work", "Collaboration", "AI assistants", "Accessibility"):
        assert re.search(rf"^## .*{policy}$", text, re.M), policy
    for name in (*WEEKS, *DAYS):
        assert "](policies.md)" in page(name) and f"]({name}.md)" in text, name


def test_binder_is_an_option_with_an_address_and_a_warning(page, repository):
    section = page("class").split("\n## On Binder\n", 1)[1].split("\n## ")[0]
    assert "has been tried" in section and "https://mybinder.org/v2/gh/" in section
    assert "a Binder build" in (repository / "docs" / "guide" / "install.md").read_text("utf-8")
    for name in DAYS:
        plan = page(name)
        assert plan.index("dlhpc class serve") < plan.index("[Binder](class.md#on-binder)"), name
    for path in sorted((repository / "instructor_notes").glob("*.md")):
        for line in re.findall(r"^.*`\?urlpath=.*$", path.read_text("utf-8"), re.M):
            assert "[Binder](class.md#on-binder)" in line, path.name
