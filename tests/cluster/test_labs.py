"""Labs on a cluster: the commands of their READMEs, run with the solutions."""

import shlex
import shutil

import pytest

from lib_dlhpc.cli import main
from lib_dlhpc.spec.experiment import dump, load

pytestmark = pytest.mark.usefixtures("slurm")

SITE = 'ranks_per_node = 1\nsetup = ["export TMPDIR={folder}"]\n'
CHOICE = """

def choice():
    return '[run]\\ncheckpoint = "synchronous"\\ncheckpoint_interval = "1 min"\\n'
"""
PRINTED = {  # status, and words of what is printed
    "01": (0, ["2 real ranks", "All 4 hold."]),
    "02": (0, ["2 real ranks", "All 5 hold."]),
    "03": (0, ["2 ranks, batch 1024", "on the test samples"]),
    "04": (0, ["2 real ranks", "All 4 hold."]),
    "05": (0, ["2 real ranks", "All 5 hold."]),
    "06": (0, ["2 real ranks", "ZeRO 3.", "All 1 hold."]),  # LEVELS
    "07": (0, ["2 real ranks", "All 3 hold."]),
    "08": (1, ["8 of 10 hold; not done yet."]),  # CHOICE writes too much
}


def lines(repository, lab):
    """The folder of a lab, and its commands for a cluster."""
    (folder,) = (repository / "labs").glob(f"{lab}_*")
    text = (folder / "README.md").read_text(encoding="utf-8")
    text = text.partition("## On a cluster\n")[2].partition("\n## ")[0]
    found = [line.strip() for line in text.splitlines() if line.startswith("    dlhpc ")]
    return folder, found


LEVELS = ("(0, 1, 3)", "(3,)")  # one of three trainings of lab 6 shows it as well


@pytest.mark.parametrize("lab", PRINTED)
def test_a_lab_s_commands_on_a_cluster_check_the_solution(
    repository, lab, tmp_path, monkeypatch, capsys
):
    folder, typed = lines(repository, lab)
    at = tmp_path / "labs" / folder.name
    shutil.copytree(folder, at)
    (tmp_path / "labs/site.toml").write_text(SITE.format(folder=tmp_path))
    (solution,) = (repository / "instructor_notes/solutions").glob(f"lab_{lab}_*.py")
    (at / "step.py").write_text(solution.read_text() + CHOICE * (lab == "08"))
    if lab == "06":
        checks = (at / "checks.py").read_text()
        assert LEVELS[0] in checks
        (at / "checks.py").write_text(checks.replace(*LEVELS))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(at)
    if lab == "03":
        choice = load(repository / "labs/experiments/large_batch.toml")
        dump(choice.set({"run.epochs": 1}), "choice.toml")
    line = typed[-1].replace("-n 4", "-n 2").replace("/a/shared/folder", str(tmp_path))
    status, words = PRINTED[lab]
    assert main(shlex.split(line)[1:]) == status
    out, err = capsys.readouterr()
    assert all(word in out for word in words), (out, err)
    assert "Traceback" not in out + err


def test_every_lab_lists_its_commands(repository):
    for lab in PRINTED:
        folder, typed = lines(repository, lab)
        for line in typed:
            assert line.startswith("dlhpc submit --site ../site.toml -n "), folder
            assert " --wait checks.py " in line and (folder / "checks.py").exists()
        assert typed and f"../{folder.name}" not in "".join(typed)
