"""A class behind a real JupyterHub: who comes is who the hub says, on the pages, in JupyterLab and on the board."""

import os
import shutil
import stat
import subprocess
import sys
from urllib.error import HTTPError

import psutil
import pytest
from class_room import free_port
from hub_visitors import HubVisitor
from patience import PATIENCE, eventually

from lib_dlhpc.classroom import accounts, sending
from lib_dlhpc.classroom.learner import HOME, identity
from lib_dlhpc.explore.blocks import built
from lib_dlhpc.explore.front.page import front_page

PROXY = shutil.which("configurable-http-proxy")
PAGE = "voila/render/12_train_a_language_model.ipynb"
CONFIG = """
c = get_config()
c.JupyterHub.bind_url = "http://127.0.0.1:{ports[0]}/lab/"
c.JupyterHub.hub_port = {ports[1]}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{ports[2]}"
c.JupyterHub.db_url = "sqlite:///{work}/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{work}/secret"
c.JupyterHub.authenticator_class = "dummy"  # anybody, with any password
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = "simple"  # all as this user, each with a home of their own
c.SimpleLocalProcessSpawner.home_dir_template = "{work}/homes/{{username}}"
c.Spawner.cmd = ["{python}", "-m", "jupyterhub.singleuser", "--allow-root"]
load_subconfig("{shipped}")
"""
pytestmark = pytest.mark.skipif(
    not PROXY, reason="no configurable-http-proxy: npm install --global configurable-http-proxy"
)


@pytest.fixture(scope="module")
def hub(tmp_path_factory, repository):
    """The address of a hub, and the folder of its class."""
    built.drawings()
    front_page()  # else the class draws it while the hub waits
    work, python = tmp_path_factory.mktemp("hub"), sys.executable
    command, ports = work / "dlhpc", [free_port() for _ in range(4)]
    command.write_text(f'#!/bin/sh\nexec {python} -m lib_dlhpc.cli "$@"\n')
    command.chmod(0o755)
    shipped = repository / "instructor_notes" / "hub" / "dlhpc_hub.py"
    text = CONFIG.format(ports=ports, work=work, python=python, shipped=shipped)
    (work / "jupyterhub_config.py").write_text(text)
    settings = {
        "DLHPC_HUB_FOLDER": str(work / "class"),
        "DLHPC_HUB_PORT": str(ports[3]),
        "DLHPC_HUB_COMMAND": str(command),
        "DLHPC_HUB_TEACHERS": "prof",
    }
    with open(work / "log", "w") as log:
        process = subprocess.Popen(
            [python, "-m", "jupyterhub"],
            cwd=work,
            env=os.environ | settings,
            stdout=log,
            stderr=log,
        )
    address = f"http://127.0.0.1:{ports[0]}/lab/"
    try:
        eventually(lambda: answers(address), lambda: (work / "log").read_text()[-3000:])
        yield address, work / "class"
    finally:
        process.terminate()
        process.wait(PATIENCE)


def answers(address):
    """Whether the class's pages lead to the hub's login; it fails if they open without."""
    try:
        found = HubVisitor(address, "", 0, 0).open(f"{address}services/dlhpc/")
    except (HTTPError, OSError):
        return False
    assert "/hub/login" in found.url
    return True


def refused(visitor, path):
    with pytest.raises(HTTPError) as error:
        visitor.asked(path)
    return error.value.code


@pytest.fixture(scope="module")
def room(hub):
    """Three learners who have answered twice on a page, by their names."""
    found = {}
    for name in ("anna", "bert", "Carl O'Neil"):
        learner = HubVisitor(hub[0], name, 2, 0.05, PAGE)
        learner.log_in()
        learner.run()
        assert learner.acknowledged == ["1000", "1001"] and not learner.lost
        found[name.lower()] = learner
    return found


def test_nobody_comes_in_without_the_hub(hub):
    stranger = HubVisitor(hub[0], "", 0, 0)
    for path in ("api/kernels/00000000-0000-0000-0000-000000000000", "class/api/me"):
        for header in (("Sec-Fetch-Mode", "cors"), ("Authorization", "token made-up")):
            stranger.opener.addheaders = [("Sec-Fetch-Mode", "cors"), header]
            assert refused(stranger, path) == 403


def test_learners_are_on_the_board_by_the_names_of_their_accounts(hub, room):
    teacher = HubVisitor(hub[0], "prof", 0, 0)
    teacher.log_in()

    def names():
        return {each["label"] for each in teacher.asked("class/api/board?named=1")["learners"]}

    eventually(lambda: names() == set(room))
    for learner in room.values():
        assert refused(learner, "class/api/board") == 403


def test_a_learner_is_the_same_in_another_browser(hub, room):
    again = HubVisitor(hub[0], "bert", 0, 0)
    again.log_in()
    assert again.asked("class/api/me") == {"joined": True, "name": "bert"}
    cookie = again.cookie("dlhpc-learner", "/lab/services/dlhpc/")
    assert identity(cookie) == room["bert"].learner


def test_jupyterlab_is_the_same_learner(hub, room, tmp_path):
    assert "jupyter-config-data" in room["anna"].spawn()
    (server,) = [
        each.environ()
        for each in psutil.process_iter()
        if "jupyterhub.singleuser" in " ".join(each.cmdline()) and "anna" in each.environ().values()
    ]
    known = {
        k: v for k, v in server.items() if k.startswith(("JUPYTERHUB_", "DLHPC_", "PATH", "PYTHON"))
    }
    home = known | {HOME: str(tmp_path / "learner"), "HOME": str(tmp_path)}
    for words in (["join", "--json"], ["send"], ["forget"]):
        command = [sys.executable, "-m", "lib_dlhpc.cli", "class", *words]
        done = subprocess.run(command, env=home, capture_output=True, text=True, check=True)
        if "join" in words:
            assert room["anna"].learner in done.stdout
    assert room["anna"].asked("class/api/me")["joined"] is False
    assert identity(accounts.token(hub[1], "anna")) != room["anna"].learner


def test_the_folder_of_the_class_is_its_users_alone(hub, room):
    assert stat.S_IMODE(hub[1].stat().st_mode) == 0o700
    assert sending.of_hub() == ""  # this process is no learner's server
