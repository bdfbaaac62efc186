"""The profile on the FanStore project's slides: what a run asks of the file system, and where its eight hours go.

They count the calls of a training run: ResNet-50 with Keras, TensorFlow and Horovod on 16 nodes of
four GTX 1080 Ti, 90 epochs of ImageNet in 2,002 directories. The counts are arithmetic and come out exactly.
The eight hours do not: neither the load that others put on the file system nor the speed of that program
is given. `profile` says how long the run is at least, limit by limit, and `Profile.implied` what the
eight hours mean for each of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lib_dlhpc.costs.storage_reads import data_set_bytes, stored_bytes
from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction.step import predict
from lib_dlhpc.prediction.storage.io import reading
from lib_dlhpc.spec.dataset import Dataset, read_dataset
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import storage_tier

# Slides of the FanStore project.
HOURS = 8.0  # "~ 8 hour duration"
READ_CALLS = 180e6  # "~180M read() operations"
FILES_OPENED = 117e6  # "117M stat(), open(), close() operations"
NODE_STORAGE = 60e9  # B of local SSD in each node
TABLE = ("imagenet", "neural-image", "reactor-status")  # their three data sets


@dataclass(frozen=True)
class Profile:
    """What a run asks of the file system: counts over the whole run, concurrent clients, seconds. May be arrays."""

    listings: Any  # stat and readdir at the start: every device, every directory
    listers: Any  # devices that do so at the same time
    opened: Any  # times that a file is found, opened and closed again: stat, open, close
    reads: Any  # read() calls
    readers: Any  # that do so at the same time
    bytes: Any  # B read
    samples: Any
    file_size: Any  # mean B of a file
    # Lower bounds in s by each limit alone: compute, start, each of reading().
    seconds: Mapping[str, Any]
    time: Any  # s from start to end, predicted

    def implied(self, time: Any) -> dict[str, Any]:
        """Return what a run of `time` s means: samples/s, operations/s, reads/s, B/s, s per file for each reader."""
        return {
            "samples/s": self.samples / time,
            "operations/s": 3 * self.opened / time,  # a stat, an open and a close
            "reads/s": self.reads / time,
            "bytes/s": self.bytes / time,
            "seconds per file": self.readers * time / self.opened,
        }


def slides_run(nodes: Any = 16, access: str = "stream") -> Experiment:
    """Return the run of the slides: 4 GPUs per node and 4 readers per GPU; `access` "cooperative" is FanStore.

    180 M reads of 117 M files make 1.54 a file. The batch, not given, is 64 a GPU.
    """
    local = {} if access == "stream" else {"local": "ssd"}
    return Experiment(
        model="resnet50",
        dataset="imagenet",
        machine="fanstore-gpu",
        strategy={"nodes": nodes, "batch": 64, "allreduce": "hierarchical"},
        storage={
            "tier": "lustre",
            "access": access,
            **local,
            "workers": 4,
            "reads_per_file": READ_CALLS / FILES_OPENED,
        },
        run={"epochs": 90},
    )


def skylake_run(nodes: Any = 512, access: str = "cooperative") -> Experiment:
    """Return ResNet-50 on Stampede2's Skylake nodes, on FanStore or ("stream") on the shared file system."""
    local = {} if access == "stream" else {"local": "ssd"}
    return Experiment(
        model="resnet50",
        dataset="imagenet",
        machine="stampede2-skx",
        strategy={"nodes": nodes, "batch": 32, "allreduce": "hierarchical"},
        storage={"tier": "lustre", "access": access, **local},
        run={"epochs": 90},
    )


def weak_scaling(experiment: Experiment) -> Any:
    """Return the throughput over that of the same number of single nodes: weak-scaling efficiency."""
    one = experiment.set({"strategy.nodes": 1})
    nodes = experiment.strategy.nodes
    return predict(experiment).throughput / (nodes * predict(one).throughput)


def slowed_to(experiment: Experiment, time: float) -> Experiment:
    """Return the experiment on a file system whose metadata rate makes the run last `time` s.

    That is how slow it must have been if nothing else held the run up. Raises SpecError if the run takes
    longer than that whatever the rate, or has no metadata servers to wait for.
    """
    key = f"machine.storage.{experiment.storage.tier}.metadata_rate"
    low, high = 1.0, 1e12
    if predict(experiment.set({key: high})).time_to_train > time:
        raise SpecError(
            f"time = {time:g} s: the run takes longer even on the fastest metadata servers."
        )
    if predict(experiment.set({key: low})).time_to_train < time:
        raise SpecError(
            f"time = {time:g} s: the run takes less time even on the slowest metadata servers."
        )
    for _ in range(60):
        middle = (low * high) ** 0.5
        late = predict(experiment.set({key: middle})).time_to_train > time
        low, high = (middle, high) if late else (low, middle)
    return experiment.set({key: high})


def share_of_peak(experiment: Experiment, rate: Any) -> Any:
    """Return what `rate` samples/s of a whole run read in each node, over the bandwidth of its own tier.

    FanStore's slides have 7.8 to 9.5% of the peak of a benchmark that reads files of 128 KB; that peak they
    do not give. Raises SpecError without a local tier.
    """
    storage = experiment.storage
    tier = storage_tier(experiment.machine, storage.local)
    return rate * stored_bytes(experiment) / experiment.strategy.nodes / tier.bandwidth


def profile(experiment: Experiment) -> Profile:
    """Return what a run asks of its file system, and the least time that each limit takes.

    Listings: Zhang et al. 2018 (FanStore), every process looks into every directory. Raises what predict does.
    """
    prediction, dataset, epochs = predict(experiment), experiment.dataset, experiment.run.epochs
    opened, samples = dataset.files * epochs, dataset.samples * epochs
    found = reading(experiment)
    seconds = {
        "compute": prediction.steps * prediction.compute,
        "start": prediction.start_time,
        **{name: samples / rate for name, rate in found.rates.items()},
    }
    return Profile(
        listings=experiment.devices * dataset.directories,
        listers=experiment.devices,
        opened=opened,
        reads=opened * experiment.storage.reads_per_file,
        readers=experiment.devices * np.maximum(experiment.storage.workers, 1),
        bytes=data_set_bytes(experiment) * epochs,
        samples=samples,
        file_size=dataset.bytes / dataset.files,
        seconds=seconds,
        time=prediction.time_to_train,
    )


@dataclass(frozen=True)
class Sizes:
    """A data set as the load that it puts on storage."""

    dataset: Dataset
    file_size: float  # mean B
    nodes: int  # that hold it together


def sizes(capacity: float = NODE_STORAGE, datasets: tuple[str, ...] = TABLE) -> list[Sizes]:
    """Return the slides' table of data sets, with the nodes of `capacity` B that hold each of them.

    Raises SpecError for a data set that the catalog does not have.
    """
    found = [read_dataset(name) for name in datasets]
    return [Sizes(one, one.bytes / one.files, holders(one.bytes, capacity)) for one in found]


def holders(size: float, capacity: float) -> int:
    """Return how many nodes of `capacity` B hold `size` B together: 455 GB at 60 GB per node take 8."""
    return int(max(np.ceil(size / capacity), 1))
