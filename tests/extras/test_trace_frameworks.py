"""A step traced here, by the frameworks that are installed, is analyzed like the recorded ones."""

import socket
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from patience import PATIENCE

from lib_dlhpc.timeline.formats import read
from lib_dlhpc.timeline.steps import step_terms

FOLDERS = {"torch": "pytorch", "jax": "jax"}  # that make_<framework>.py writes


@pytest.mark.parametrize("framework", [name for name in FOLDERS if find_spec(name)])
def test_a_live_trace_has_the_steps_and_bytes_of_the_recorded_one(repository, tmp_path, framework):
    make = repository / "tests" / "data" / "frameworks" / f"make_{framework}.py"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    runs = [
        subprocess.Popen([sys.executable, make, str(rank), str(port)], cwd=tmp_path)
        for rank in range(2)
    ]
    try:
        assert [run.wait(timeout=PATIENCE) for run in runs] == [0, 0]
    finally:
        for run in runs:
            run.kill()
    found = step_terms(read(tmp_path / FOLDERS[framework]))
    (exchange,) = found.exchanges
    assert (exchange.name, exchange.bytes, exchange.calls) == ("allreduce", 437_544, 1)
    assert found.steps == 6
    assert np.all(found.terms["compute"] > 0) and np.all(found.terms["input wait"] > 0)
