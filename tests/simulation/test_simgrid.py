"""Message programs simulated here and by SimGrid 3.32 (CM02): golden.json beside make_golden.py.

Both are fluid models with max-min fairness and senders that wait for their receivers, so they agree to SimGrid's own
precision, on fat trees, dragonflies (minimal routing) and tori (dimension order). They would part where SimGrid does
what is not done here: it weighs flows on a shared link by 1 / latency (here all flows that can meet have one
latency), and its LV08 and SMPI models scale latency and bandwidth by factors measured on a TCP cluster (CM02 has
none).
"""

import runpy
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLE = runpy.run_path(str(ROOT / "benchmarks" / "simgrid_table.py"))
CASES, GOLDEN, ALPHA, simulated = (
    TABLE[name] for name in ("CASES", "GOLDEN", "ALPHA", "simulated")
)
UNCONTENDED = [name for name in CASES if name.rsplit(" ", 1)[0] in ("ring", "recursive doubling")]
LIVE = [
    "ring 4",
    "recursive doubling 16",
    "incast 8 to 1",
    "everyone 8",
    "fat tree staggered 16",
    "dragonfly everyone 16",
]


@pytest.mark.parametrize("name", [name for name in CASES if name not in UNCONTENDED])
def test_with_contention_every_rank_ends_when_simgrid_says(name):
    np.testing.assert_allclose(simulated(name), GOLDEN[name], rtol=1e-6)


@pytest.mark.parametrize("name", UNCONTENDED)
def test_without_contention_every_rank_ends_when_simgrid_says(name):
    np.testing.assert_allclose(simulated(name), GOLDEN[name], rtol=1e-6)


def test_the_golden_figures_are_of_all_cases():
    assert list(GOLDEN) == list(CASES)


def test_contention_is_what_makes_an_incast_eight_times_as_long():
    alone = max(simulated("incast 8 to 1", sharing=False)) - ALPHA
    assert max(GOLDEN["incast 8 to 1"]) - ALPHA == pytest.approx(8 * alone, rel=1e-6)
    assert max(simulated("incast 8 to 1")) - ALPHA == pytest.approx(8 * alone, rel=1e-9)


def test_a_ring_beats_everyone_to_everyone_where_the_latter_meets_at_one_rank():
    assert max(GOLDEN["ring 16"]) < max(GOLDEN["everyone 16"])
    assert max(simulated("ring 16")) < max(simulated("everyone 16"))


@pytest.mark.parametrize("name", LIVE)
def test_simgrid_still_says_what_it_said(name, require):
    require(TABLE["installed"](), "no python3-simgrid")
    live = TABLE["live"](name)
    np.testing.assert_allclose(live, GOLDEN[name], rtol=1e-9)
    np.testing.assert_allclose(simulated(name), live, rtol=1e-6)


def test_the_table_of_all_differences_is_a_command(capsys, monkeypatch):
    monkeypatch.setattr(
        "sys.argv", ["simgrid_table.py", "ring 4", "incast", "ring 16", "everyone 16"]
    )
    with pytest.raises(SystemExit) as end:
        TABLE["main"]()
    lines = capsys.readouterr().out.splitlines()
    assert end.value.code is False  # status 0: nothing differs by more than it may
    assert [line[:34].strip() for line in lines[1:5]] == [
        "ring 4",
        "ring 16",
        "incast 8 to 1",
        "everyone 16",
    ]
    assert lines[5].startswith("everyone to everyone takes 3.990 times")
