"""The reader of the RO-Crate community opens a crate of ours, and finds its files and the run."""

import json

from rocrate.rocrate import ROCrate

from lib_dlhpc.launch.crate import write_crate
from lib_dlhpc.spec.experiment import dump, load


def test_rocrate_opens_it(tmp_path, repository):
    folder = tmp_path / "run"
    folder.mkdir()
    dump(load(repository / "labs/experiments/digits.toml"), folder / "experiment.toml")
    (folder / "status.json").write_text(json.dumps({"state": "done", "time": 1.0}))
    (folder / "log.txt").write_text("")
    write_crate(folder, "https://creativecommons.org/licenses/by/4.0/")
    crate = ROCrate(folder)
    assert crate.version == "1.2"
    assert {each.id for each in crate.data_entities} == {
        "experiment.toml",
        "status.json",
        "log.txt",
    }
    assert crate.license.id == "https://creativecommons.org/licenses/by/4.0/"
    run = crate.dereference("#run")
    assert run.type == "CreateAction" and run["object"].id == "experiment.toml"
    assert crate.dereference("#lib_dlhpc")["softwareRequirements"]
    crate.write(tmp_path / "copy")
    copy = ROCrate(tmp_path / "copy")
    assert {each.id for each in copy.data_entities} == {each.id for each in crate.data_entities}
