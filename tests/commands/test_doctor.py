"""`dlhpc doctor`: what works is reported, and each thing that is missing makes it exit with 1 and says what to do."""

import json
import shutil
import socket
import stat
from types import SimpleNamespace

import pytest

from lib_dlhpc.cli import main
from lib_dlhpc.commands import doctor
from lib_dlhpc.launch import mpi


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    """Records would go into the test's own folder."""
    monkeypatch.delenv("DLHPC_LEARNER", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def checked(capsys, *words, status):
    assert main(["doctor", "--json", *words]) == status
    found = json.loads(capsys.readouterr().out)
    assert found["works"] == (status == 0)
    return {each["name"]: each for each in found["checks"]}


def missing(capsys, *words):
    found = checked(capsys, *words, status=1)
    ((name, each),) = ((name, each) for name, each in found.items() if not each["works"])
    return name, each["words"]


def test_all_of_the_course_works_where_the_tests_run(capsys, tmp_path):
    found = checked(capsys, status=0)
    assert all(each["works"] for each in found.values()) and len(found) == 8
    assert not (tmp_path / "data").exists()  # nothing is left
    assert main(["doctor", "--for", "core"]) == 0
    assert capsys.readouterr().out.endswith("All of what --for core needs works here.\n")


def test_a_missing_package_is_named_with_its_extra(capsys, monkeypatch):
    monkeypatch.setitem(doctor.EXTRA, "no_such_package", "run")
    monkeypatch.setattr(doctor, "ranks", lambda: doctor.Check("ranks", True, ""))
    monkeypatch.setitem(doctor.NEEDS, "run", (lambda: doctor.packages("run"),))
    name, words = missing(capsys, "--for", "run")
    assert name == "packages of [run]"
    assert words.startswith("no_such_package: `pip install 'lib-dlhpc[run]'` installs")


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("echo 'no route to host' >&2; exit 3", "no route to host"),
        ("echo 3; echo 2", "summed to 3 2"),  # each rank summed with itself alone, or one was lost
        ("true", "summed to nothing"),
    ],
)
def test_ranks_that_do_not_sum_are_reported(capsys, monkeypatch, tmp_path, program, says):
    path = tmp_path / "mpiexec"
    path.write_text(f"#!/bin/sh\n{program}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(mpi, "mpiexec", lambda: str(path))
    name, words = missing(capsys, "--for", "run")
    assert name == "2 MPI ranks" and words == f"{path}: {says}"


def test_ranks_that_wait_for_each_other_are_ended(capsys, monkeypatch, tmp_path):
    path = tmp_path / "mpiexec"
    path.write_text("#!/bin/sh\nsleep 1000\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(mpi, "mpiexec", lambda: str(path))
    monkeypatch.setattr(doctor, "PATIENCE", 1.0)
    assert missing(capsys, "--for", "run")[1] == f"{path}: no answer within 1 s."


def test_a_folder_that_cannot_be_written_is_named(monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", "/proc/records")
    found = doctor.folder()
    assert not found.works and found.words.startswith("/proc: ")


def test_a_full_disk_is_reported(monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=12e6))
    found = doctor.resources()
    assert not found.works and "12 MB free" in found.words and found.words.endswith("are needed")


def test_a_machine_that_does_not_answer_itself_is_reported(monkeypatch):
    def refused(address, timeout):
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "create_connection", refused)
    found = doctor.port()
    assert not found.works and "Connection refused" in found.words


def test_a_cluster_is_where_jobs_can_be_submitted(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not doctor.scheduler().works and "sbatch" in doctor.scheduler().words
    (tmp_path / "sbatch").write_text("#!/bin/sh\n")
    (tmp_path / "sbatch").chmod(0o700)
    assert doctor.scheduler() == doctor.Check("a batch system", True, "slurm")
