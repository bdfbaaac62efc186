"""Queue limits from Slurm's sinfo: a stand-in prints its output, so that any cluster can be tested."""

import itertools
import os

import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch.limits import CHECKED, check_limits, exceeds
from lib_dlhpc.launch.site import SCHEDULERS, Site

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the stand-in is a shell script")


@pytest.fixture
def sinfo(tmp_path, monkeypatch):
    """A function: what sinfo prints from now on, as partition|nodes|cores|nodes of a job|time."""

    def prints(*lines, status=0):
        path = tmp_path / "sinfo"
        body = "".join(f"echo '{line}'\n" for line in lines)
        path.write_text(f"#!/bin/sh\n{body}exit {status}\n")
        path.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return prints


def refused(ranks, per_node=None, limit=60.0, partition=""):
    try:
        check_limits(Site(ranks_per_node=per_node, partition=partition), ranks, limit)
    except SpecError as error:
        return str(error)
    return ""


def test_a_request_is_refused_exactly_where_no_placement_exists(sinfo):
    """For every request of a small cluster with two kinds of nodes, against counting the nodes by hand."""
    nodes = [4, 4, 4, 8]
    sinfo("debug*|3|4|1-infinite|infinite", "debug*|1|8|1-infinite|infinite", "other|9|9|1-9|5:00")
    for ranks, per_node in itertools.product(range(1, 25), (None, 1, 2, 4, 5, 8)):
        on = ranks if per_node is None else min(ranks, per_node)
        wanted = -(-ranks // (per_node or ranks))
        can = sum(cores >= on for cores in nodes) >= wanted
        assert (refused(ranks, per_node) == "") == can, (ranks, per_node)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5:00", 300), ("1:00:00", 3600), ("2-00:00:00", 172_800), ("1-01:00:00", 90_000)],
)
def test_a_time_limit_above_the_partitions_is_refused(sinfo, text, seconds):
    sinfo(f"short*|1|4|1|{text}")
    assert not refused(1, limit=seconds)
    assert "partition short allows" in refused(1, limit=seconds + 1)


def test_of_several_partitions_one_that_can_is_enough(sinfo):
    sinfo("small|1|4|1|infinite", "large*|2|8|1-2|infinite")
    assert not refused(16, 8, partition="small,large")
    results = refused(17, 8, partition="small,large")
    assert "partition small has 1 node of 4 cores" in results
    assert "partition large has 2 nodes of 8 cores; at most 16 ranks" in results


@pytest.mark.parametrize(
    "lines", [(), ("gibberish",), ("a*|4+|x|1|infinite",), ("a|4|4|1-4|infinite",)]
)
def test_where_slurm_does_not_report_it_nothing_is_refused(sinfo, lines):
    sinfo(*lines)
    assert not refused(10**6)


def test_other_schedulers_are_not_asked(sinfo):
    sinfo("debug*|1|1|1|1:00")
    for scheduler in SCHEDULERS:
        if scheduler != "slurm":
            check_limits(Site(scheduler=scheduler), 10**6, 1e6)
            assert not exceeds(scheduler, "PartitionConfig")
    assert CHECKED == ("slurm", "local")


@pytest.mark.parametrize(
    "reason", ["PartitionConfig", "PartitionTimeLimit", "QOSMaxCpuPerJobLimit", "BadConstraints"]
)
def test_permanent_pending_reasons_are_recognized(reason):
    assert exceeds("slurm", reason)
    for passing in ("Priority", "Resources", "PartitionDown", "QOSMaxJobsPerUserLimit", "None", ""):
        assert not exceeds("slurm", passing)
