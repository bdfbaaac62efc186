"""Labs in PyTorch are graded: solutions pass, each mistake is named as on gloo, and cheats do not pass."""

import importlib.util
import json
from contextlib import ExitStack
from tempfile import TemporaryFile

import pytest
from patience import PATIENCE
from torch_cheats import HELD_BY_KERNEL, TORCH_CHEATS

from lib_dlhpc.cli import main
from lib_dlhpc.labs.findings import as_text, passed
from lib_dlhpc.labs.grading.grade import grades
from lib_dlhpc.labs.grading.hand_in import HandIn
from lib_dlhpc.labs.grading.labs import COMPUTES, TORCH, TORCH_LABS, lab_of
from lib_dlhpc.labs.grading.torch_world import CheckedWorld
from lib_dlhpc.labs.grading.workers import server
from lib_dlhpc.labs.torch_ranks.runs import data_parallel

FOLDERS = {lab[:2]: lab for lab in TORCH_LABS}
FIRST = FOLDERS["01"]


@pytest.fixture(scope="module")
def world():
    """A function: the world of a hand-in."""
    with ExitStack() as stack:
        own = stack.enter_context(server((*COMPUTES, *TORCH), int(PATIENCE), torch=True))

        def made(source):
            output = stack.enter_context(TemporaryFile())
            hand_in = HandIn(own, "torch_step.py", source, PATIENCE, output)
            stack.callback(hand_in.close)
            return CheckedWorld(hand_in)

        yield made


@pytest.fixture
def solved(repository):
    """A function: the solution of a lab, as a file and a module."""

    def found(number):
        file = repository / "instructor_notes" / "solutions" / f"torch_lab_{number}.py"
        spec = importlib.util.spec_from_file_location(f"torch_{number}", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return file, module

    return found


@pytest.mark.parametrize("number", FOLDERS)
def test_the_solution_holds_and_the_starter_does_not(world, solved, repository, number):
    known, checks = lab_of(FOLDERS[number], torch=True)
    file, _ = solved(number)
    found = known.judge(checks, {"world": world(file.read_text("utf-8"))}, "your name")
    assert passed(found) and len(found) == known.laws, as_text(found)
    starter = (repository / "labs" / FOLDERS[number] / "torch_starter.py").read_text("utf-8")
    found = known.judge(checks, {"world": world(starter)}, "your name")
    assert not passed(found) and any(each.right for each in found), as_text(found)


def findings_of(number, checks, world, mistake):
    """What holds for a mistake, given by its function, its name, or the functions of lab 6."""
    if number == "01":
        name = mistake.__name__
        return checks.findings(name, "x", data_parallel(world, "x", name.startswith("ddp")))
    if number == "06":
        return checks.torch_findings(world, "x", "x", *(each.__name__ for each in mistake))
    return checks.torch_findings(world, "x", "x", getattr(mistake, "__name__", mistake))


@pytest.mark.parametrize("number", FOLDERS)
def test_each_mistake_is_named(world, solved, number):
    _, checks = lab_of(FOLDERS[number], torch=True)
    file, solution = solved(number)
    own = world(file.read_text("utf-8"))
    for mistake, (law, words) in (
        solution.MISTAKES | getattr(solution, "DDP_MISTAKES", {})
    ).items():
        found = findings_of(number, checks, own, mistake)
        finding = next(each for each in found if each.law == law)
        assert finding.right is False and words in finding.words, (mistake, finding)


@pytest.fixture(scope="module")
def marks(tmp_path_factory, repository):
    """The marks of all cheats by name, and of an honest learner after the quick ones; what the system does not hold."""
    found, unheld = {}, []
    for slow in (False, True):
        folder = tmp_path_factory.mktemp("class")
        for name, (status, _, source) in TORCH_CHEATS.items():
            if (status == "timeout") == slow:
                (folder / name).mkdir()
                (folder / name / "torch_step.py").write_text(source, encoding="utf-8")
        if not slow:
            (folder / "zoe").mkdir()
            file = repository / "instructor_notes" / "solutions" / "torch_lab_01.py"
            (folder / "zoe" / "torch_step.py").write_text(file.read_text("utf-8"))
        seconds = 10 if slow else int(PATIENCE)  # importing torch takes some of them
        graded = grades(folder, FIRST, seconds=seconds, note=unheld.append, torch=True)
        found |= {mark.learner: mark for mark in graded}
    return found, unheld


@pytest.mark.parametrize("cheat", TORCH_CHEATS)
def test_a_cheat_does_not_pass(marks, cheat):
    status, words, _ = TORCH_CHEATS[cheat]
    mark, unheld = marks[0][cheat], marks[1]
    assert mark.passed < mark.total == 14
    if not (unheld and cheat in HELD_BY_KERNEL):
        assert (mark.status, words in mark.note) == (status, True), mark


def test_who_comes_after_them_gets_full_marks(marks):
    assert (marks[0]["zoe"].status, marks[0]["zoe"].passed) == ("passed", 14)


def test_the_command_grades_with_a_hidden_variant(tmp_path, solved, capsys):
    (tmp_path / "class" / "ada").mkdir(parents=True)
    file, _ = solved("02")
    (tmp_path / "class" / "ada" / "torch_step.py").write_text(file.read_text("utf-8"))
    (tmp_path / "key").write_text("0123456789abcdef")
    words = ["--lab", "2", "--torch", "--key", str(tmp_path / "key"), "--json"]
    similar, pages = tmp_path / "similar.md", tmp_path / "pages"
    words += ["--similar", str(similar), "--rubrics", str(pages)]
    assert main(["grade", str(tmp_path / "class"), *words]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["lab"], row["status"]) == ("02_overlap (PyTorch)", "passed")
    assert (row["passed"], row["total"], row["variants"]) == (8, 8, "own and hidden")
    assert "| ada | the solution | 100% | 100% |" in similar.read_text("utf-8")
    assert "✓ Every rank finishes. No rank is left waiting" in (pages / "ada.md").read_text("utf-8")
