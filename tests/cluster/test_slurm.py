"""Runs as jobs of a real Slurm: watched, failed, out of time, out of memory, cancelled, resumed, found again."""

import json
import os
import shlex
import signal
import stat
import subprocess
import sys

import numpy as np
import pytest
from patience import PATIENCE, eventually, living
from short_runs import SHORT, ended

from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch import JobError, Site, attach, start, submit, submit_sweep
from lib_dlhpc.launch.jobs import TICKET, read_ticket
from lib_dlhpc.spec.experiment import dump

LONG = SHORT.set({"run.epochs": 10_000})
OFTEN = SHORT.set({"run.checkpoint_interval": 1e-9})
SLOW = """
import time
from lib_dlhpc.layers.dense import Dense
backward = Dense.backward
def slow(self, weights, gradients, kept, dy):
    time.sleep(0.1)
    return backward(self, weights, gradients, kept, dy)
Dense.backward = slow
"""
SLURM = Site(name="here", ranks_per_node=2)

pytestmark = pytest.mark.usefixtures("slurm", "overdue", "own_state")


def mischievous(folder, monkeypatch, program):
    """Have a program run in every rank before it begins."""
    folder.mkdir(exist_ok=True)
    head = "import os, signal, sys\nif any('worker' in a for a in sys.orig_argv):\n"
    body = "".join(f"    {line}\n" for line in program.strip().splitlines())
    (folder / "sitecustomize.py").write_text(head + body)
    monkeypatch.setenv("PYTHONPATH", str(folder))


@pytest.fixture
def mischief(tmp_path, monkeypatch):
    return lambda program: mischievous(tmp_path / "mischief", monkeypatch, program)


@pytest.fixture(scope="module")
def overdue(slurm, tmp_path_factory):
    """A running job that is over its time limit, and the processes of its ranks.

    Slurm rounds limits up to minutes, so the end is moved; it notices within 30 s, in which other tests run.
    """
    folder = tmp_path_factory.mktemp("overdue")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        mischievous(folder / "mischief", patch, SLOW)
        job = submit(OFTEN.set({"run.epochs": 10_000}), 2, "slurm", SLURM, folder / "run")
        saved(job)
        pids = ranks_of(job)
    control("update", f"JobId={job.native_id}", "EndTime=now+1")
    return job, pids


@pytest.fixture
def closed():
    """No job starts; a function that opens the nodes."""

    def turn(state):
        control("update", "PartitionName=virtual", f"State={state}")

    turn("DOWN")
    yield lambda: turn("UP")
    turn("UP")


def control(*words):
    done = subprocess.run(
        ["scontrol", *words], capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    return done.stdout


def until(holds, job):
    eventually(holds, what=lambda: (job.state, job.why()))


def ranks_of(job):
    """The process ids that the ranks have written down themselves, once all have."""
    number = read_ticket(job.folder).ranks
    until(lambda: len(list(job.folder.glob("rank-*.json"))) == number, job)
    files = job.folder.glob("rank-*.json")
    return [json.loads(path.read_text())["process"] for path in files]


def saved(job):
    until((job.folder / "snapshot.npz").exists, job)


def weights(folder):
    with np.load(folder / "snapshot.npz") as file:
        return {name: file[name].tobytes() for name in file.files}


def test_a_job_is_queued_runs_and_is_done(tmp_path, closed):
    job = submit(SHORT, 4, "slurm", SLURM, tmp_path / "run")
    assert job.state == "queued" and job.native_id.isdigit()
    until(lambda: "PartitionDown" in job.why(), job)
    closed()
    seen = []
    until(lambda: seen.append(job.state) or seen[-1] == "done", job)
    order = list(dict.fromkeys(seen))  # a busy machine does not look at each of them
    assert order == [state for state in ("queued", "running", "done") if state in order]
    result = job.wait()
    assert result["ranks"] == 4 and result["samples"] == 2 * 1438
    assert [row["epoch"] for row in job.metrics() if "test_loss" in row] == [1.0, 2.0]
    shown = control("show", "job", "-o", job.native_id)
    assert "NumNodes=2 " in shown and "JobState=COMPLETED" in shown and "TimeLimit=00:10" in shown
    assert ended(job) == "done" and (job.folder / "timeline.npz").exists()


def test_a_job_learns_what_a_run_here_learns(tmp_path):
    start(SHORT, 2, tmp_path / "here").wait()
    site = Site(ranks_per_node=1, launcher="srun")
    for name, options in {"srun": {"site": site}, "local": {"to": "local"}}.items():
        submit(SHORT, 2, folder=tmp_path / name, **options).wait()
        assert weights(tmp_path / name) == weights(tmp_path / "here")


def test_nobody_else_reads_a_job(tmp_path):
    job = submit(SHORT, 1, "slurm", SLURM, tmp_path / "run")
    for path in (job.folder, job.folder / "job", job.folder / "job/slurm"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    private = [
        job.folder / TICKET,
        job.folder / "job/start.sh",
        *job.folder.glob("job/slurm/*.job"),
    ]
    assert len(private) == 3
    for path in private:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    job.wait()
    assert stat.S_IMODE((job.folder / "result.json").stat().st_mode) == 0o600


def test_a_rank_that_raises_is_named_with_its_place(tmp_path, mischief):
    mischief("""
from lib_dlhpc.layers.dense import Dense
backward = Dense.backward
def failing(self, weights, gradients, kept, dy):
    if kept.context.step == 3 and os.environ.get("PMI_RANK") == "2" and len(gradients["bias"]) == 32:
        raise ValueError("a cosmic ray")
    return backward(self, weights, gradients, kept, dy)
Dense.backward = failing
""")
    job = submit(SHORT, 3, "slurm", Site(), tmp_path / "run")
    with pytest.raises(
        JobError, match=r"rank 2: ValueError: a cosmic ray \(step 3, layer dense2\)"
    ):
        job.wait()
    assert ended(job) == "failed" == attach(job.folder).state
    assert json.loads((job.folder / "status.json").read_text())["exit"] != 0


def test_a_job_that_never_comes_to_its_run_reports_what_it_printed(tmp_path):
    site = Site(setup=(f"source {tmp_path}/not-there.sh",))
    job = submit(SHORT, 1, "slurm", site, tmp_path / "run")
    assert ended(job) == "failed"
    assert f"failed: source {tmp_path}/not-there.sh" in job.why() and "slurm job" in job.why()


@pytest.mark.parametrize("to", ["slurm", "local"])
def test_a_limit_shorter_than_a_minute_is_kept(tmp_path, to):
    job = submit(LONG, 2, to, folder=tmp_path / "run", time_limit="3s")
    assert ended(job) == "out of time"
    assert "time limit of 3 s" in job.why()


@pytest.mark.parametrize("to", ["slurm", "local"])
def test_too_little_memory_is_distinguished_from_a_failure(tmp_path, mischief, to):
    mischief("""
from lib_dlhpc.layers.dense import Dense
backward = Dense.backward
def greedy(self, weights, gradients, kept, dy):
    if kept.context.step == 3 and os.environ.get("PMI_RANK") == "1":
        import numpy, resource
        used = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + 10**8, used + 10**8))
        numpy.ones(10**8)
    return backward(self, weights, gradients, kept, dy)
Dense.backward = greedy
""")
    job = submit(SHORT, 2, to, folder=tmp_path / "run")
    assert ended(job) == "out of memory"
    assert "too little memory: rank 1: " in job.why() and "step 3" in job.why()


def test_a_queued_job_is_cancelled(tmp_path, closed):
    job = submit(SHORT, 2, "slurm", SLURM, tmp_path / "run")
    attach(job.folder).cancel()
    assert job.state == "cancelled" and "JobState=CANCELLED" in control(
        "show", "job", "-o", job.native_id
    )
    with pytest.raises(JobError, match="cancelled"):
        job.wait()
    assert submit(SHORT, 2, "slurm", SLURM, job.folder, resume=True).state == "queued"
    attach(job.folder).cancel()


@pytest.mark.parametrize("to", ["slurm", "local"])
def test_a_running_job_is_cancelled_and_no_rank_is_left(tmp_path, to):
    job = submit(LONG, 3, to, folder=tmp_path / "run")
    saved(job)
    pids = ranks_of(job)
    attach(job.folder).cancel()
    assert job.state == "cancelled"
    until(lambda: not living(pids), job)
    assert ended(job) == "cancelled"
    job.cancel()
    assert job.state == "cancelled"


def command(folder, *words):
    """`dlhpc submit` of a long run, in a process of its own."""
    dump(LONG, folder.parent / "long.toml")
    line = [sys.executable, "-m", "lib_dlhpc.cli", "submit", str(folder.parent / "long.toml")]
    return [*line, "-n", "2", "--out", str(folder), *words]


@pytest.mark.parametrize("to", ["slurm", "local"])
def test_one_may_stop_waiting(tmp_path, to):
    folder = tmp_path / "run"
    process = subprocess.Popen(
        command(folder, "--to", to, "--wait"), stderr=subprocess.PIPE, text=True
    )
    eventually((folder / "snapshot.npz").exists, what="a snapshot")
    process.send_signal(signal.SIGINT)
    message = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 130 and f"dlhpc jobs cancel {folder} ends it" in message
    assert "Traceback" not in message
    job = attach(folder)
    assert job.state == "running"
    job.cancel()
    assert ended(job) == "cancelled"


def test_a_killed_submitter_leaves_its_job_in_slurm(tmp_path):
    folder = tmp_path / "run"
    process = subprocess.Popen(command(folder, "--to", "slurm", "--wait"))
    eventually((folder / "snapshot.npz").exists, what="a snapshot")
    process.send_signal(signal.SIGKILL)
    process.wait(PATIENCE)
    job = attach(folder)
    assert job.state == "running" and job.metrics()
    pids = ranks_of(job)
    job.cancel()
    assert ended(job) == "cancelled" and not living(pids)


def test_a_submitter_killed_before_it_wrote_the_jobs_name_down(tmp_path, closed):
    job = submit(SHORT, 2, "slurm", SLURM, tmp_path / "run")
    native, path = job.native_id, job.folder / TICKET
    path.write_text(json.dumps({**json.loads(path.read_text()), "native": ""}))
    again = attach(job.folder)
    assert again.native_id == "" and again.state == "queued" and again.native_id == native
    path.write_text(json.dumps({**json.loads(path.read_text()), "native": "", "token": "0" * 8}))
    lost = attach(job.folder)
    assert lost.state == "failed" and "never submitted" in lost.why()
    subprocess.run(["scancel", native], check=True)


def test_a_local_job_ends_with_a_submitter_that_is_killed(tmp_path):
    folder = tmp_path / "run"
    process = subprocess.Popen(command(folder, "--to", "local", "--wait"))
    eventually((folder / "snapshot.npz").exists, what="a snapshot")
    pids = ranks_of(attach(folder))
    process.send_signal(signal.SIGKILL)
    process.wait(PATIENCE)
    assert ended(attach(folder)) == "cancelled" and "was killed" in attach(folder).why()
    assert not living(pids)


def test_a_local_job_continues_without_its_submitter_and_is_found(tmp_path):
    folder = tmp_path / "run"
    subprocess.run(command(folder, "--to", "local"), check=True, timeout=PATIENCE)
    job = attach(folder)
    saved(job)
    assert job.state == "running"
    job.cancel()
    assert ended(job) == "cancelled"


@pytest.mark.parametrize("to", ["slurm", "local"])
def test_no_rank_outlives_what_watches_over_it(tmp_path, to):
    """The launcher is killed on its node, so that nothing records the end."""
    job = submit(LONG, 2, to, folder=tmp_path / "run")
    saved(job)
    pids = ranks_of(job)
    os.kill(json.loads((job.folder / "status.json").read_text())["pid"], signal.SIGKILL)
    assert ended(job) == "failed"
    # A rank may notice first, and say so: by a failed call of MPI, or by the signal that MPI's launcher sends it.
    why, first = job.why(), ("exited without writing a status file", "MPI_", "ended from outside")
    assert any(words in why for words in first), why
    assert not living(pids)


def test_two_submissions_of_one_folder_do_not_mix(tmp_path, closed):
    job = submit(SHORT, 2, "slurm", SLURM, tmp_path / "run")
    before = {path.name: path.read_bytes() for path in job.folder.iterdir() if path.is_file()}
    refused = rf"slurm job {job.native_id} is queued there.*dlhpc jobs cancel"
    with pytest.raises(SpecError, match="holds a run already"):
        submit(SHORT, 2, "slurm", SLURM, job.folder)
    for again in (
        lambda: submit(SHORT, 2, "slurm", SLURM, job.folder, resume=True),
        lambda: submit(SHORT, 2, "local", folder=job.folder, resume=True),
        lambda: start(SHORT, 2, job.folder, resume=True),
    ):
        with pytest.raises(SpecError, match=refused):
            again()
    assert {p.name: p.read_bytes() for p in job.folder.iterdir() if p.is_file()} == before
    closed()
    assert job.wait()["samples"] == 2 * 1438


def test_a_job_whose_folder_is_anothers_by_now_leaves_it_alone(tmp_path, closed):
    """As on two login nodes with a file system without locks."""
    job = submit(SHORT, 2, "slurm", SLURM, tmp_path / "run")
    path = job.folder / TICKET
    path.write_text(json.dumps({**json.loads(path.read_text()), "token": "other", "native": "1"}))
    closed()
    status = job.folder / f"job/slurm/{job.native_id}.ec"  # as PSI/J's script has it
    until(lambda: status.exists() and status.read_text().strip() == "3", job)
    assert json.loads((job.folder / "status.json").read_text())["state"] == "queued"
    assert not (job.folder / "result.json").exists()


def test_a_sweep_is_one_job_array_with_a_run_folder_for_each_task(tmp_path, closed):
    batches = {f"batch-{b}": SHORT.set({"strategy.batch": b}) for b in (10, 25, 50)}
    jobs = submit_sweep(batches, 2, tmp_path / "sweep", site=SLURM)
    assert [job.folder.name for job in jobs] == list(batches)
    array = {job.native_id.partition("_")[0] for job in jobs}
    assert len(array) == 1 and [job.native_id.partition("_")[2] for job in jobs] == ["0", "1", "2"]
    assert all(f"ArrayJobId={next(iter(array))} " in of_slurm(job) for job in jobs)
    assert [job.state for job in jobs] == ["queued"] * 3
    closed()
    assert [job.wait()["samples"] for job in jobs] == [2876] * 3
    assert [read_ticket(job.folder).ranks for job in map(attach, batches_of(tmp_path))] == [2] * 3
    again = submit(batches["batch-10"], 2, site=SLURM, folder=jobs[0].folder, resume=True)
    assert again.native_id.isdigit() and again.wait()["samples"] == 0


def of_slurm(job):
    return control("show", "job", "-o", job.native_id)


def batches_of(folder):
    return sorted(path.parent for path in folder.glob(f"**/{TICKET}"))


def test_tasks_of_an_array_end_each_in_its_own_way(tmp_path, closed):
    """One is cancelled while queued, one while running, one fails, one is done; all independently."""
    bad = SHORT.set({"training.rate": 1e30})
    runs = {"queued": SHORT, "long": LONG, "bad": bad, "good": SHORT}
    jobs = {job.folder.name: job for job in submit_sweep(runs, 2, tmp_path / "s", site=SLURM)}
    attach(jobs["queued"].folder).cancel()
    assert jobs["queued"].state == "cancelled" and jobs["long"].state == "queued"
    closed()
    saved(jobs["long"])
    assert ended(jobs["good"]) == "done"
    assert jobs["long"].state == "running"
    pids = ranks_of(jobs["long"])
    jobs["long"].cancel()
    assert ended(jobs["long"]) == "cancelled" and not living(pids)
    assert ended(jobs["bad"]) in ("done", "failed")
    assert [attach(job.folder).state for job in jobs.values()][::3] == ["cancelled", "done"]


def test_a_task_is_found_again_whose_number_nobody_wrote_down(tmp_path, closed):
    jobs = submit_sweep({"a": SHORT, "b": SHORT}, 1, tmp_path / "s", site=SLURM)
    names = [job.native_id for job in jobs]
    for job in jobs:
        path = job.folder / TICKET
        path.write_text(json.dumps({**json.loads(path.read_text()), "native": ""}))
    again = [attach(job.folder) for job in jobs]
    assert [job.state for job in again] == ["queued"] * 2
    assert [job.native_id for job in again] == names
    again[0].cancel()
    assert [job.state for job in again] == ["cancelled", "queued"]
    again[1].cancel()


def test_a_task_that_never_comes_to_its_run_reports_what_it_printed(tmp_path):
    site = Site(setup=(f"source {tmp_path}/not-there.sh",))
    for job in submit_sweep({"a": SHORT, "b": SHORT}, 1, tmp_path / "s", site=site):
        assert ended(job) == "failed"
        assert f"failed: source {tmp_path}/not-there.sh" in job.why()


def test_of_a_sweep_all_are_submitted_or_none(tmp_path, closed):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "experiment.toml").write_text("")
    with pytest.raises(SpecError, match="holds a run already"):
        submit_sweep({"a": SHORT, "b": SHORT}, 2, tmp_path, site=SLURM)
    assert not (tmp_path / "a").exists() and not list(tmp_path.glob("dlhpc-*"))
    with pytest.raises(SpecError, match="slurm rejects the job"):
        none = Site(partition="no-such")
        submit_sweep({"a": SHORT, "c": SHORT}, 2, tmp_path / "new", site=none)
    assert not (tmp_path / "new").exists()


# Of what a partition has: 4 nodes of 4 cores, at most 3 nodes and 5 minutes for a job.
TOO_MUCH = [
    (5, None, "1min", r"5 ranks on 1 node: partition virtual has 4 nodes of 4 cores; site.ranks_"),
    (17, 4, "1min", r"17 ranks on 5 nodes: .* 4 nodes of 4 cores; at most 16 ranks"),
    (17, None, "1min", r"17 ranks on 1 node: .* at most 16 ranks"),
    (4, 1, "1min", r"4 nodes: a job of partition virtual has 1 to 3"),
    (1, None, "6min", r"time limit of 6 min: partition virtual allows 5 min"),
]


@pytest.fixture
def narrow():
    control("update", "PartitionName=virtual", "MaxNodes=3", "MaxTime=5")
    yield
    control("update", "PartitionName=virtual", "MaxNodes=UNLIMITED", "MaxTime=INFINITE")


@pytest.mark.parametrize("partition", ["", "virtual"])
def test_what_can_never_start_is_refused_and_what_can_is_not(tmp_path, narrow, closed, partition):
    def site(per_node):
        return Site(partition=partition, ranks_per_node=per_node)

    for ranks, per_node, limit, message in TOO_MUCH:
        for hand_in in (
            lambda place, **more: submit(SHORT, folder=place, **more),
            lambda place, **more: submit_sweep({"a": SHORT}, folder=place, **more),
        ):
            with pytest.raises(SpecError, match=message):
                hand_in(tmp_path / "r", ranks=ranks, site=site(per_node), time_limit=limit)
            assert not (tmp_path / "r").exists()
    # The largest that is legal waits for its turn: nodes that are down or busy are no limit.
    control("update", "NodeName=n[2-3]", "State=DRAIN", "Reason=test")
    try:
        job = submit(SHORT, 12, site=site(4), folder=tmp_path / "most", time_limit="5min")
        assert job.state == "queued" and "cancel" not in job.why()
        job.cancel()
    finally:
        control("update", "NodeName=n[2-3]", "State=RESUME")


def test_a_queued_job_that_a_limit_of_later_holds_back_is_explained(tmp_path, closed):
    job = submit(SHORT, 4, site=Site(ranks_per_node=1), folder=tmp_path / "run")
    control("update", "PartitionName=virtual", "MaxNodes=2")
    try:
        closed()
        until(lambda: "PartitionNodeLimit" in job.why(), job)
        assert "more than its queue or account allows" in job.why()
        assert f"dlhpc jobs cancel {job.folder}" in job.why()
    finally:
        control("update", "PartitionName=virtual", "MaxNodes=UNLIMITED")
        job.cancel()


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_run_that_is_resumed_asks_for_what_it_had(tmp_path, ranks):
    """Ranks, scheduler, site and time limit are in the run folder; the experiment has two devices."""
    folder, dlhpc = tmp_path / "run", [sys.executable, "-m", "lib_dlhpc.cli"]
    dump(SHORT, tmp_path / "e.toml")
    first = [str(tmp_path / "e.toml"), "-n", str(ranks), "--to", "slurm", "--out", str(folder)]
    again = ["--resume", str(folder)]
    for words in ([*first, "--partition", "virtual", "--time", "3min"], again):
        subprocess.run([*dlhpc, "submit", *words, "--wait"], check=True, timeout=PATIENCE)
        ticket = read_ticket(folder)
        assert (ticket.ranks, ticket.time_limit) == (ranks, 180)
        assert (ticket.site.scheduler, ticket.site.partition) == ("slurm", "virtual")
        assert json.loads((folder / "result.json").read_text())["ranks"] == ranks


def test_what_slurm_refuses_leaves_nothing(tmp_path):
    with pytest.raises(SpecError, match=r"slurm rejects the job: .*invalid partition"):
        submit(SHORT, 2, site=Site(partition="no-such"), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    start(SHORT, 1, tmp_path / "run").wait()
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(SpecError, match="invalid partition"):
        submit(SHORT, 1, site=Site(partition="no-such"), folder=tmp_path / "run", resume=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_what_is_legal_reaches_slurm_and_the_shell_as_it_is(tmp_path, monkeypatch):
    odd = "a@b%c+d=e:f.g-h_i"
    message, sourced = tmp_path / "message", tmp_path / "told.sh"
    sourced.write_text(f"echo sourced >>{message}\n")
    body = f'() {{ printf "%s|" "$@" >>{message}; echo >>{message}; }}'
    monkeypatch.setenv("BASH_FUNC_module%%", body)
    site = Site(
        account=odd,
        partition="virtual",
        extra={"comment": odd, "nice": "7"},
        modules=("intel/19.1.1", "module use /opt/own"),
        setup=(f"export ODD={odd}", f"source {sourced}"),
    )
    job = submit(SHORT, 1, site=site, folder=tmp_path / odd, time_limit="90s")
    job.wait()
    shown = control("show", "job", "-o", job.native_id)
    assert f"Account={odd} " in shown and f"Comment={odd} " in shown and "Nice=7 " in shown
    assert (
        "TimeLimit=00:02:00" in shown and f"JobName=dlhpc-{read_ticket(job.folder).token}" in shown
    )
    assert message.read_text().splitlines() == ["load|intel/19.1.1|", "use|/opt/own|", "sourced"]
    assert shlex.quote(odd) == odd


@pytest.mark.slow
def test_a_time_limit_ends_a_job_that_then_resumes_to_the_same_bits(tmp_path, overdue):
    job, pids = overdue
    with pytest.raises(JobError, match=r"ended at its time limit of 10 min.*--resume"):
        job.wait()
    assert ended(job) == "out of time" == attach(job.folder).state
    assert "JobState=TIMEOUT" in control("show", "job", "-o", job.native_id)
    assert not living(pids)
    with np.load(job.folder / "snapshot.npz") as file:
        step = int(file["place"][0])
    longer = {"run.epochs": step // 15 + 3}
    result = submit(OFTEN.set(longer), 2, "slurm", SLURM, job.folder, resume=True).wait()
    assert 0 < result["samples"] <= 3 * 1438
    start(SHORT.set(longer), 2, tmp_path / "straight").wait()
    assert weights(job.folder) == weights(tmp_path / "straight")
