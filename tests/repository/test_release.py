"""What a release needs is in step: one version everywhere, one lock, one way to run the tests."""

import json
import re
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement

from lib_dlhpc import __version__


def read(path):
    return yaml.safe_load(path.read_text("utf-8"))


@pytest.fixture(scope="module")
def project(repository):
    return tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.fixture(scope="module")
def recipe(repository):
    return read(repository / "conda" / "recipe.yaml")


def test_there_is_one_version(repository, project, recipe):
    citation = read(repository / "CITATION.cff")
    assert {project["version"], str(citation["version"]), recipe["context"]["version"]} == {
        __version__
    }


def test_the_conda_recipe_needs_what_the_core_needs(project, recipe):
    wanted = {line.replace(" ", "") for line in recipe["requirements"]["run"]}
    assert wanted == {*project["dependencies"], f"python{project['requires-python']}"}
    (script,) = recipe["build"]["python"]["entry_points"]
    assert script == f"dlhpc = {project['scripts']['dlhpc']}"


@pytest.mark.parametrize("name", ["Dockerfile", "lib_dlhpc.def"])
def test_a_container_installs_the_lock(repository, name):
    text = (repository / "containers" / name).read_text("utf-8")
    assert "--no-deps --require-hashes -r requirements.lock" in text
    assert "Not built here" in text
    (base,) = re.findall(r"^(?:FROM|From:) python:(\d\.\d+)-slim$", text, re.MULTILINE)
    conda = read(repository / "environment.yml")["dependencies"]
    assert f"python={base}" in conda


def test_the_workflow_runs_what_everybody_runs(repository, project):
    jobs = read(repository / ".github" / "workflows" / "ci.yml")["jobs"]
    job, goals = jobs["test"], (repository / "Makefile").read_text("utf-8")
    assert job["steps"][-1] == {"run": ".ci/run"}
    for name, goal in (("docs", "docs"), ("extras", "test-extras")):
        assert {"run": f"make {goal}"} in jobs[name]["steps"]
        assert re.search(rf"^{goal}: ", goals, re.MULTILINE)
    # Debian 12, where .ci/run is tested: on Ubuntu the package chromium is missing.
    assert job["container"]["image"] == "python:${{ matrix.python }}-bookworm"
    for python in job["strategy"]["matrix"]["python"]:
        assert Requirement(f"python{project['requires-python']}").specifier.contains(python)


def test_the_site_is_published_from_the_folder_that_make_docs_writes(repository):
    (job,) = read(repository / ".github" / "workflows" / "pages.yml")["jobs"].values()
    assert {"run": "make docs"} in job["steps"]
    (folder,) = (step["with"]["path"] for step in job["steps"] if "path" in step.get("with", {}))
    assert f"$(or $(ARGS),{folder.rstrip('/')})" in (repository / "Makefile").read_text("utf-8")


def test_a_codespace_runs_what_everybody_runs_and_admits_its_own_address(repository):
    text = (repository / ".devcontainer" / "devcontainer.json").read_text("utf-8")
    settings = json.loads(text)
    assert settings["postCreateCommand"] == "make install"
    started = settings["postAttachCommand"]
    assert "make explore ARGS=" in started and "--allow-host ${CODESPACE_NAME" in started
    assert re.findall(r"--port (\d+)", started) == [*map(str, settings["forwardPorts"])]


def test_a_release_is_published_without_a_stored_secret(repository):
    text = (repository / ".github" / "workflows" / "release.yml").read_text("utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["needs"] == "build"
    assert "secrets." not in text and "password" not in text


def test_issue_forms_are_complete(repository):
    forms = [*(repository / ".github" / "ISSUE_TEMPLATE").glob("*.yml")]
    assert forms
    for form in map(read, forms):
        assert {"name", "description", "body"} == set(form)
        identities = [field["id"] for field in form["body"]]
        assert len(set(identities)) == len(identities)
        assert all(field["attributes"]["label"] for field in form["body"])
