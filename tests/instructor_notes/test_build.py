"""The builder writes each page and its answers apart."""

import re

import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.course import PATH
from lib_dlhpc.teaching.questions import exam, read


def read_exam(repository, module):
    return exam(repository / "instructor_notes" / "exam" / f"{module.name}.py")


def test_every_page_has_its_answers_apart(repository, tmp_path, monkeypatch):
    main = read(repository / "instructor_notes" / "build.py", "main")
    some = PATH[:2]  # each is evaluated by another test, too
    monkeypatch.setitem(main.__globals__, "PATH", some)
    main(str(tmp_path))
    tests = [tmp_path / "concept_test.md", tmp_path / "concept_test_b.md"]
    sheets = [*tests]
    sheets += [tmp_path / "exam" / f"{module.name}.md" for module in some]
    for sheet in sheets:
        asked = sheet.read_text("utf-8")
        answers = sheet.with_name(f"{sheet.stem}_answers.md").read_text("utf-8")
        numbers = re.findall(r"^\*\*(\d+)\.\*\*", asked, re.M)
        assert numbers == re.findall(r"^\*\*(\d+)\.\*\* [A-D]\. ", answers, re.M)
        assert len(re.findall(r"^- [A-D]\. ", asked, re.M)) == 4 * len(numbers)
        if sheet not in tests:
            assert "## In your own words (6 points)" in asked and "- By hand. " in answers
        moodle, canvas = (sheet.with_suffix(end).read_text("utf-8") for end in (".gift", ".txt"))
        assert len(re.findall(r"^=", moodle, re.M)) == len(numbers)
        assert re.findall(r"^(\d+)\. ", canvas, re.M) == numbers
        feedback = 0 if sheet in tests else 4 * len(numbers)  # asked twice
        assert canvas.count("\n... ") == feedback == len(re.findall(r"^[=~].*[^\\]#", moodle, re.M))
    both = [(tmp_path / "exam" / f"{name}.md").read_text("utf-8") for name in ("midterm", "final")]
    texts = [re.findall(r"^\*\*\d+\.\*\* (.+)$", each, re.M) for each in both]
    assert len(texts[0]) + len(texts[1]) == sum(
        len(read_exam(repository, module)) for module in some
    )
    assert not set(texts[0]) & set(texts[1])
    short = (tmp_path / "exam" / "final_6_weeks.md").read_text("utf-8")
    assert short.startswith("# Exam\n") and "**2.**" in short
    for module in some:
        design = tmp_path / "design" / f"{module.name}.md"
        asked = design.read_text("utf-8")
        solved = design.with_name(f"{design.stem}_solution.md").read_text("utf-8")
        assert asked.count("\n## ") == 8 and solved.count("\n## ") == 6
        assert "**All points**" in solved and "**All points**" not in asked


def test_a_midterm_and_an_exam_have_their_questions_from_all_their_modules(repository):
    papers = read(repository / "instructor_notes" / "build.py", "papers")
    names = [module.number for module in PATH]
    pools = {number: [f"{number} {k}" for k in range(10)] for number in names}
    one, other = papers(pools, 1), papers(pools, 2)
    assert len(one["midterm"]) == 20 and len(one["final"]) == 30
    assert {each.split()[0] for each in one["final"]} == set(names)
    assert {each.split()[0] for each in one["midterm"]} == {*names} - {"05", "09", "10", "12", "13"}
    assert not set(one["midterm"]) & set(one["final"])
    assert one != other and one == papers(pools, 1)


def test_the_exam_of_the_6_weeks_has_25_questions_from_the_modules_of_its_classes(repository):
    papers = read(repository / "instructor_notes" / "build.py", "papers")
    pools = {module.number: [f"{module.number} {k}" for k in range(10)] for module in PATH}
    own = papers(pools, 1)["final_6_weeks"]
    assert len(own) == len(set(own)) == 25
    text = (repository / "instructor_notes" / "syllabus_6_weeks.md").read_text("utf-8")
    classes = re.findall(r"^\| class \|.*?\.\./modules/(\d\d)_", text, re.M)
    assert {each.split()[0] for each in own} == set(classes) - {"13"}  # only its first figure
    assert re.search(r"25 questions.*`exam/final_6_weeks\.md`", text)


def test_without_the_key_nobody_writes_a_version(repository, tmp_path, monkeypatch):
    path = repository / "instructor_notes" / "build.py"
    main = read(path, "main")
    monkeypatch.setitem(main.__globals__, "PATH", PATH[:1])
    keys = {"one": "0123456789abcdef", "other": "fedcba9876543210"}
    for name, secret in keys.items():
        (tmp_path / name).write_text(secret)

    def written(seed, key=None, page=f"exam/{PATH[0].name}.md"):
        main(str(tmp_path / "to"), seed, str(tmp_path / key) if key else None)
        return (tmp_path / "to" / page).read_text("utf-8")

    learner = written("Ada L.", "one")
    assert learner == written("Ada L.", "one")
    others = [written("Ada L.", "other"), written("Bob", "one"), written("Ada L."), written("0")]
    assert len({learner, *others}) == 5
    test = "concept_test.md"  # nothing is drawn for it, and evaluation.ipynb knows its order
    assert written("3", "one", test) == written("3", None, test)
    (tmp_path / "short").write_text("short")
    with pytest.raises(SpecError, match="expected 16 or more"):
        written("0", "short")
