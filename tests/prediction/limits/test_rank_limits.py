"""A run that does not fit is refused, with configurations that would; the measured peak stands beside the cap."""

import pytest

from lib_dlhpc import Experiment
from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction.limits.rank_limits import (
    check_fits,
    cores,
    data_bytes,
    peak_lines,
    rank_bytes,
    result_lines,
)

RUN = Experiment(
    model={"family": "mlp", "widths": [64, 512, 512, 512, 512, 512, 512, 512, 10]},
    machine="laptop",
    dataset={"name": "digits", "samples": 600},
    strategy={"devices_per_node": 1, "batch": 32, "optimizer": "adam"},
)
RESERVED = RUN.machine.device.reserved_memory


def test_a_rank_holds_all_samples_beside_the_ledger():
    assert data_bytes(RUN) == 600 * (64 * 4 + 8)
    more = RUN.set({"dataset.samples": 700})
    assert rank_bytes(more) - rank_bytes(RUN) == pytest.approx(100 * (64 * 4 + 8))


def test_what_does_not_fit_is_refused_with_what_would():
    need = rank_bytes(RUN)
    assert check_fits(RUN.set({"machine.device.memory": need})) == need
    with pytest.raises(SpecError, match=r"more; would fit: .*strategy.offload = 'all'"):
        check_fits(RUN.set({"machine.device.memory": RESERVED + (need - RESERVED) * 0.8}))
    with pytest.raises(SpecError, match="no known change would make it fit"):
        check_fits(RUN.set({"machine.device.memory": RESERVED + 1e4}))


def test_a_peak_above_the_cap_is_reported():
    assert len(peak_lines(1e6, [1e6, 2e6], 3e6)) == 1
    assert "rank 1 held 1 MB more" in peak_lines(1e6, [1e6, 4e6], 3e6)[-1]
    assert peak_lines(1e6, [], 3e6) == []


def test_a_run_stands_beside_its_prediction():
    result = {"ranks": 1, "terms": {"forward": 1.0, "update": 0.5}, "memory": [{"total": 1e6}]}
    lines = result_lines(RUN, 1e6, result)
    assert len(lines) == 2 and lines[0] == peak_lines(1e6, [1e6], RUN.machine.device.memory)[0]
    assert "step: 1.5 s; predicted" in lines[1] and "on laptop" in lines[1]
    assert len(result_lines(RUN, 1e6, {**result, "terms": {}})) == 1  # nothing was left to do
    assert len(result_lines(RUN, 1e6, {**result, "samples": 0})) == 1
    many = {**result, "ranks": cores() + 1}  # of another number nothing was predicted
    assert result_lines(RUN, 1e6, many)[1:] == [
        f"  {cores() + 1} ranks share {cores()} core{'s' * (cores() > 1)}: times say nothing about the method"
    ]
    assert result_lines(RUN, 1e6, many, room=cores() + 1)[1:] == []  # each had a core, elsewhere
