"""`dlhpc submit` and `dlhpc jobs`, on this machine: what they print, and their exit status."""

import json
import os
import sys

import pytest
from patience import eventually
from short_runs import SHORT

from lib_dlhpc.cli import main
from lib_dlhpc.launch import attach
from lib_dlhpc.launch.jobs import ENDS
from lib_dlhpc.spec.experiment import dump, load

pytestmark = pytest.mark.skipif(os.name != "posix", reason="jobs of this machine need POSIX")


@pytest.fixture(autouse=True)
def _alone(tmp_path, own_place, ranks_can_start):
    dump(SHORT, tmp_path / "e.toml")


def test_submit_waits_for_a_job_and_reports_it_as_a_run(tmp_path, capsys):
    assert main(["submit", "e.toml", "--to", "local", "-n", "2", "--out", "run", "--wait"]) == 0
    out, err = capsys.readouterr()
    assert "mlp-digits on digits, 2 ranks in local job" in out and "test accuracy" in out
    assert "one step" in out and f"run folder: {tmp_path}/run" in out
    assert "is done." in err and "Traceback" not in err
    assert main(["jobs"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == ["JOB", "STATE", "AGE", "RANKS", "RUN", "FOLDER"]
    assert "done" in out and str(tmp_path / "run") in out
    assert main(["jobs", "why", "run"]) == 0
    assert "is done" in capsys.readouterr().out
    assert main(["jobs", "cancel", "run"]) == 0
    assert "was done before" in capsys.readouterr().out


def test_a_job_is_listed_cancelled_and_resumed(tmp_path, capsys):
    long = ["--set", "run.epochs=10000", "run.checkpoint_interval=1e-9"]
    assert main(["submit", "e.toml", "-n", "1", "--out", "run", *long]) == 0
    out = capsys.readouterr().out
    assert f"dlhpc jobs why {tmp_path}/run" in out
    job = attach("run")
    saved = job.folder / "snapshot.npz"
    eventually(lambda: saved.exists() or job.state in ENDS, job.why)
    assert saved.exists(), job.why()
    assert main(["jobs", "list", str(tmp_path)]) == 0
    assert "running" in capsys.readouterr().out
    assert main(["jobs", "cancel", "run"]) == 0
    assert "is cancelled" in capsys.readouterr().out
    assert main(["submit", "--resume", "run", "--time", "2s", "--wait"]) == 1
    assert "time limit of 2 s" in capsys.readouterr().err
    assert main(["jobs", "why", "run"]) == 1
    assert "--resume" in capsys.readouterr().out


def test_a_dry_run_prints_the_scripts_and_submits_nothing(tmp_path, capsys, monkeypatch):
    pytest.importorskip("psij")
    site = 'scheduler = "slurm"\naccount = "abc123"\npartition = "gpu"\nmodules = ["openmpi"]\n'
    (tmp_path / "site.toml").write_text(site)
    monkeypatch.setenv("PATH", "/nowhere")  # without sbatch
    words = ["submit", "e.toml", "-n", "4", "--site", "site.toml", "--time", "2h", "--out", "run"]
    assert main([*words, "--dry-run"]) == 0
    out, err = capsys.readouterr()
    for line in ("--ntasks=4", '--account="abc123"', '--partition="gpu"', "--time=2:0:0"):
        assert f"\n#SBATCH {line}\n" in out
    assert "module load openmpi || " in out
    assert f"-m lib_dlhpc.launch.batch {tmp_path}/run 00000000" in out
    assert f"/bin/bash -l {tmp_path}/run/job/start.sh" in out and "nothing was submitted" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.toml", "site.toml"]
    assert main([*words, "--dry-run", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["scripts"]) == {"job for slurm", "start.sh"}


def test_a_dry_run_on_this_machine_and_of_a_program(tmp_path, capsys):
    (tmp_path / "step.py").touch()
    for file in ("e.toml", "step.py"):
        assert main(["submit", file, "-n", "2", "--dry-run"]) == 0
        out = capsys.readouterr().out
        assert out.startswith("# start.sh\n#!/bin/bash") and "#SBATCH" not in out
    assert main(["jobs", "list", str(tmp_path)]) == 0 and "No jobs" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.toml", "step.py"]


def test_a_sweep_is_a_folder_of_runs(tmp_path, capsys):
    words = ["--sweep", "strategy.batch=25,50", "--out", "many", "-n", "1", "--wait"]
    assert main(["submit", "e.toml", *words]) == 0
    out = capsys.readouterr().out
    assert out.count("test accuracy") == 2
    names = sorted(path.name for path in (tmp_path / "many").iterdir())
    assert names == ["strategy.batch=25", "strategy.batch=50"]
    assert main(["jobs", "list", "many"]) == 0
    assert capsys.readouterr().out.count("done") == 2


def test_in_a_sweep_of_the_batch_microbatches_keep_their_samples(tmp_path):
    dump(SHORT.set({"strategy.batch": 50, "strategy.microbatches": 2}), tmp_path / "two.toml")
    words = ["--sweep", "strategy.batch=25,100", "--out", "many", "-n", "2", "--wait", "-q"]
    assert main(["submit", "two.toml", *words]) == 0
    runs = [load(f"many/strategy.batch={batch}/experiment.toml") for batch in (25, 100)]
    assert [int(run.strategy.microbatches) for run in runs] == [1, 4]


def test_a_folder_of_two_lines_is_one_in_the_table(tmp_path, capsys):
    (tmp_path / "nothing.py").touch()
    assert main(["submit", "nothing.py", "--out", "two\nlines", "--wait"]) == 0
    capsys.readouterr()
    assert main(["jobs"]) == 0
    head, job = capsys.readouterr().out.splitlines()
    assert head.startswith("JOB") and job.endswith(f"{tmp_path}/two\\nlines")


def test_what_is_piped_is_no_terminal_and_nothing_else_is_listed(capsys, tmp_path):
    assert main(["jobs"]) == 0 and "No jobs" in capsys.readouterr().out
    assert main(["jobs", "list", str(tmp_path)]) == 0 and "No jobs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["submit"], "name an experiment"),
        (["submit", "no.toml"], "no such file"),
        (["submit", "--resume", "x"], "no such"),
        (["submit", "e.toml", "--to", "slrm"], "Did you mean 'slurm'"),
        (["submit", "e.toml", "--site", "stampede3"], "--account"),
        (["submit", "e.toml", "--site", "no-such"], "no site of that name"),
        (["submit", "e.toml", "--to", "pbs", "--site", "laptop"], "site laptop has local"),
        (["submit", "e.toml", "--account", "a;b"], "site.account = 'a;b'"),
        (["submit", "e.toml", "--partition", "$(touch x)"], "site.partition"),
        (["submit", "e.toml", "--time", "soon"], "time limit = 'soon'"),
        (["submit", "e.toml", "--out", "a", "--resume", "b"], "name one of them"),
        (["submit", "e.toml", "-n", "0"], "--ranks 0"),
        (["submit", "e.toml", "--dry-run", "--sweep", "a=1", "--out", "o"], "omit --sweep"),
        (["submit", "e.toml", "--sweep", "strategy.batch"], "expected KEY=A,B"),
        (["submit", "e.toml", "--sweep", "strategy.batch=8,16"], "--out"),
        (["submit", "e.toml", "--sweep", "strategy.bach=8", "--out", "o"], "strategy.bach"),
        (["submit", "e.toml", "--sweep", "run.seed=$(touch x)", "--out", "o"], "run.seed"),
        (["jobs", "why", "nowhere"], "no such run folder"),
        (["jobs", "cancel", "."], "holds no job"),
        (["jobs", "list", "nowhere"], "no such folder"),
    ],
)
def test_errors_are_one_line(words, message, capsys, tmp_path):
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert message in err and err.count("\n") == 1 and not out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.toml"]


def test_help_is_light():
    import subprocess

    message = "import sys; from lib_dlhpc.cli import main\ntry:\n    main(['submit', '--help'])\n"
    message += "except SystemExit:\n    print([m for m in ('psij', 'mpi4py', 'simpy') if m in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-c", message], capture_output=True, text=True, check=True
    )
    assert run.stdout.endswith("[]\n") and "--site" in run.stdout
