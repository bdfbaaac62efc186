"""An RO-Crate of a run folder: the structure that the specification requires, and files as they are.

The requirements are those of RO-Crate 1.2, sections Root Data Entity, Data Entities and Provenance.
"""

import hashlib
import json
from datetime import date, datetime

import pytest

from lib_dlhpc.cli import main
from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch.crate import METADATA, UNKNOWN, write_crate
from lib_dlhpc.spec.experiment import dump, load

CC = "https://creativecommons.org/licenses/by/4.0/"


@pytest.fixture
def run(tmp_path, repository):
    """A folder such as a run leaves."""
    folder = tmp_path / "run"
    folder.mkdir()
    dump(load(repository / "labs/experiments/digits.toml"), folder / "experiment.toml")
    status(folder, state="done", time=1_700_000_000.0, ranks=2)
    (folder / "result.json").write_text(json.dumps({"ranks": 2, "accuracy": 0.5}))
    (folder / "metrics.jsonl").write_text('{"step": 1}\n')
    (folder / "log.txt").write_text("")
    (folder / "timeline.npz").write_bytes(b"arrays")
    (folder / "job.json").write_text('{"token": "secret"}')
    return folder


def status(folder, **table):
    (folder / "status.json").write_text(json.dumps(table))


def described(folder, **options):
    """Write and read a crate; return its entities by @id."""
    table = json.loads(write_crate(folder, **options).read_text("utf-8"))
    assert table["@context"] == "https://w3id.org/ro/crate/1.2/context"
    ids = [entity["@id"] for entity in table["@graph"]]
    assert len(set(ids)) == len(ids)
    return dict(zip(ids, table["@graph"], strict=True))


def references(value):
    if isinstance(value, dict):
        yield value["@id"]
    for each in value if isinstance(value, list) else ():
        yield from references(each)


def test_the_structure_is_what_the_specification_requires(run):
    entities = described(run, license=CC)
    descriptor = entities[METADATA]
    assert descriptor["@type"] == "CreativeWork" and descriptor["about"] == {"@id": "./"}
    assert descriptor["conformsTo"] == {"@id": "https://w3id.org/ro/crate/1.2"}
    root = entities["./"]
    assert root["@type"] == "Dataset" and root["name"] and root["description"]
    assert date.fromisoformat(root["datePublished"])
    assert entities[root["license"]["@id"]]["name"]
    for entity in entities.values():
        assert entity["@type"] and (entity.get("name") or entity is descriptor)
        for name, value in entity.items():
            outside = name in ("conformsTo", "actionStatus")
            assert outside or all(each in entities for each in references(value)), name


def test_every_file_has_its_size_and_digest_and_none_is_private(run):
    entities = described(run)
    files = {each["@id"] for each in entities["./"]["hasPart"]}
    assert files == {
        "experiment.toml",
        "status.json",
        "result.json",
        "metrics.jsonl",
        "log.txt",
        "timeline.npz",
    }
    for name in files:
        content = (run / name).read_bytes()
        assert entities[name]["@type"] == "File"
        assert entities[name]["sha256"] == hashlib.sha256(content).hexdigest()
        assert entities[name]["contentSize"] == str(len(content))
    assert "secret" not in (run / METADATA).read_text()


def test_the_run_is_an_action_from_the_experiment_to_its_results(run):
    entities = described(run)
    action = entities["#run"]
    assert action["object"] == {"@id": "experiment.toml"}
    assert {"@id": "result.json"} in action["result"]
    assert action["actionStatus"] == {"@id": "http://schema.org/CompletedActionStatus"}
    assert datetime.fromisoformat(action["endTime"]).timestamp() == 1_700_000_000
    assert entities["#machine"]["name"] == load(run / "experiment.toml").machine.name
    software = entities["#lib_dlhpc"]
    assert software["version"] and {"@id": "#numpy"} in software["softwareRequirements"]


def test_a_failed_run_says_why(run):
    status(run, state="failed", time=1.0, reason="rank 1: MemoryError")
    (run / "error-1.json").write_text("{}")
    entities = described(run)
    assert entities["#run"]["error"] == "rank 1: MemoryError"
    assert entities["#run"]["actionStatus"] == {"@id": "http://schema.org/FailedActionStatus"}
    assert "error-1.json" in entities


def test_a_license_is_stated_only_where_it_is_known(run):
    assert described(run)["./"]["license"] == UNKNOWN
    assert described(run, license="for this class only")["./"]["license"] == "for this class only"
    assert described(run, name="my run")["./"]["name"] == "my run"


def test_a_run_in_progress_and_a_folder_without_one_are_refused(run, tmp_path):
    status(run, state="queued")
    with pytest.raises(SpecError, match="has not ended"):
        write_crate(run)
    with pytest.raises(SpecError, match="holds no run"):
        write_crate(tmp_path)
    assert not (run / METADATA).exists()


def test_the_command(run, capsys):
    assert main(["export", "crate", str(run), "--license", CC, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"written": str(run / METADATA)}
    assert main(["export", "crate", "nowhere"]) == 2
