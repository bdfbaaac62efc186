"""The same network traced here in PyTorch and JAX, on two processes each: one analysis, side by side."""

import json
import random
import shutil
import socket
import sys
import time
from contextlib import suppress

import numpy as np
import psutil
import pytest
from patience import PATIENCE

from lib_dlhpc.cli import main
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.experiment import load
from lib_dlhpc.timeline.formats import read
from lib_dlhpc.timeline.steps import step_terms

FOLDERS = {"torch": "pytorch", "jax": "jax"}  # that make_<framework>.py writes
STARTS = 32_768  # ports from here on are given to connections
BYTES = 437_544  # of the gradients of the network


@pytest.fixture(scope="module")
def traced(repository, tmp_path_factory):
    """A folder with both traces, and the profiles that they were trimmed from."""
    folder = tmp_path_factory.mktemp("traced")
    for framework in FOLDERS:
        make = repository / "tests" / "data" / "frameworks" / f"make_{framework}.py"
        record(make, folder, free_port())
    return folder


def free_port():
    """A port that no connection is given meanwhile."""
    for port in random.sample(range(10_000, STARTS), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port")


def record(make, folder, port):
    """Run both processes. When one fails, the other waits for it: end it, and show what the first one printed."""
    logs = [folder / f"{make.stem}.{rank}.log" for rank in range(2)]
    runs = []
    try:
        for rank, log in enumerate(logs):
            with open(log, "wb") as file:
                command = [sys.executable, make, str(rank), str(port)]
                runs.append(psutil.Popen(command, cwd=folder, stdout=file, stderr=file))
        spent, since = 0.0, time.monotonic()
        while (ends := [run.poll() for run in runs]) != [0, 0]:
            failed = [log.read_text() for log, end in zip(logs, ends, strict=True) if end]
            assert not failed, failed[0]
            now = sum(cpu_seconds(run) for run in runs)
            if now > spent + 0.5:  # a busy machine is slow, but it gets on
                spent, since = now, time.monotonic()
            assert time.monotonic() - since < PATIENCE, [log.read_text() for log in logs]
            time.sleep(0.2)
    finally:
        for run in runs:
            with suppress(psutil.NoSuchProcess):
                run.kill()
            run.wait()


def cpu_seconds(process):
    """What a process has used so far; 0 after its end."""
    try:
        return sum(process.cpu_times()[:2])
    except psutil.NoSuchProcess:
        return 0.0


@pytest.mark.parametrize("framework", FOLDERS.values())
def test_a_live_trace_has_the_steps_and_bytes_of_the_recorded_one(traced, repository, framework):
    found = step_terms(read(traced / framework))
    recorded = step_terms(read(repository / "tests" / "data" / "frameworks" / framework))
    for each in (found, recorded):
        (exchange,) = each.exchanges
        assert (exchange.name, exchange.bytes, exchange.calls) == ("allreduce", BYTES, 1)
        assert (each.steps, each.ranks, each.found) == (6, 2, "annotations")
        assert np.all(each.terms["compute"] > 0) and np.all(each.terms["input wait"] > 0)
        np.testing.assert_allclose(sum(each.terms.values()), each.seconds)
    assert found.terms.keys() == recorded.terms.keys()


def test_one_command_analyzes_both_side_by_side(traced, monkeypatch, capsys):
    monkeypatch.chdir(traced)
    folders = FOLDERS.values()
    assert main(["trace", "steps", *folders, "--json"]) == 0
    torch, jax = json.loads(capsys.readouterr().out).values()
    same = ("ranks", "steps", "found", "bytes")
    assert [torch[name] for name in same] == [jax[name] for name in same]
    assert torch["bytes"] == BYTES and torch.keys() == jax.keys()
    assert torch["terms"].keys() == jax["terms"].keys()
    assert main(["trace", "steps", *folders]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[-2:] == [*FOLDERS.values()]
    assert any(line.split() == ["bytes", "exchanged", "438", "kB", "438", "kB"] for line in lines)


@pytest.mark.parametrize("framework", FOLDERS.values())
def test_both_are_compared_with_the_prediction_of_one_experiment(
    traced, repository, framework, capsys, tmp_path
):
    network = repository / "tests" / "data" / "frameworks" / "mlp.toml"
    out = tmp_path / "calibrated.toml"
    command = ["trace", "calibrate", str(traced / framework), str(network), "--out", str(out)]
    assert main([*command, "--json"]) == 0
    terms = json.loads(capsys.readouterr().out)["terms"]
    compute = step_terms(read(traced / framework)).terms
    mean = compute["compute"].mean() + compute["idle"].mean()
    assert float(predict(load(out)).compute) == pytest.approx(mean, rel=1e-6)
    assert {name: each["traced"] > 0 for name, each in terms.items()} == dict.fromkeys(terms, True)


@pytest.mark.parametrize("framework", FOLDERS.values())
def test_whole_profiles_as_they_were_recorded_have_the_same_terms(traced, framework, tmp_path):
    whole = {
        "pytorch": [traced / f"profile{rank}.json" for rank in range(2)],
        "jax": [next((traced / f"profile{rank}").rglob("*.trace.json.gz")) for rank in range(2)],
    }
    for rank, path in enumerate(whole[framework]):
        suffix = ".trace.json.gz" if framework == "jax" else ".json"
        shutil.copy(path, tmp_path / f"rank{rank}{suffix}")
    if framework == "jax":
        shutil.copy(traced / "jax" / "step.hlo.txt", tmp_path)
    one, two = step_terms(read(traced / framework)), step_terms(read(tmp_path))
    clock = 1e-7  # s, to which its times are rounded
    np.testing.assert_allclose(one.seconds, two.seconds, atol=clock)
    for name, seconds in one.terms.items():
        np.testing.assert_allclose(seconds, two.terms[name], atol=clock)
    (exchange,), (of_whole,) = one.exchanges, two.exchanges
    assert exchange._replace(seconds=0.0) == of_whole._replace(seconds=0.0)
    assert exchange.seconds == pytest.approx(of_whole.seconds, abs=clock)
