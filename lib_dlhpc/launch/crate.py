"""A run folder as an RO-Crate: ro-crate-metadata.json says what each file is, and how the run came about.

Source: RO-Crate Metadata Specification 1.2, https://w3id.org/ro/crate/1.2: Root Data Entity, Data Entities, Provenance.
"""

import hashlib
import json
import mimetypes
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lib_dlhpc import __version__
from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch import folder as run_folder
from lib_dlhpc.launch.folder import LOG, RESULT, STATUS
from lib_dlhpc.lifetime.files import write_text
from lib_dlhpc.spec.experiment import Experiment, load
from lib_dlhpc.spec.host import versions

METADATA = "ro-crate-metadata.json"
SPECIFICATION = "https://w3id.org/ro/crate/1.2"
EXPERIMENT = "experiment.toml"
FILES = {  # what may be published of a run folder; its job ticket, with a token, is not described
    EXPERIMENT: "the experiment: model, data, machine, strategy, training",
    STATUS: "how the run ended, and when",
    RESULT: "loss, accuracy, seconds, and the seconds of a step by cause",
    "metrics.jsonl": "loss and accuracy during the run, one JSON object per line",
    "timeline.npz": "the trace of all ranks, as numpy arrays; dlhpc trace reads it",
    "snapshot.npz": "the last checkpoint: weights and optimizer state, as numpy arrays",
    "snapshots.json": "where the versioned checkpoints are",
    LOG: "output of the ranks",
}
SNAPSHOTS = "snapshots/"
UNKNOWN = "No license is stated: ask the owner of the run before using its files."
ENDS = {"done": "CompletedActionStatus"}  # of schema.org; any other end has failed
TYPES = {".toml": "application/toml", ".jsonl": "application/jsonl", ".npz": "application/zip"}

Entity = dict[str, Any]


def write_crate(folder: Path, license: str = "", name: str = "") -> Path:
    """Describe an ended run in the ro-crate-metadata.json of its folder; return its path.

    license: the URL of a license, or a text; without one the crate says that none is stated. name: of the crate.
    Raises SpecError for a folder without a run, or whose run has not ended.
    """
    table = crate(folder, license, name)
    path = folder / METADATA
    try:
        write_text(path, json.dumps(table, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}.") from None
    return path


def crate(folder: Path, license: str = "", name: str = "") -> Entity:
    """Return the description of an ended run as JSON-LD; arguments as in `write_crate`."""
    if not (folder / EXPERIMENT).is_file():
        raise SpecError(f"{folder}: holds no run: {folder / EXPERIMENT} is not there.")
    status = run_folder.run_status(folder)
    if (state := status.get("state", "unknown")) in ("unknown", "queued", "running"):
        raise SpecError(f"{folder}: its run has not ended; its state is {state}.")
    experiment, parts = load(folder / EXPERIMENT), list(_parts(folder))
    software = list(_software())
    root = _root(folder, experiment, license, name)
    root["hasPart"] = [_to(part) for part in parts]
    run = _run(status, experiment, parts, software[0])
    root["mentions"] = _to(run)
    machine = {
        "@id": "#machine",
        "@type": "IndividualProduct",
        "name": experiment.machine.name or "a machine",
        "description": f"The machine of the experiment, as {EXPERIMENT} describes it.",
    }
    graph = [_descriptor(), root, *parts, run, machine, *software]
    if isinstance(root["license"], dict):
        graph.append({**root["license"], "@type": "CreativeWork", "name": license})
        graph[-1]["description"] = "The license of the files of this run."
    return {"@context": f"{SPECIFICATION}/context", "@graph": graph}


def _descriptor() -> Entity:
    return {
        "@id": METADATA,
        "@type": "CreativeWork",
        "about": {"@id": "./"},
        "conformsTo": {"@id": SPECIFICATION},
    }


def _root(folder: Path, experiment: Experiment, license: str, name: str) -> Entity:
    model, machine = experiment.model.name or "a model", experiment.machine.name or "a machine"
    result = run_folder.read(folder / RESULT)
    words = f"Training of {model} on {experiment.dataset.name or 'data'}, described for {machine}"
    if "ranks" in result:
        words += f", run on {result['ranks']} MPI ranks"
    if result.get("accuracy") is not None:
        words += f", to an accuracy of {result['accuracy']:.4f} on the training data"
    linked = license.startswith(("https://", "http://"))
    return {
        "@id": "./",
        "@type": "Dataset",
        "name": name or f"Training run of {model}: {folder.resolve().name}",
        "description": f"{words}.",
        "datePublished": datetime.now(UTC).date().isoformat(),
        "license": {"@id": license} if linked else license or UNKNOWN,
    }


def _parts(folder: Path) -> Iterator[Entity]:
    """Yield the files that are there, with size and SHA-256, and the folder of versions."""
    errors = {
        path.name: "an error of a rank, and where it happened"
        for path in sorted(folder.glob("error-*.json"))
    }
    for name, description in (FILES | errors).items():
        path = folder / name
        if path.is_file():
            with open(path, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            yield {
                "@id": name,
                "@type": "File",
                "name": name,
                "description": description,
                "contentSize": str(path.stat().st_size),
                "encodingFormat": TYPES.get(path.suffix)
                or mimetypes.guess_type(name)[0]
                or "application/octet-stream",
                "sha256": digest,
            }
    if (folder / SNAPSHOTS).is_dir():
        described = "versions of the state of the run; dlhpc snapshots reads them"
        yield {"@id": SNAPSHOTS, "@type": "Dataset", "name": "snapshots", "description": described}


def _run(
    status: Mapping[str, Any], experiment: Experiment, parts: list[Entity], software: Entity
) -> Entity:
    """Return the run as an action: the experiment is its object, all other files are its result."""
    ended = ENDS.get(str(status["state"]), "FailedActionStatus")
    found = {
        "@id": "#run",
        "@type": "CreateAction",
        "name": f"dlhpc run of {experiment.model.name or 'a model'}",
        "object": {"@id": EXPERIMENT},
        "result": [_to(part) for part in parts if part["@id"] != EXPERIMENT],
        "instrument": [_to(software), {"@id": "#machine"}],
        "actionStatus": {"@id": f"http://schema.org/{ended}"},
    }
    if "time" in status:
        found["endTime"] = datetime.fromtimestamp(status["time"], UTC).isoformat()
    if ended != ENDS["done"]:
        found["error"] = str(status.get("reason") or status["state"])
    return found


def _software() -> Iterator[Entity]:
    """Yield this package, which requires the others; the versions are those of where the crate is written."""
    packages = versions()
    where = "the version installed where this description was written"
    yield {
        "@id": "#lib_dlhpc",
        "@type": "SoftwareApplication",
        "name": "lib_dlhpc",
        "version": __version__,
        "description": where,
        "softwareRequirements": [{"@id": f"#{name}"} for name in packages],
    }
    for name, version in packages.items():
        yield {
            "@id": f"#{name}",
            "@type": "SoftwareApplication",
            "name": name,
            "version": version,
            "description": where,
        }


def _to(entity: Entity) -> Entity:
    return {"@id": entity["@id"]}
