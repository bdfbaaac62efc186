"""Jobs of this machine, and what holds for jobs wherever they go: folders, names, states, mistakes."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time

import pytest
from short_runs import SHORT, ended

from lib_dlhpc.cli import main
from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch import BatchJob, JobError, Site, attach, start, submit
from lib_dlhpc.launch import jobs as jobs_module
from lib_dlhpc.launch.batch import Stop, wait_for_ranks
from lib_dlhpc.launch.jobs import STATES, TICKET, remembered
from lib_dlhpc.launch.local import Job
from lib_dlhpc.launch.mpi import Overdue
from lib_dlhpc.launch.schedulers import ask
from lib_dlhpc.launch.systems import NAMES, Answer, system
from lib_dlhpc.launch.task import failed

PATIENCE = 180  # s; all of it is taken on a very busy machine only
ONE = SHORT.set({"run.epochs": 1})
LONG = SHORT.set({"run.epochs": 10_000})
HERE = "jobs of this machine need POSIX"

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason=HERE),
    pytest.mark.usefixtures("own_place", "ranks_can_start"),
]


def until(holds, job):
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, (job.state, job.why())
        time.sleep(0.02)


def test_a_job_of_this_machine_has_the_face_of_a_run(tmp_path):
    face = {name for name in dir(Job) if not name.startswith("_")} | {"folder"}
    job = submit(SHORT, 2, folder=tmp_path / "run")
    assert face <= set(dir(job))
    assert job.state in ("queued", "running", "done")
    result = job.wait()
    assert result["ranks"] == 2 and result["accuracy"] > 0.5 and ended(job) == "done"
    assert [row["epoch"] for row in job.metrics() if "test_loss" in row] == [1.0, 2.0]
    assert stat.S_IMODE(job.folder.stat().st_mode) == 0o700
    assert attach(str(job.folder)).wait() == result and "is done" in job.why()


def test_a_folder_that_is_there_keeps_its_mode_and_only_the_script_is_private(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine").chmod(0o2770)  # as a group that works together has it
    mode = (tmp_path / "mine").stat().st_mode  # not everyone may set all of it
    job = submit(ONE, 1, folder=tmp_path / "mine")
    job.wait()
    assert job.folder.stat().st_mode == mode
    for private in ("job", "job/start.sh"):
        assert stat.S_IMODE((job.folder / private).stat().st_mode) & 0o777 == 0o700


def test_without_a_name_a_folder_is_made_here(tmp_path):
    job = submit(ONE, 1)
    assert job.folder.parent == tmp_path and job.folder.name.startswith("dlhpc-")
    assert job.wait()["ranks"] == 1


SPECIAL = ["a b", "$(touch x)", "`touch x`", "a'b", 'a"b', "a\ntouch x", "a;touch x", "ä"]
ALL_AT_ONCE = "".join(SPECIAL)


@pytest.mark.parametrize("name", [*SPECIAL, ALL_AT_ONCE, "-x"])
def test_a_folder_of_any_name_is_itself_here_and_refused_elsewhere(tmp_path, name, monkeypatch):
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for program in ("sbatch", "qsub", "bsub", "flux"):
        (bin_ / program).write_text("#!/bin/sh\ntouch called\n")
        (bin_ / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}:{os.environ['PATH']}")
    if name != "-x":  # below another folder it is no option
        for to in ("slurm", "pbs", "lsf", "flux"):
            with pytest.raises(SpecError, match="run folder"):
                submit(SHORT, 1, to, folder=tmp_path / name / "run")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin"]
    (tmp_path / name).mkdir()
    monkeypatch.chdir(name if name != "-x" else f"./{name}")
    if name not in (ALL_AT_ONCE, "-x"):
        return
    job = submit(ONE, 1, folder=tmp_path / name / "run")
    assert job.wait()["ranks"] == 1
    assert [path.name for path in (tmp_path / name).iterdir()] == ["run"]
    assert {path.name for path in tmp_path.iterdir()} == {"bin", "state", name}


def test_nothing_of_an_experiment_is_in_the_script(tmp_path):
    """Two runs that have nothing in common but their folder and the program that starts them."""
    scripts = []
    for changes in (
        {},
        {"model.widths": [64, 16, 10], "run.seed": 5, "strategy.optimizer": "adam"},
    ):
        job = submit(ONE.set(changes), 1, folder="run")
        token = json.loads((job.folder / TICKET).read_text())["token"]
        scripts.append((job.folder / "job/start.sh").read_text().replace(token, "TOKEN"))
        job.wait()
        job.folder.rename(tmp_path / token)
    assert scripts[0] == scripts[1]
    with pytest.raises(SpecError):
        submit(SHORT.set({"model.name": "$(touch x)"}), 1, folder="evil")
    assert not (tmp_path / "x").exists() and not (tmp_path / "evil").exists()


def test_a_job_is_reported_failed_with_its_rank(tmp_path, monkeypatch):
    folder = tmp_path / "mischief"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import os, signal, sys\nif any('worker' in a for a in sys.orig_argv):\n"
        "    from lib_dlhpc.layers.dense import Dense\n"
        "    backward = Dense.backward\n"
        "    def deadly(self, weights, gradients, kept, dy):\n"
        "        if kept.context.step == 7 and os.environ.get('PMI_RANK') == '1':\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return backward(self, weights, gradients, kept, dy)\n"
        "    Dense.backward = deadly\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(folder))
    job = submit(SHORT, 2, folder=tmp_path / "run")
    with pytest.raises(
        JobError, match=r"rank 1: Killed: ended from outside \(SIGKILL\) \(step 7\)"
    ):
        job.wait()
    assert ended(job) == "failed"
    monkeypatch.delenv("PYTHONPATH")
    assert submit(SHORT, 2, folder=job.folder, resume=True).wait()["ranks"] == 2
    assert attach(job.folder).state == "done"


def test_a_job_ends_ranks_left_after_a_failed_rank(tmp_path, monkeypatch):
    monkeypatch.setattr("lib_dlhpc.launch.mpi.LATE", 0.5)
    words = [sys.executable, "-c", "import time; time.sleep(1000)"]
    process = subprocess.Popen(words, start_new_session=True)
    failed(tmp_path, "rank 1", "Killed", "gone", 1)
    stop = Stop(tmp_path, None)
    assert wait_for_ranks(process, stop, Overdue(tmp_path)) == -signal.SIGTERM
    assert not stop.state  # not cancelled: it has failed


def test_a_folder_has_one_run_at_a_time(tmp_path):
    job = submit(LONG, 1, folder=tmp_path / "run")
    until((job.folder / "snapshot.npz").exists, job)
    for again in (submit, start):
        with pytest.raises(SpecError, match="a run is in progress there"):
            again(LONG, 1, folder=job.folder, resume=True)
    assert job.state == "running"
    job.cancel()
    run = start(ONE, 1, tmp_path / "other")
    with pytest.raises(SpecError, match=r"holds a run already"):
        submit(ONE, 1, folder=tmp_path / "other")
    run.wait()
    assert submit(ONE, 1, folder=tmp_path / "other", resume=True).wait()["samples"] == 0
    start(ONE, 1, tmp_path / "other", resume=True).wait()
    with pytest.raises(SpecError, match="holds no job"):
        attach(tmp_path / "other")  # by now it is a plain run again


def test_of_concurrent_submissions_into_one_folder_one_succeeds(tmp_path):
    program = (
        "import sys\nfrom lib_dlhpc.launch import submit\nfrom lib_dlhpc.errors import SpecError\n"
        "from lib_dlhpc.spec.experiment import load\n"
        "try:\n    submit(load(sys.argv[1]), 1, folder=sys.argv[2]).wait()\n"
        "except SpecError as error:\n    print(error)\n    sys.exit(7)\n"
    )
    from lib_dlhpc.spec.experiment import dump

    dump(ONE, tmp_path / "e.toml")
    words = [sys.executable, "-c", program, str(tmp_path / "e.toml"), str(tmp_path / "run")]
    crowd = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    message = [process.communicate(timeout=PATIENCE)[0] for process in crowd]
    assert sorted(process.returncode for process in crowd) == [0, 7, 7, 7], message
    assert attach(tmp_path / "run").wait()["samples"] == 1438


def test_a_program_that_ends_keeps_its_job_and_a_killed_one_cancels_it(tmp_path):
    from lib_dlhpc.spec.experiment import dump

    dump(LONG, tmp_path / "e.toml")
    program = (
        "import sys\nfrom lib_dlhpc.launch import submit\nfrom lib_dlhpc.spec.experiment import load\n"
        "submit(load(sys.argv[1]), 2, folder=sys.argv[2])\nsys.stdin.read()\n"
    )
    for how in ("ends", "killed"):
        folder = tmp_path / how
        words = [sys.executable, "-c", program, str(tmp_path / "e.toml"), str(folder)]
        owner = subprocess.Popen(words, stdin=subprocess.PIPE)
        end = time.monotonic() + PATIENCE
        while not (folder / "snapshot.npz").exists() and time.monotonic() < end:
            time.sleep(0.02)
        if how == "killed":
            owner.send_signal(signal.SIGKILL)
        owner.communicate(timeout=PATIENCE)
        job = attach(folder)
        if how == "ends":
            assert job.state == "running"
            job.cancel()
        assert ended(job) == "cancelled"
        assert ("was killed" in job.why()) == (how == "killed")


def test_another_process_with_the_jobs_number_is_not_killed(tmp_path, monkeypatch):
    """As after a reboot: process ids are reused."""
    job = submit(LONG, 1, folder=tmp_path / "run")
    until((job.folder / "snapshot.npz").exists, job)
    path, stranger = job.folder / TICKET, subprocess.Popen(["sleep", "1000"])
    mine = path.read_text()
    path.write_text(json.dumps({**json.loads(mine), "native": str(stranger.pid)}))
    monkeypatch.setattr(jobs_module, "GRACE", 0.2)
    monkeypatch.setattr(jobs_module, "PATIENCE", 0.2)
    attach(job.folder).cancel()
    assert stranger.poll() is None and job.state == "running"
    stranger.kill()
    stranger.wait()
    path.write_text(mine)
    attach(job.folder).cancel()
    assert ended(job) == "cancelled" == attach(job.folder).state


def test_the_list_holds_what_was_submitted_and_is_still_there(tmp_path):
    one = submit(ONE, 1, folder=tmp_path / "one")
    two = submit(ONE, 1, folder=tmp_path / "two")
    assert [job.folder.name for job in remembered()] == ["one", "two"]
    one.wait(), two.wait()
    again = submit(ONE, 1, folder=tmp_path / "one", resume=True)
    again.wait()
    for path in sorted((tmp_path / "two").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert [job.folder.name for job in remembered()] == ["one"]
    place = tmp_path / "state/dlhpc/jobs"
    assert len(list(place.iterdir())) == 1 and stat.S_IMODE(place.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": 0}, "ranks = 0"),
        ({"folder": ""}, 'folder = "": expected a path; "\\." is the current folder'),
        ({"to": "slrm"}, "site.scheduler = 'slrm'.*Did you mean 'slurm'"),
        ({"to": "pbs", "site": Site()}, "--to pbs: site site has slurm"),
        ({"site": Site(account="?")}, "account = '\\?': fill in"),
        ({"time_limit": "soon"}, "time limit = 'soon'"),
        ({"time_limit": 0.1}, "from 1 s"),
        ({"to": "lsf"}, "there is no bsub here"),
        ({"resume": True}, "holds no run to resume"),
        ({"snapshot_every": 0}, "expected a number of steps"),
    ],
)
def test_errors_are_reported_before_anything_is_there(tmp_path, options, message):
    with pytest.raises(SpecError, match=message):
        submit(SHORT, **{"ranks": 1, "folder": tmp_path / "new", **options})
    assert list(tmp_path.iterdir()) == []


FAKE = {
    "pbs": """
case $0 in
*qsub) (PBS_JOBID=7.a bash "$1"; touch ended) >/dev/null 2>&1 & echo 7.a ;;
*qstat) [ -f ended ] && s='"F", "Exit_status": 0' || s='"R"'
    echo '{"Jobs": {"7.a": {"job_state": '"$s"'}}}' ;;
esac""",
    "lsf": """
case $0 in
*bsub) (LSB_JOBID=7 bash "$1"; touch ended) >/dev/null 2>&1 & echo 'Job <7> is submitted' ;;
*bjobs) [ -f ended ] && s=DONE || s=RUN
    echo '{"RECORDS": [{"STAT": "'$s'", "EXIT_REASON": ""}]}' ;;
esac""",
}


@pytest.mark.parametrize("to", FAKE)
def test_scripts_for_other_schedulers_run(tmp_path, monkeypatch, to):
    """A fake qsub or bsub runs the script: testable without PBS and LSF."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for name in ("qsub", "qstat", "bsub", "bjobs"):
        (bin_ / name).write_text(f"#!/bin/bash\ncd {tmp_path}{FAKE[to]}\n")
        (bin_ / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}:{os.environ['PATH']}")
    site = Site(scheduler=to, account="A-1", partition="q-2", extra={"m": "e"}, ranks_per_node=1)
    job = submit(SHORT, 2, to, site, tmp_path / "run", time_limit="61s")
    assert job.wait()["ranks"] == 2 and job.native_id in ("7.a", "7")
    (script,) = (job.folder / "job" / to).glob("*.job")
    text = script.read_text()
    mark, limit = {"pbs": ("#PBS", "walltime=0:2:0"), "lsf": ("#BSUB", "-W 0:2")}[to]
    named = f'{mark} -{"N" if to == "pbs" else "J"} "{job.ticket.name}"'
    lines = [line for line in text.splitlines() if line.startswith(mark)]
    for words in ("A-1", "q-2", limit, f'{mark} -m "e"', named):
        assert any(words in line for line in lines), (words, lines)
    assert stat.S_IMODE(script.stat().st_mode) == 0o600


def test_attach_names_what_is_not_there(tmp_path):
    for folder, message in ((tmp_path, "holds no job"), (tmp_path / "x", "no such run folder")):
        with pytest.raises(SpecError, match=message):
            attach(folder)
    (tmp_path / TICKET).write_text('{"token": "x"}')
    with pytest.raises(SpecError, match="cannot be read"):
        attach(tmp_path)


ANSWERS = {
    "slurm": [
        ("JobId=7 JobState=PENDING Reason=Priority X=1", "queued"),
        ("JobId=7 JobState=CONFIGURING Reason=None", "queued"),
        ("JobId=7 JobState=COMPLETING Reason=None", "running"),
        ("JobId=7 JobState=SUSPENDED Reason=None", "running"),
        ("JobId=7 JobState=COMPLETED Reason=None", "done"),
        ("JobId=7 JobState=NODE_FAIL Reason=NodeDown", "failed"),
        ("JobId=7 JobState=TIMEOUT Reason=TimeLimit", "out of time"),
        ("JobId=7 JobState=DEADLINE Reason=DeadLine", "out of time"),
        ("JobId=7 JobState=OUT_OF_MEMORY Reason=OutOfMemory", "out of memory"),
        ("JobId=7 JobState=CANCELLED Reason=None", "cancelled"),
        ("JobId=7 JobState=NO_SUCH Reason=None", None),
    ],
    "pbs": [
        ('{"Jobs": {"7.a": {"job_state": "Q", "comment": "Not running"}}}', "queued"),
        ('{"Jobs": {"7.a": {"job_state": "E"}}}', "running"),
        ('{"Jobs": {"7.a": {"job_state": "F", "Exit_status": 0}}}', "done"),
        ('{"Jobs": {"7.a": {"job_state": "F", "Exit_status": 1}}}', "failed"),
        ('{"Jobs": {"7.a": {"job_state": "F", "Exit_status": -29}}}', "out of time"),
        ('{"Jobs": {"7.a": {"job_state": "F", "Exit_status": 271}}}', "cancelled"),
        ('{"Jobs": {"7.a": {"job_state": "F"}}}', "cancelled"),
        ("{", None),
    ],
    "lsf": [
        ('{"RECORDS": [{"STAT": "PEND", "EXIT_REASON": ""}]}', "queued"),
        ('{"RECORDS": [{"STAT": "SSUSP", "EXIT_REASON": ""}]}', "running"),
        ('{"RECORDS": [{"STAT": "DONE", "EXIT_REASON": ""}]}', "done"),
        ('{"RECORDS": [{"STAT": "EXIT", "EXIT_REASON": ""}]}', "failed"),
        ('{"RECORDS": [{"STAT": "EXIT", "EXIT_REASON": "TERM_RUNLIMIT: killed"}]}', "out of time"),
        ('{"RECORDS": [{"STAT": "EXIT", "EXIT_REASON": "TERM_MEMLIMIT: x"}]}', "out of memory"),
        ('{"RECORDS": [{"STAT": "EXIT", "EXIT_REASON": "TERM_OWNER: x"}]}', "cancelled"),
        ('{"RECORDS": [{"JOBID": "7", "ERROR": "Job <7> is not found"}]}', ""),
        ("[]", None),
    ],
    "flux": [
        ("SCHED", "queued"),
        ("RUN", "running"),
        ("COMPLETED", "done"),
        ("FAILED", "failed"),
        ("CANCELED", "cancelled"),
        ("TIMEOUT", "out of time"),
        ("", ""),
        ("WHAT", None),
    ],
}
PROGRAM = {"slurm": "scontrol", "pbs": "qstat", "lsf": "bjobs", "flux": "flux"}


@pytest.mark.parametrize(
    ("scheduler", "printed_text", "state"),
    [(name, *row) for name, rows in ANSWERS.items() for row in rows],
)
def test_what_a_scheduler_reports_is_one_of_our_states(
    tmp_path, monkeypatch, scheduler, printed_text, state
):
    """Programs with the output of the schedulers' manuals; only Slurm's was also run for real."""
    path = tmp_path / PROGRAM[scheduler]
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{printed_text}\nEND\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    answer = ask(scheduler, "7")
    assert answer.state == state and state in (*STATES, "", None)
    assert set(NAMES) == set(ANSWERS)


@pytest.mark.parametrize(
    ("scheduler", "message", "asked", "end"),
    [
        ("done", "done", False, "done"),
        ("done", "running", False, "failed"),  # PSI/J's scripts end well, whatever the run does
        ("done", "failed", False, "failed"),
        ("failed", "out of memory", False, "out of memory"),
        ("failed", "out of time", False, "out of time"),
        ("out of time", "cancelled", False, "out of time"),
        ("out of time", "running", False, "out of time"),
        ("out of memory", "running", False, "out of memory"),
        ("out of memory", "failed", False, "out of memory"),
        ("cancelled", "running", True, "cancelled"),
        ("cancelled", "queued", False, "cancelled"),
        ("cancelled", "done", True, "done"),  # it came too late
        ("failed", "queued", True, "cancelled"),
        ("", "done", False, "done"),
        ("", "out of time", False, "out of time"),
        ("", "running", False, "failed"),
        ("", "running", True, "cancelled"),
    ],
)
def test_scheduler_and_job_report_how_it_ended(scheduler, message, asked, end):
    assert jobs_module._end(scheduler, message, asked) == end


# As `sacct -n -P -o JobIDRaw,ConsumedEnergyRaw` prints them: the job, then its steps, which are within it.
COUNTED = "4242|183000\n4242.batch|91000\n4242.0|91500"


@pytest.fixture(scope="module")
def a_job_that_is_done(tmp_path_factory):
    """The folder of one of this machine."""
    folder = tmp_path_factory.mktemp("done")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        submit(ONE, 1, folder=folder / "run").wait()
    return folder / "run"


@pytest.fixture
def done(a_job_that_is_done, tmp_path):
    """A job that is done, in a folder of the test's own."""
    shutil.copytree(a_job_that_is_done, tmp_path / "run")
    return attach(tmp_path / "run")


def test_an_ended_job_has_the_joules_of_its_accounting(done, tmp_path, monkeypatch, capsys):
    job = done
    assert job.energy() is None  # this machine has no accounting
    path, sacct = job.folder / TICKET, tmp_path / "sacct"
    table = json.loads(path.read_text())
    slurm = {**table["site"], "scheduler": "slurm"}
    path.write_text(json.dumps({**table, "site": slurm, "native": "4242"}))
    sacct.write_text(f"#!/bin/sh\necho '{COUNTED}'\n")
    sacct.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert main(["jobs", "why", str(job.folder)]) == 0
    said = "Its nodes drew 50.8 Wh, by the scheduler's accounting; steps: batch 25.3 Wh, 0 25.4 Wh."
    assert said in capsys.readouterr().out
    sacct.write_text("#!/bin/sh\nexit 1\n")
    assert attach(job.folder).energy() == (183000.0, {"batch": 91000.0, "0": 91500.0})
    assert attach(job.folder).state == "done"
    assert main(["jobs", "why", str(job.folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps_joules"] == {"batch": 91000.0, "0": 91500.0}


def test_a_job_whose_energy_nobody_counts_has_no_joules(tmp_path, monkeypatch):
    sacct = tmp_path / "sacct"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for printed in ("echo '4242|'", "echo '4242|0'", "exit 1"):
        sacct.write_text(f"#!/bin/sh\n{printed}\n")
        sacct.chmod(0o755)
        assert system("slurm").energy("4242") is None
    assert system("pbs").energy("4242") is None


def test_the_final_state_is_recorded_since_schedulers_forget(done, monkeypatch):
    job = done
    path = job.folder / TICKET
    table = json.loads(path.read_text())
    path.write_text(json.dumps({**table, "site": {**table["site"], "scheduler": "slurm"}}))
    monkeypatch.setattr(jobs_module.schedulers, "ask", lambda *_: pytest.fail("it was asked"))
    assert attach(job.folder).state == "done"
    status = job.folder / "status.json"
    status.write_text(json.dumps({"state": "running"}))
    monkeypatch.setattr(jobs_module.schedulers, "ask", lambda *_: Answer(None, "no answer"))
    assert BatchJob(job.folder).state == "running"  # nobody knows better
    monkeypatch.setattr(jobs_module.schedulers, "ask", lambda *_: Answer("", "gone"))
    assert BatchJob(job.folder).state == "failed" and "gone" in BatchJob(job.folder).why()


def test_a_job_that_ends_between_its_status_and_the_schedulers_answer_is_done(done, monkeypatch):
    path, status = done.folder / TICKET, done.folder / "status.json"
    table = json.loads(path.read_text())
    path.write_text(json.dumps({**table, "site": {**table["site"], "scheduler": "slurm"}}))
    status.write_text(json.dumps({"state": "running"}))

    def ask(*_):
        status.write_text(json.dumps({"state": "done", "exit": 0}))
        return Answer("", "")

    monkeypatch.setattr(jobs_module.schedulers, "ask", ask)
    assert BatchJob(done.folder).state == "done"
