"""Law of who watches: it ends when its parent is gone, and not before."""

import os
import subprocess
import sys
from select import select

import pytest
from patience import PATIENCE

pytestmark = pytest.mark.skipif(os.name != "posix", reason="no such signals")

WATCHES = (
    "import os, sys, time; from lib_dlhpc.lifetime.watching import end_with;"
    "end_with(os.getppid()); print('there', flush=True); time.sleep(1000)"
)
PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


def test_it_ends_with_its_parent_even_if_that_is_not_reaped():
    words = [sys.executable, "-c", PARENT, WATCHES]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as parent:
        assert parent.stdout.readline() == b"there\n"
        os.kill(parent.pid, 9)
        # The watcher has the pipe's other end. Nobody has asked after the parent yet.
        assert select([parent.stdout], [], [], PATIENCE)[0] and parent.stdout.read() == b""
