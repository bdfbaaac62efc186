"""One step three ways: a run's typical step, and the same rows in prediction, simulation and run."""

import numpy as np
import pytest

from lib_dlhpc.comparison import compare
from lib_dlhpc.comparison.timelines import expected_steps, typical_step
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.timeline import Event, from_rows

HYBRID = Experiment(
    model={"family": "gpt", "layers": 2, "hidden": 16, "heads": 2, "sequence": 8, "vocabulary": 64},
    dataset="words",
    machine="laptop",
    strategy={
        "devices_per_node": 2,
        "pipeline": 2,
        "microbatches": 3,
        "batch": 6,
        "schedule": "zb-h1",
    },
)


def recorded(lengths):
    """Two ranks, the second 0.1 s behind, whose steps take `lengths` s."""
    rows, now = [], 5.0
    for number, seconds in enumerate(lengths):
        for rank in range(2):
            begin = now + 0.1 * rank
            rows.append(Event(rank, "compute", "forward", f"step {number}", begin, begin + 0.1))
            stop = begin + seconds
            rows.append(Event(rank, "compute", "update", "update", stop - 0.1, stop))
        now += seconds
    return from_rows(rows, 2, "measured")


@pytest.mark.parametrize("lengths", [(9, 8, 7, 1, 3, 2, 5, 4), (9, 8, 7, 3), (3,), (9, 3)])
def test_the_typical_step_takes_the_median_time_without_the_first(lengths):
    step = typical_step(recorded(lengths))
    shown = step.select(step.where("compute", "forward"))
    assert {step.names[at] for at in shown.name} == {f"step {lengths.index(3)}"}
    assert len(step) == 4
    np.testing.assert_allclose(shown.start, [0.0, 0.1], atol=1e-12)
    assert step.stop.max() == pytest.approx(3.1)


def test_a_rank_without_an_update_has_no_step():
    rows = [Event(0, "compute", "forward", "forward", 0.0, 1.0)]
    with pytest.raises(ValueError, match="no update"):
        typical_step(from_rows(rows, 1, "measured"))


def passes(timeline):
    """The passes of each rank in the order in which it computes them."""
    table = timeline.select(timeline.where("compute", "forward", "backward", "update")).sorted()
    names = [timeline.names[at] for at in table.name]
    return [[n for n, r in zip(names, table.rank, strict=True) if r == rank] for rank in range(2)]


def test_prediction_and_simulation_have_the_same_rows():
    each = expected_steps(HYBRID)
    assert passes(each["predicted"]) == passes(each["simulated"])
    assert "weight gradients 2" in passes(each["predicted"])[0]


def test_so_has_a_run_and_all_are_in_one_chart(ranks_can_start):
    found = compare(HYBRID, steps=5)
    each = found.timelines()
    assert passes(each["measured"]) == passes(each["predicted"])
    chart = found.gantt().to_dict()
    rows = chart["data"]["values"]
    assert list(dict.fromkeys(row["way"] for row in rows)) == ["predicted", "simulated", "measured"]
    assert chart["encoding"]["row"]["sort"] == ["predicted", "simulated", "measured"]
    assert "weight gradients" in {row["kind"] for row in rows}
