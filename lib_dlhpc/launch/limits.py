"""Queue limits: a request that a queue can never start is refused at submission.

Slurm reports its partitions: nodes, cores of a node, nodes and time of a job. Limits of an account or QOS appear only
as a pending job's reason, see `exceeds`. PBS, LSF and Flux are not queried.
"""

from dataclasses import dataclass
from math import inf

from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch import schedulers
from lib_dlhpc.launch.site import Site
from lib_dlhpc.launch.systems import run
from lib_dlhpc.spec.units import DAY
from lib_dlhpc.spec.units import format_quantity as show

CHECKED = ("slurm", "local")  # schedulers with a check of requests
# Slurm's reasons for a job that can never start (man squeue, "Job reason codes").
EXCEEDED = (
    *("PartitionConfig", "PartitionNodeLimit", "PartitionTimeLimit", "TimeLimit"),
    *("AccountNotAllowed", "InvalidAccount", "InvalidQOS", "QOSNotAllowed", "QOSTimeLimit"),
    "BadConstraints",
)


@dataclass(frozen=True)
class Partition:
    """A partition: its nodes as (number, cores of each), limits of a job's nodes and time in s."""

    name: str
    nodes: tuple[tuple[int, int], ...]
    least: float
    most: float
    seconds: float


def check_limits(site: Site, ranks: int, limit: float) -> None:
    """Raise SpecError for a request that no partition of the site can ever run. limit: s."""
    if site.scheduler != "slurm":
        return
    problems = [_problem(each, site, ranks, limit) for each in _partitions(site.partition)]
    if problems and all(problems):
        raise SpecError("; ".join(problems) + ".")


def exceeds(scheduler: str, reason: str) -> bool:
    """Whether a job can start only after a change of the queue or the account."""
    return scheduler == "slurm" and (reason in EXCEEDED or reason.endswith("PerJobLimit"))


def _problem(partition: Partition, site: Site, ranks: int, limit: float) -> str:
    """Return why a partition can never run a request; "" if it can."""
    nodes, cores = schedulers.places(site, ranks)
    seconds = 60 * schedulers.minutes(limit)
    where = f"partition {partition.name}"
    fit = sum(number for number, has in partition.nodes if has >= cores)
    if not fit or nodes > fit:
        has = " and ".join(
            f"{number} node{'s' * (number > 1)} of {count} cores"
            for number, count in partition.nodes
        )
        total = sum(number * count for number, count in partition.nodes)
        wanted = f"{ranks} ranks on {nodes} node{'s' * (nodes > 1)}"
        legal = f"at most {total} ranks" if ranks > total else "site.ranks_per_node spreads them"
        return f"{wanted}: {where} has {has}; {legal}"
    if not partition.least <= nodes <= partition.most:
        most = "" if partition.most == inf else f" to {partition.most:g}"
        return f"{nodes} nodes: a job of {where} has {partition.least:g}{most}"
    if seconds > partition.seconds:
        return f"time limit of {show(seconds, 's')}: {where} allows {show(partition.seconds, 's')}"
    return ""


def _partitions(names: str) -> list[Partition]:
    """Return the partitions of these names ("a,b"), or the default one; empty if Slurm does not answer."""
    which = ["-p", names] if names else ["-a"]
    output = run("sinfo", *which, "-e", "-h", "-o", "%P|%D|%c|%s|%l")
    found: dict[str, Partition] = {}
    try:
        for line in output.stdout.splitlines() if output else ():
            name, number, cores, size, seconds = line.split("|")
            if not names and not name.endswith("*"):
                continue
            name = name.removesuffix("*")
            nodes = found[name].nodes if name in found else ()
            least, _, most = size.partition("-")
            bounds = float(least), _bound(most or least)
            nodes = (*nodes, (int(number), int(cores)))
            found[name] = Partition(name, nodes, *bounds, _seconds(seconds))
    except ValueError:  # unknown format: sbatch decides anyway
        return []
    return list(found.values())


def _bound(text: str) -> float:
    return inf if text in ("infinite", "UNLIMITED") else float(text)


def _seconds(text: str) -> float:
    """Return s of "infinite", "5:00", "1:00:00" or "2-00:00:00"."""
    if text in ("infinite", "UNLIMITED"):
        return inf
    days, _, clock = text.rpartition("-")
    seconds = 0
    for part in clock.split(":"):
        seconds = 60 * seconds + int(part)
    return DAY * int(days or 0) + seconds
