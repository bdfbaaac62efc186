"""The printed tier, and its notes on omitted numbers."""

import tomllib
from dataclasses import replace

import numpy as np

from lib_dlhpc.calibration.expected import expected
from lib_dlhpc.calibration.fit import fit_io
from lib_dlhpc.calibration.io import KINDS
from lib_dlhpc.calibration.points import WARM, Point
from lib_dlhpc.calibration.report import as_dict, as_toml
from lib_dlhpc.spec.machine import StorageTier, load_machine, read_machine
from lib_dlhpc.spec.schema import to_table

WHOLE = StorageTier(
    servers="one",
    scope="node",
    bandwidth=1.1e9,
    metadata_rate=90e3,
    read_rate=35e3,
    operation_latency=12e-6,
    read_latency=60e-6,
    reader_bandwidth=0.8e9,
)


def printed(tier):
    points = []
    for (what, size), readers in [(kind, count) for kind in KINDS for count in (1, 2, 8)]:
        if what in ("file", "random"):
            took = expected(tier, Point(what, WARM, readers, size, (1.0,), (1,)))
            points.append(Point(what, WARM, readers, size, (1000 * took,) * 5, (1000,) * 5))
    return as_toml(fit_io(points), points, {"date": "2000-01-01"})


def test_what_was_not_found_is_named_with_what_to_do():
    text = printed(replace(WHOLE, operation_latency=0.0, metadata_rate=np.inf))
    table = tomllib.loads(text)["machine"]["storage"]["disk"]
    assert not {"operation_latency", "metadata_rate"} & set(table)
    (note, advice) = (line for line in text.splitlines() if "NOTE" in line)
    assert "operation_latency" in note and "metadata_rate" in note and "read_latency" not in note
    assert "--seconds" in advice


def test_what_was_found_needs_no_note():
    text = printed(WHOLE)
    assert {"operation_latency", "metadata_rate"} <= set(
        tomllib.loads(text)["machine"]["storage"]["disk"]
    )
    assert "NOTE" not in text


def test_an_undetermined_bandwidth_is_a_number_and_reported_as_a_bound():
    points = [
        Point(what, WARM, readers, size, (2.0,) * 5, (1000,) * 5)
        for (what, size), readers in [(kind, count) for kind in KINDS for count in (1, 2)]
        if what in ("file", "random")
    ]
    fit = fit_io(points)
    text = as_toml(fit, points, {"date": "2000-01-01"})
    assert "unlimited" not in text.replace("rate unlimited", "")
    assert "a lower bound" in next(line for line in text.splitlines() if "NOTE" in line)
    assert "a lower bound" not in printed(WHOLE)
    storage = tomllib.loads(text)["machine"]["storage"]
    machine = read_machine(
        {**to_table(load_machine("laptop")), "name": "laptop", "storage": storage}
    )
    assert machine.storage["disk"].bandwidth > 0
    assert as_dict(fit, points, {})["tier"]["bandwidth"] == fit.tier.bandwidth
