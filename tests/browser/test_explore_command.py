"""dlhpc explore, as `make explore` runs it: one address, the front door behind it, nothing left afterwards."""

import re
import signal
import subprocess
import sys
import urllib.request

import psutil
import pytest
from patience import PATIENCE

pytestmark = pytest.mark.browser


def test_it_prints_an_address_shows_the_front_door_and_ends_cleanly(
    open_page, eventually, tmp_path
):
    command = [sys.executable, "-m", "lib_dlhpc.cli", "explore", "--no-browser"]
    errors = tmp_path / "errors"
    with errors.open("w") as stream:
        server = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stream, text=True, start_new_session=True
        )
    try:
        line = server.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/\S*", line).group(0)
        page = open_page(address)
        eventually(lambda: page.title().startswith("What-if lab"))
        page.get_by_role("link", name="Plan", exact=True).first.click()
        page.wait_for_selector(".dlhpc-plot[data-serial] svg")
        eventually(lambda: page.title() == "What-if explorer")
        page.get_by_role("link", name="What-if lab").click()
        page.get_by_text("Which algorithm, when?").wait_for()
        children = psutil.Process(server.pid).children(recursive=True)
        assert children
        page.close()  # or it asks for its kernel after the server's end, and complains
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=PATIENCE) == 0
        eventually(lambda: not any(child.is_running() for child in children))
        with pytest.raises(OSError):
            urllib.request.urlopen(address, timeout=PATIENCE)
        assert "ping" not in errors.read_text(), "of settings that the reader did not make"
    finally:
        server.kill()
        server.wait()
