"""Syllabi name modules and labs that exist, in an order in which each has what it needs, and minutes that add up."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from lib_dlhpc.explore.course import EXPLORER, LABS, PATH, RECORDED
from lib_dlhpc.teaching.questions import read

LINK = re.compile(r"\]\(([^)#:]+)\)")
MODULE = re.compile(r"\(\.\./modules/(\d\d)_\w+\.ipynb\)")
LAB = re.compile(r"\(\.\./labs/(\w+)/README\.md\)")
ROW = re.compile(r"^\| ([\w:]+) \| (\d+) \| (.+) \|$", re.M)  # session or time, minutes, what
DESIGN = re.compile(r"\[([^]]+)\]\(design/(\d\d)_\w+\.py\)\s\(module\s(\d\d)\)")
PAPER = re.compile(r"\]\(https://(?:doi\.org|arxiv\.org|www\.usenix\.org)/")
MEASURABLE = {
    *("choose", "compute", "count", "decide", "defend", "diagnose", "explain", "find"),
    *("implement", "predict"),
}
MEASURABLE |= {"propose", "prove", "read", "solve", "state", "tell", "write"}
NEEDS = {module.number: module.needs for module in PATH}
WEEKS = ["syllabus_14_weeks", "syllabus_10_weeks", "syllabus_6_weeks"]
TERMS = WEEKS[:2]
DAYS = ["syllabus_one_day", "syllabus_half_day"]
PARTS = "syllabus_parts"
EXAMS = sorted((Path(__file__).parents[2] / "instructor_notes" / "exam").glob("*.py"))
PAGES = [
    *WEEKS,
    *DAYS,
    PARTS,
    "classes_14_weeks",
    "policies",
    "outcomes",
    "projects",
    "pilot",
    "README",
]


@pytest.fixture(scope="module")
def titles(repository, problems):
    """The titles of the design problems by module."""
    files = (repository / "instructor_notes" / "design").glob("*.py")
    return {path.stem[:2]: problems(path.stem).title for path in files}


def stated(text, what):
    """Return the minutes that a syllabus says it takes."""
    line = re.search(r"^\*\*Minutes\*\*: (.+)$", text, re.M)
    assert line
    found = re.search(rf"{what} (\d+)", line[1])
    assert found, (what, line[1])
    return int(found[1])


@pytest.mark.parametrize("name", WEEKS)
def test_minutes_of_sessions_add_up(page, name):
    text = page(name)
    rows = ROW.findall(text)
    for kind, what in [("class", "classes"), ("lab", "lab sessions"), ("home", "at home")]:
        assert sum(int(minutes) for each, minutes, _ in rows if each == kind) == stated(text, what)
    assert {each for each, _, _ in rows} == {"class", "lab", "home"}
    assert len(re.findall(r"^### Week", text, re.M)) == int(re.search(r"\d+", name)[0])


@pytest.mark.parametrize(("name", "most"), [(TERMS[0], 270), (TERMS[1], 255)])
def test_no_week_of_a_term_has_more_at_home_than_stated(page, name, most):
    text = page(name)
    limit = int(re.search(r"at most (\d+) in\sany week", text)[1])
    weeks = [ROW.findall(week) for week in text.split("\n### Week ")[1:]]
    home = [sum(int(minutes) for kind, minutes, _ in rows if kind == "home") for rows in weeks]
    assert max(home) == limit == most


def kind_of(what):
    """Return what work at home is for, by how it begins."""
    begins = {
        "Lab": "lab",
        "Labs": "lab",
        "[lab": "lab",
        "Module": "problems",
        "Project": "project",
    }
    return begins.get(what.split()[0].rstrip(":,"), "reading")


def test_the_load_of_a_week_is_what_its_rows_add_up_to(page):
    text = page("syllabus_14_weeks")
    loads = re.findall(r"^\| week (\d+) \|[\d, ]*" + r"\| (\d+) " * 5 + r"\|$", text, re.M)
    weeks = text.split("\n### Week ")[1:]
    assert [int(week) for week, *_ in loads] == list(range(1, len(weeks) + 1))
    for (number, *stated_, total), week in zip(loads, weeks, strict=True):
        own = dict.fromkeys(("reading", "lab", "problems", "project"), 0)
        for kind, minutes, what in ROW.findall(week):
            if kind == "home":
                own[kind_of(what)] += int(minutes)
        assert [int(each) for each in stated_] == list(own.values()), number
        assert int(total) == sum(own.values()), number


def test_a_figure_that_takes_minutes_more_than_a_class_has_its_session(page, repository):
    """The plan of a module's notes fills 50 minutes without it."""
    notes = [path.read_text() for path in (repository / "instructor_notes").glob("[0-9]*.md")]
    more = [
        found
        for text in notes
        for found in re.findall(r"^(\*.+\?\*) takes \d+ minutes more", text, re.M)
    ]
    rows = [what for _, _, what in ROW.findall(page("syllabus_14_weeks"))]
    assert len(more) >= 3
    for figure in more:
        assert any(figure in what for what in rows), figure


def test_module_12_has_two_weeks(page):
    weeks = page("syllabus_14_weeks").split("\n### Week ")[1:]
    classes = [[what for kind, _, what in ROW.findall(week) if kind == "class"] for week in weeks]
    named = [bool(re.search(r"module 12", " ".join(each), re.I)) for each in classes]
    assert [number for number, own in enumerate(named, 1) if own] == [10, 11]


@pytest.mark.parametrize("name", TERMS)
def test_a_module_asks_again_what_an_earlier_week_taught(page, name):
    """Checks of earlier modules, as each page asks them, in the order of the term."""
    order = list(dict.fromkeys(MODULE.findall(page(name))))
    for folder, number in RECORDED.items():
        lesson = import_module(f"lib_dlhpc.explore.{folder}.questions").lesson
        for check in lesson.texts.get("earlier", {}).get("recall", ()):
            assert RECORDED[check.split(".")[0]] in order[: order.index(number)], (folder, check)


@pytest.mark.parametrize("name", DAYS)
def test_minutes_of_a_day_add_up(page, name):
    text = page(name)
    rows = ROW.findall(text)
    total, breaks = re.search(r"\*\*Minutes\*\*: (\d+), of which (\d+)", text).groups()
    assert sum(int(minutes) for _, minutes, _ in rows) == int(total)
    rest = [int(minutes) for _, minutes, what in rows if what in ("Break", "Lunch")]
    assert sum(rest) == int(breaks)
    at = 9 * 60
    for start, minutes, _ in rows:
        assert start == f"{at // 60}:{at % 60:02d}"
        at += int(minutes)


@pytest.mark.parametrize("name", [*WEEKS, *DAYS])
def test_a_module_comes_after_those_that_it_needs(page, name):
    order = list(dict.fromkeys(MODULE.findall(page(name))))
    for place, number in enumerate(order):
        assert set(NEEDS.get(number, ())) <= set(order[:place]), number


@pytest.mark.parametrize("name", TERMS)
def test_a_week_needs_the_weeks_of_what_its_modules_need(page, name):
    weeks = page(name).split("\n### Week ")[1:]
    at = {}
    for week, text in enumerate(weeks, 1):
        for number in MODULE.findall(text):
            at.setdefault(number, week)
    for week, text in enumerate(weeks, 1):
        own = {number for number in MODULE.findall(text) if at[number] == week}
        needed = {at[each] for number in own for each in NEEDS.get(number, ())} - {week}
        assert needed <= before(weeks, week), week


@pytest.mark.parametrize("name", [*WEEKS, *DAYS])
def test_objectives_begin_with_verbs_that_can_be_measured(page, name):
    stated = re.findall(r"\*\*You will be able to\*\* (.+?)(?=\n\n)", page(name), re.S)
    assert len(stated) == (1 if name in DAYS else int(re.search(r"\d+", name)[0]))
    for text in stated:
        for objective in text.split(";"):
            assert re.match(r"\s*(?:and )?\*(\w+)\*", objective)[1] in MEASURABLE, objective


ITEM = re.compile(r"`(\w+\.\w+)`|exam (\d\d) `([^`]+)`|\blab (\d+)\b")
OTHERS = ("the allreduce due", "midterm", "proposal", "the problems of module", "talk", "report")


@pytest.mark.parametrize("name", [*WEEKS, *DAYS, PARTS])
def test_each_objective_names_what_assesses_it(page, questions, name):
    """A check of a page, an exam item or a lab that exists, or a step of the course."""
    exams = {each.stem[:2]: each.stem for each in EXAMS}
    for text in re.findall(r"\*\*You will be able to\*\* (.+?)(?=\n\n)", page(name), re.S):
        for objective in " ".join(text.split()).split(";"):
            assessed = " ".join(re.findall(r"\(([^()]*)\)", objective))
            found = ITEM.findall(assessed)
            assert found or any(each in assessed for each in OTHERS), objective
            for check, number, item, lab in found:
                if check:
                    folder, key = check.split(".")
                    lesson = import_module(f"lib_dlhpc.explore.{folder}.questions").lesson
                    assert {"check", "compute"} & lesson.texts[key].keys(), check
                elif number:
                    assert item in {q.name for q in questions(exams[number])}, (number, item)
                else:
                    assert any(each.startswith(f"{int(lab):02}_") for each in LABS), lab


@pytest.mark.parametrize("name", [*WEEKS, "syllabus_one_day"])
def test_a_paper_behind_a_paywall_has_a_free_version(page, name):
    for line in re.findall(r"^.*doi\.org/10\.(?!14778).*$", page(name), re.M):
        papers = len(re.findall(r"\(https://doi\.org/10\.(?!14778)", line))
        after = line + page(name).split(line, 1)[1].split("\n\n")[0]
        assert len(re.findall(r"\[free\]\(https|\(free, ", after)) >= papers, line


@pytest.mark.parametrize("name", WEEKS)
def test_the_total_of_minutes_is_stated_in_hours_and_credits(page, name):
    text = page(name)
    total = sum(stated(text, what) for what in ("classes", "lab sessions", "exam", "at home"))
    assert stated(text, "together") == total
    weeks = int(re.search(r"\d+", name)[0])
    assert name not in TERMS or f"{total}, or {round(total / weeks)} per week" in text
    hours = total / 60
    assert f"That is {hours:.0f} hours: {hours / 30:.1f} to {hours / 25:.1f} ECTS of 25" in text
    assert f"{hours / 45:.1f} US credits of 45 hours" in text
    assert name != "syllabus_10_weeks" or f"{hours / 30:.1f} quarter units of 30 hours" in text
    assert re.search(rf"\| {stated(text, 'exam')} minutes|, {stated(text, 'exam')} minutes", text)


def test_no_week_of_the_short_course_has_more_at_home_than_stated(page):
    text = page("syllabus_6_weeks")
    least, most = map(int, re.search(r"at home (\d+) to (\d+) a week", text).groups())
    home = [
        sum(int(minutes) for kind, minutes, _ in ROW.findall(week) if kind == "home")
        for week in text.split("\n### Week ")[1:]
    ]
    assert (min(home), max(home)) == (least, most)


def test_a_module_at_home_has_its_minutes(page):
    of = {module.number: module.minutes for module in PATH}
    for kind, minutes, what in ROW.findall(page("syllabus_6_weeks")):
        for number in MODULE.findall(what) if kind == "home" else ():
            assert what.endswith("on your own") and int(minutes) >= of[number], number


@pytest.mark.parametrize("name", TERMS)
def test_the_weights_of_the_term_add_up(page, name):
    table = page(name).split("**Assessment**", 1)[1].split("Letters")[0]
    rows = re.findall(r"\| (?:the best )?(\d+)(?: of \d+)? \| (\d+) \| [^|]+ \|$", table, re.M)
    assert sum(int(many) * int(each) for many, each in rows) == 100 and len(rows) == 4


@pytest.mark.parametrize("name", WEEKS)
def test_the_week_of_a_module_has_its_design_problem_and_a_paper(page, name):
    seen = set()
    for week in page(name).split("\n### Week ")[1:]:
        own = [number for number in MODULE.findall(week) if number in NEEDS and number not in seen]
        assert [number for *_, number in DESIGN.findall(week)] == list(dict.fromkeys(own))
        assert not own or PAPER.search(week), week[:40]
        seen |= set(own)
    assert seen == set(NEEDS)


@pytest.mark.parametrize("name", [*WEEKS, *DAYS])
def test_a_design_problem_has_its_title_and_comes_after_its_module(page, titles, name):
    text = page(name)
    found = DESIGN.findall(" ".join(text.split()))
    assert found and {number for *_, number in found} <= set(MODULE.findall(text))
    for title, file, number in found:
        assert file == number and title == titles[number]


def before(weeks, week):
    """Return the weeks that a week needs, and those that they need."""
    line = re.search(r"^\*\*Needs\*\*: (.+)\.$", weeks[week - 1], re.M)[1]
    found = re.search(r"(\d+) to (\d+)", "1 to 13" if line == "all weeks" else line)
    if found:
        return set(range(int(found[1]), int(found[2]) + 1))
    direct = {int(number) for number in re.findall(r"\d+", line)}
    return direct.union(*(before(weeks, each) for each in direct))


@pytest.mark.parametrize("name", WEEKS[1:])
def test_a_shorter_course_names_the_labs_that_it_leaves_out(page, name):
    text = page(name)
    line = re.search(r"(?:omits l|L)abs ([\d, toand]+)(?:,\s| are left out)", text, re.S)[1]
    out = {int(n) for n in re.findall(r"\d+", line)}
    for first, last in re.findall(r"(\d+) to (\d+)", line):
        out |= set(range(int(first), int(last) + 1))
    held = {int(lab[:2]) for lab in LAB.findall(text)}
    assert not out & held and out | held == {int(lab[:2]) for lab in LABS}


def test_readme_counts_modules_and_labs(repository):
    text = (repository / "README.md").read_text("utf-8")
    count = ["ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen"]
    assert f"{count[len(PATH) + 1 - 10]} notebooks" in text
    assert f"{count[len(LABS) - 10]} assignments" in text


@pytest.mark.parametrize("name", [*WEEKS, *DAYS])
def test_a_lab_comes_after_its_module_and_has_its_minutes(page, name):
    of = {lab: module.number for module in PATH for lab in module.labs}
    seen = set()
    for _, minutes, what in ROW.findall(page(name)):
        seen |= set(MODULE.findall(what))
        for lab in LAB.findall(what):
            assert of[lab] in seen, lab
            assert int(minutes) >= LABS[lab].minutes, lab
            own = re.search(rf"{lab}/README\.md\) \((\d+)\)", what)
            assert own is None or int(own[1]) == LABS[lab].minutes, lab


def test_a_term_has_every_module_and_every_lab(page):
    text = page("syllabus_14_weeks")
    assert set(MODULE.findall(text)) == {EXPLORER[:2], *NEEDS}
    assert set(LAB.findall(text)) == set(LABS)


def test_the_outcomes_map_every_module_and_every_lab(page):
    text = page("outcomes")
    assert set(MODULE.findall(text)) == {EXPLORER[:2], *NEEDS}
    assert set(LAB.findall(text)) == set(LABS)
    topics = text.split("## NSF/IEEE-TCPP", 1)[1].split("## CS2023")[0]
    rows = [line.split(" | ") for line in topics.splitlines() if line.startswith("| ")][2:]
    assert {row[2] for row in rows} == {"read", "memory"}


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(page, repository, name):
    for target in LINK.findall(page(name)):
        assert (repository / "instructor_notes" / target).exists(), target


DUE = re.compile(r"^\| (\d+) \|[^|]*\|([^|]*)\|([^|]*)\|[^|]*\|$", re.M)  # of the overview


@pytest.mark.parametrize("name", WEEKS)
def test_the_overview_has_each_lab_a_week_after_its_session_and_its_reading(page, name):
    text = page(name)
    weeks = dict(enumerate(text.split("\n### Week ")[1:], 1))
    rows = {int(week): (works.strip(), due) for week, works, due in DUE.findall(text)}
    assert set(weeks) <= set(rows)
    for week, (works, due) in rows.items():
        own = " ".join(what for _, _, what in ROW.findall(weeks.get(week, "")))
        for work in filter(None, works.split("; ")):
            assert work.strip() in own, (week, work)
        before = weeks.get(week - 1, "")
        given = {int(lab[:2]) for lab in LAB.findall(before)} - {14, 15}  # choices
        listed = re.search(r"labs? ([\d and]+)", due)
        assert set(map(int, re.findall(r"\d+", listed[1] if listed else ""))) == given, week
    last = {int(lab[:2]) for lab in LAB.findall(weeks[len(weeks)])}
    after = text.split("\n## The load")[0].split("\n### Week")[0].rstrip().splitlines()[-1]
    assert last <= {int(n) for n in re.findall(r"\d+", after)} | {15}, after


@pytest.mark.parametrize("name", TERMS)
def test_a_term_states_its_assessment(page, name):
    text = page(name)
    split = [
        int(each)
        for each in re.findall(r"(\d+)%", text.split("**Assessment**", 1)[1].split("\n\n")[0])
    ]
    assert sum(split) == 100
    assert "**Office hours**" in text


PLANNED = re.compile(r"odule (\d\d)\S*?,? (first|second) class(?: of week (\d+))?")


def test_the_10_weeks_have_the_classes_of_the_14(page):
    """Both classes of each module that has two, in order; module 12 has those of two weeks."""
    text = re.sub(r"\[(module \d\d)\]\([^)]*\)", r"\1", page("syllabus_10_weeks"))
    found = [PLANNED.findall(what) for kind, _, what in ROW.findall(text) if kind == "class"]
    plans = page("classes_14_weeks").split("\n## Week ")[1:]
    two = [plan for plan in plans if "All of it" not in plan and "Midterm" not in plan]
    own = [re.findall(r"\d\d", plan.splitlines()[0].partition(":")[2]) for plan in two]
    modules = [modules[0] for modules in own if len(modules) == 1]
    named = [(module, which) for row in found for module, which, _ in row]
    assert sorted(named) == sorted(
        (each, which) for each in modules for which in ("first", "second")
    )
    for module in modules:
        assert [which for each, which in named if each == module][:2] == ["first", "second"]
    weeks = [week for row in found for module, _, week in row if module == "12"]
    assert weeks == ["10", "10", "11", "11"]


def test_the_midterm_comes_after_its_modules(page, repository):
    papers = read(repository / "instructor_notes" / "build.py", "PAPERS")
    *_, modules = papers["14 weeks"]["midterm"]
    for name in TERMS:
        before_it = page(name).split("| Midterm: 20 questions")[0]
        assert set(modules) <= set(MODULE.findall(before_it)), name


def test_parts_for_another_course_come_in_order_and_their_days_add_up(page):
    text = page(PARTS)
    table = re.findall(r"^\| (\d) class(?:es)? \|[^|]*\|([^|]*)\|([^|]*)\|", text, re.M)
    assert len(table) == 6
    of = {lab: module.number for module in PATH for lab in module.labs}
    for count, classes, labs in table:
        order = MODULE.findall(classes)
        assert len(order) == int(count)
        for place, number in enumerate(order):
            needed = set(NEEDS[number]) & set(order)
            assert needed <= set(order[:place]) and (len(order) < 2 or needed == set(NEEDS[number]))
        assert all(of[lab] in order for lab in LAB.findall(labs))
    line = re.search(r"day one (\d+), day two (\d+)", text)
    for stated_, day in zip(line.groups(), text.split("\n### ")[1:], strict=True):
        at = 9 * 60
        for start, minutes, _ in ROW.findall(day):
            assert start == f"{at // 60}:{at % 60:02d}"
            at += int(minutes)
        assert at - 9 * 60 == int(stated_)


def test_the_weeks_on_your_own_have_every_module_in_order_and_their_minutes(repository):
    text = (repository / "modules" / "README.md").read_text("utf-8").split("## On your own")[1]
    rows = re.findall(r"^\| \d \| (.+?) \| (.+?) \| (\d+) \|", text, re.M)
    of = {module.number: module.minutes for module in PATH}
    order = [re.findall(r"\[(\d\d)\]", modules) for modules, _, _ in rows]
    seen = [number for own in order for number in own]
    assert set(seen) == set(NEEDS)
    for place, number in enumerate(seen):
        assert set(NEEDS[number]) <= set(seen[:place]), number
    for own, (_, labs, minutes) in zip(order, rows, strict=True):
        held = sum(LABS[lab].minutes for lab in LAB.findall(labs))
        assert sum(of[number] + 30 for number in own) + held == int(minutes)
    assert f"In all {sum(int(minutes) for *_, minutes in rows)} minutes" in text
