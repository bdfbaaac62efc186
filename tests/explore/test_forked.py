"""Kernels that are forked from one process: each has its own, and nothing is left of those that end."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request

import psutil
import pytest
from patience import PATIENCE, eventually

from lib_dlhpc.explore.server import forked
from lib_dlhpc.explore.server.serve import imported_modules, served

pytestmark = pytest.mark.skipif(forked.CONTEXT is None, reason="has no fork server")

SAYS = """import os, numpy as np
print("PROCESS", os.getpid(), os.getppid(), "DRAW", np.random.rand(), "MARK", os.environ.get("MARK"), os.getcwd())
MARK = os.environ["MARK"] = "of this visitor"
"""
# Widgets that are made before a kernel is forked have no connection to its page.
IMPORTS = """import importlib, sys
from ipywidgets.widgets import widget
for name in sys.argv[1:]:
    importlib.import_module(name)
print(list(widget._instances.values()), "mpi4py.MPI" in sys.modules, len(__import__("os").listdir("/proc/self/task")))
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A notebook that says who it is."""
    path = tmp_path_factory.mktemp("forked") / "who.ipynb"
    cell = {"id": "a", "cell_type": "code", "metadata": {}, "source": SAYS, "outputs": []}
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    body = {
        "cells": [{**cell, "execution_count": None}],
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path.write_text(json.dumps(body), encoding="utf-8")
    return path


def visit(address):
    """Return (process, its parent, what it drew, the rest) of a visitor's kernel."""
    text = urllib.request.urlopen(address, timeout=PATIENCE).read().decode()
    found = re.search(r"PROCESS (\d+) (\d+) DRAW (\S+) (MARK.*)", text)
    return int(found[1]), int(found[2]), float(found[3]), found[4].strip()


def test_each_visitor_has_a_process_and_a_draw_of_its_own(page):
    with served(page) as (address, server):
        (one, above, first, words), (other, same, second, again) = visit(address), visit(address)
        assert one != other and first != second
        assert above == same and psutil.Process(above).ppid() == server
        assert words == again == f"MARK None {page.parent}"  # nothing of the visitor before
        os.kill(one, 9)
        assert visit(address)[0] not in (one, other)
    for ended in (above, other):
        eventually(lambda ended=ended: not psutil.pid_exists(ended), "the end of its processes")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_ends_without_a_complaint(page, number):
    command = [sys.executable, "-m", "lib_dlhpc.explore.server.serve", str(page), "--no-browser"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, "--preheat=0"], **pipes) as server:
        address = re.search(r"http://\S+", server.stdout.readline())[0]
        visit(address)
        server.send_signal(number)
        assert "Traceback" not in server.communicate(timeout=PATIENCE)[1]


def test_what_kernels_share_has_no_widget_no_mpi_and_no_thread(repository):
    names = imported_modules(repository / "modules")
    assert len(names) >= 10
    command = [sys.executable, "-c", IMPORTS, *forked.SHARED, *names]
    one_thread = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command, capture_output=True, text=True, env=one_thread, check=True)
    assert ran.stdout.split() == ["[]", "False", "1"]
