"""The configuration for a JupyterHub names what the command line, the class and the door know."""

import runpy
import shlex
import sys
from types import SimpleNamespace

import pytest
from traitlets.config import Config

from lib_dlhpc.classroom import sending
from lib_dlhpc.cli import parser_of
from lib_dlhpc.explore.server.classroom import TEACHERS


@pytest.fixture
def config(repository, monkeypatch):
    """What a hub reads, without one."""
    hub = SimpleNamespace(Service=SimpleNamespace(timeout=30))
    monkeypatch.setitem(sys.modules, "jupyterhub", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "jupyterhub.services", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "jupyterhub.services.service", hub)
    monkeypatch.setenv("DLHPC_HUB_COMMAND", "/opt/course/bin/dlhpc")
    monkeypatch.setenv("DLHPC_HUB_FOLDER", "/srv/a class")
    monkeypatch.setenv("DLHPC_HUB_TEACHERS", "eva carl")
    found = Config()
    file = repository / "instructor_notes" / "hub" / "dlhpc_hub.py"
    runpy.run_path(str(file), {"get_config": lambda: found})
    return found


def test_the_service_is_a_command_of_ours(config):
    (service,) = config.JupyterHub.services._extend or config.JupyterHub.services._append
    program, *words = service["command"]
    options = parser_of("class").parse_args(words)
    assert program == "/opt/course/bin/dlhpc" and shlex.join(words).startswith("class serve --hub")
    assert options.hub and options.no_browser and str(options.folder) == "/srv/a class"
    assert service["url"].startswith("http://127.0.0.1:")


def test_learners_servers_find_the_class_and_teachers_see_the_board(config):
    added = config.Spawner.environment._update[sending.OF_HUB]
    spawner = SimpleNamespace(hub=SimpleNamespace(base_url="/deep/learning/hub/"))
    assert added(spawner) == "http://127.0.0.1:8765/deep/learning/services/dlhpc/"
    assert config.JupyterHub.load_groups._update == {TEACHERS: {"users": ["eva", "carl"]}}
