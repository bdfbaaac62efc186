"""Law of who watches: it ends when the process it watches is gone, its parent or another, and not before."""

import os
import subprocess
import sys
from select import select

import pytest
from patience import PATIENCE

pytestmark = pytest.mark.skipif(os.name != "posix", reason="no such signals")

WATCHES = (
    "import os, sys, time; from lib_dlhpc.train.watching import end_with;"
    "end_with(int(sys.argv[1]) or os.getppid()); print('there', flush=True); time.sleep(1000)"
)
PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1], '0'])"


def test_it_ends_with_another_process():
    with subprocess.Popen(["sleep", "1000"]) as other:
        words = [sys.executable, "-c", WATCHES, str(other.pid)]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as watcher:
            assert watcher.stdout.readline() == b"there\n"
            assert watcher.poll() is None
            other.kill()
            other.wait(PATIENCE)
            assert watcher.wait(PATIENCE) == 1


def test_it_ends_with_its_parent_even_if_nobody_asks_after_that_one():
    words = [sys.executable, "-c", PARENT, WATCHES]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as parent:
        assert parent.stdout.readline() == b"there\n"
        os.kill(parent.pid, 9)
        # The watcher has the pipe's other end. Nobody has asked after the parent yet.
        assert select([parent.stdout], [], [], PATIENCE)[0] and parent.stdout.read() == b""
