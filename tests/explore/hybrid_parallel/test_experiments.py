"""The lesson on hybrid parallelism: every control moves something, walls stand where they say, laws hold."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from experiment_page import Now, each_position_shows_its_own, shown

from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.question import Later
from lib_dlhpc.explore.hybrid_parallel import deep, domain
from lib_dlhpc.explore.hybrid_parallel import map as ways
from lib_dlhpc.explore.hybrid_parallel.background import aside
from lib_dlhpc.explore.hybrid_parallel.charts import (
    HATCHED,
    HELD,
    TERMS,
    Way,
    best_of,
    held_by,
    memory_state,
    parts_of,
    terms_state,
)
from lib_dlhpc.explore.hybrid_parallel.cosmos import (
    SLABS,
    Cubes,
    cosmos,
    cubes_wall,
    finer,
    published_step,
    slowness,
    step_of,
    the_cubes,
)
from lib_dlhpc.explore.hybrid_parallel.published import comparisons, published_table
from lib_dlhpc.explore.hybrid_parallel.questions import ask
from lib_dlhpc.prediction import predict

FITS = Way(4, 2, 1, 8, 2.0, 10e9, 16e9, "", (1.0,) * len(TERMS), (2e9,) * len(HELD))
WALL = Way(1, 2, 1, 32, 1.0, 20e9, 16e9, "", (0.5,) * len(TERMS), (4e9,) * len(HELD))
NEVER = Way(8, 2, 1, 0, illegal="64 GPUs are no multiple")


def some(setting: Any) -> Iterator[Way]:
    """Ways whose seconds say which setting they are of."""
    mine = float(1 + sum(map(hash, setting)) % 1009)
    if isinstance(setting, ways.Ways):
        run = ways.RUNS[setting.run]
        shapes = [(t, p, 1) for t in ways.TENSOR for p in run.stages]
    else:
        shapes = [(1, 1, 1), (1, setting.shared, 1), (1, 1, setting.shared)]
    for t, p, s in shapes:
        yield Way(
            t,
            p,
            s,
            4,
            mine,
            mine * 1e8,
            200e9,
            "",
            (mine / len(TERMS),) * len(TERMS),
            (mine * 1e8 / len(HELD),) * len(HELD),
        )


EXPERIMENTS: dict[str, Any] = {
    "map": lambda: ways.the_map(some, Now),
    "deep": lambda: deep.the_deep(some, Now),
}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lib_dlhpc.explore.hybrid_parallel.background.REST", 0.0)


@pytest.mark.parametrize("looks", [TERMS, HELD])
def test_no_two_parts_of_a_bar_look_alike(looks):
    """Recomputation has the color of backward, and is hatched."""
    found = {(color, name in HATCHED) for name, color in looks.items()}
    assert len(found) == len(looks)


def test_a_caption_says_which_bars_are_next_to_the_limit_and_which_are_the_ends():
    held = {"all": {"activations": 20e9}, "half": {"activations": 10e9}, "one": {"driver": 1e9}}
    said = memory_state(held, 16e9)[1]
    assert "2 of 3 fit" in said and "that fits takes 10 GB (half)" in said
    assert "that does not takes 20 GB (all)" in said
    assert "does not" not in memory_state(held, 32e9)[1]
    assert memory_state(held, 5e8)[1] == "0 of 3 fit in 500 MB: the smallest takes 1 GB (one)."
    assert memory_state({}, 16e9)[1] == terms_state({})[1] == "No layout is possible."
    steps = {"now": {"compute": 2.0, "waiting": 2.0}, "then": {"compute": 1.0}}
    said = terms_state(steps)[1]
    assert "1 s (then), the longest 4 s (now)." in said and "Of now: compute 50%" in said


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_position_of_every_control_shows_something_of_its_own(name):
    each_position_shows_its_own(EXPERIMENTS[name]())


# the cubes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "setting", [Cubes(), Cubes(128, 8), Cubes(256, 32, 2048, 4), Cubes(tier="gpfs")]
)
def test_the_parts_of_a_bar_are_the_step_and_what_is_held_is_the_ledger(setting):
    step = step_of(setting)
    assert sum(parts_of(step).values()) == pytest.approx(float(step.step_time), rel=1e-6)
    assert sum(held_by(step).values()) == pytest.approx(float(step.memory_total))


def test_the_published_rate_is_met_by_the_run_that_calibrates():
    assert float(step_of(Cubes()).step_time) == pytest.approx(published_step())
    assert slowness() > 1
    assert step_of(Cubes()).experiment.devices == 512


def test_finer_cuts_hold_less_and_keep_the_batch():
    held = [float(step_of(Cubes(slabs=s)).memory_total) for s in SLABS]
    assert held == sorted(held, reverse=True)
    assert step_of(finer(Cubes())).experiment.global_batch == cosmos().global_batch


@pytest.mark.parametrize(
    ("changes", "wall"),
    [
        ({}, ""),
        ({"slabs": 1}, "Memory"),
        ({"slabs": 2}, "Memory"),
        ({"tier": "gpfs"}, "Input"),
        ({"tier": "nvme"}, ""),
        ({"edge": 256, "slabs": 32, "samples": 4}, "The surface"),
        ({"edge": 128, "slabs": 8}, "The allreduce of the gradients"),
    ],
)
def test_each_wall_of_the_cubes_says_its_reason(changes, wall):
    said = cubes_wall(Cubes(**changes))
    assert said.startswith(wall) and bool(said) == bool(wall)


# the map --------------------------------------------------------------------------------------------

SMALL = ways.Ways("18 B, 256 GPUs", 4)


def test_another_process_finds_what_this_one_does():
    found = list(aside(SMALL))
    assert len(found) == len(ways.TENSOR) * len(ways.RUNS[SMALL.run].stages)
    (there,) = (way for way in found if way[:2] == (8, 1))
    here = ways.predicted(SMALL, 8, 1)
    assert there.seconds == pytest.approx(here.seconds) and there.fits
    assert tuple(there.parts) == pytest.approx(here.parts)


def test_a_process_that_fails_is_reported(monkeypatch):
    with pytest.raises(RuntimeError, match="status"):
        list(aside(SMALL._replace(run="nonsense")))

    def fails(setting: Any) -> Iterator[Way]:
        yield FITS
        raise RuntimeError("It ended with status 1.")

    assert "process failed" in shown(ways.the_map(fails, Now))


def test_all_gpus_have_something_to_do_and_the_batch_is_the_published_one():
    for name, run in ways.RUNS.items():
        there = ways.experiment_of(ways.as_published(name), run.tensor, run.pipeline)
        assert there.devices == run.gpus and there.global_batch == run.batch
        assert there.model.parameters / 1e9 == pytest.approx(
            {"GPT": 174.6, "39 B": 39.1, "18 B": 18.4}[name.split(",")[0].split("-")[0]], rel=0.005
        )


@pytest.mark.parametrize("way", [(16, 48), (1, 7), (5, 4)])
def test_a_way_that_cannot_be_says_why(way):
    found = ways.predicted(ways.Ways(), *way)
    assert not found.fits
    assert "no multiple" in found.illegal or "cannot be split" in found.illegal


def test_the_run_that_calibrates_is_met_and_the_others_are_near():
    for name, run in ways.RUNS.items():
        there = ways.predicted(ways.as_published(name), run.tensor, run.pipeline)
        off = there.seconds / ways.published_step(name) - 1
        assert there.fits and abs(off) < (1e-6 if name == ways.CALIBRATES else 0.06)


@pytest.mark.parametrize(
    ("changes", "wall"),
    [
        ({}, ""),
        ({"node": 2}, "The network: tensor groups of 8 span 4 nodes"),
        ({"microbatch": 8}, "The bubble"),
        ({"recompute": "none"}, "Memory"),
        ({"schedule": "gpipe"}, "Memory"),
    ],
)
def test_each_wall_of_the_map_says_its_reason(changes, wall):
    setting = ways.Ways(**changes)
    run = ways.RUNS[setting.run]
    said = ways.map_wall(setting, [ways.predicted(setting, run.tensor, run.pipeline)])
    assert said.startswith(wall) and bool(said) == bool(wall)


def test_what_does_not_fit_is_never_the_best():
    assert best_of([WALL, FITS, NEVER]) == FITS
    assert best_of([WALL, NEVER]) is None
    data, _ = ways.cells_state([FITS, WALL, NEVER], (1, 2))
    assert data["cells"]["words"] == ["2 s", "✗ 20 GB", "–"]
    assert data["cells"]["mark"] == ["best", "published", ""]


class Never:
    """A thread that has not begun."""

    def __init__(self, **_: Any) -> None: ...

    def start(self) -> None: ...


def test_the_map_shows_its_layouts_and_says_so_before_the_first_is_computed():
    page = ways.the_map(some, Never)
    run = ways.RUNS[ways.FIRST]
    count = len(ways.TENSOR) * len(run.stages)
    cells = page.charts["hybrid_map"].data["cells"]
    assert cells["words"] == ["…"] * count
    assert [*zip(cells["tensor"], cells["pipeline"], strict=True)][-1] == (16, run.stages[-1])
    marked = [cells["details"][i] for i, mark in enumerate(cells["mark"]) if mark]
    assert marked == ["tensor 8, pipeline 12: being computed"]
    assert f"0 of {count} layouts are computed" in shown(page)
    assert page.charts["hybrid_terms"].summary == ways.LATER


def test_a_map_in_progress_has_each_layout_once():
    first, *_ = found = [way for way, _ in zip(some(SMALL), range(7), strict=False)]
    cells = ways.map_view(SMALL, found, False).charts["hybrid_map"][0]["cells"]
    places = [*zip(cells["tensor"], cells["pipeline"], strict=True)]
    assert len({*places}) == len(places) == len(ways.TENSOR) * len(ways.RUNS[SMALL.run].stages)
    assert sum(cells["fits"]) == len(found) and first[:2] == places[0]


# the deep network -----------------------------------------------------------------------------------


def test_the_ways_of_a_replica_use_all_of_its_devices_for_one_batch():
    setting = deep.Deep(side=224, shared=4)
    found = list(deep.ways_of(setting))
    assert [deep.name_of(way) for way in found] == [
        "data alone",
        "4 stages",
        "2 stages × 2 slabs",
        "4 slabs",
    ]
    for way in found:
        assert way.pipeline * way.spatial * way.data == setting.devices
        batch = deep.experiment_of(setting, way.pipeline, way.spatial).global_batch
        assert batch == setting.devices * setting.each


def test_a_replica_that_fits_nowhere_is_reported():
    assert "No layout fits" in deep.deep_words([WALL, WALL])
    assert "more devices per replica" in deep.deep_wall([WALL])
    assert deep.deep_wall([FITS]) == ""


# the lesson -----------------------------------------------------------------------------------------


def waits(where: str, **changes: Any) -> float:
    """Return the s of a step that wait for the exchange of a group."""
    return domain.predicted(domain.Setting(**changes), where).waits


@pytest.mark.parametrize("divided", domain.GROUPS.values())
def test_inside_a_node_a_rack_gains_nothing_and_beyond_it_all_the_more(divided):
    node, rack = (
        [waits(where, divided=divided, ranks=ranks) for ranks in domain.RANKS]
        for where in (domain.NODES, domain.RACK)
    )
    assert rack[0] == pytest.approx(node[0], rel=0.01)  # both are NVLink 5
    gains = [far / near for far, near in zip(node, rack, strict=True)]
    assert gains[1] > 1.5 and node == sorted(node) and rack == sorted(rack)


def test_a_rack_needs_no_copies_to_save_and_nodes_do():
    once, each = (waits(domain.RACK, sent=sent) for sent in domain.SENT.values())
    assert once < each < 1.1 * once
    assert waits(domain.NODES, sent="direct") > 2 * waits(domain.NODES, sent="by-node")


def test_a_wider_tensor_group_sends_as_much_and_computes_less():
    """The share of tensor ranks grows in a rack, too; that of experts hardly does."""
    shares = {
        divided: [
            domain.exposed(domain.Setting(divided, ranks, sent="direct"), domain.RACK)
            for ranks in (8, 64)
        ]
        for divided in domain.GROUPS.values()
    }
    (few, many), (tensor_few, tensor_many) = shares["experts"], shares["tensor"]
    assert many - few < 0.1 < 0.25 < tensor_many - tensor_few


@pytest.mark.parametrize("divided", domain.GROUPS.values())
@pytest.mark.parametrize("where", [domain.NODES, domain.RACK])
def test_a_group_has_the_same_gpus_and_batch_however_wide_it_is(divided, where):
    runs = [domain.experiment(domain.Setting(divided, each), where) for each in domain.RANKS]
    assert {int(run.devices) for run in runs} == {domain.GPUS}
    assert {int(run.global_batch) for run in runs} == {domain.NETWORKS[divided].sequences}
    assert all(predict(run).fits for run in runs)


def test_an_experiment_is_made_when_its_question_is_answered_and_once():
    made = []
    later = Later(lambda: made.append(1) or the_cubes())
    asks = later.gives(lambda: 2.0)
    assert not made and not later.box.children
    assert asks() == asks() == 2.0
    assert made == [1] and len(later.box.children) == 1
    assert Later(the_cubes).gives("a choice")() == "a choice"


def test_an_experiment_is_made_where_gates_are_off():
    later = Later(the_cubes)
    card = Lesson().predict("How many?", later.gives(lambda: 2.0), "times", then=later.box)
    assert not later.box.children
    card.question.uncovered = True
    assert len(later.box.children) == 1 and not card.question.verdict


def test_the_table_shows_each_publication_with_its_error():
    html = published_table().value
    assert html.count("<tr>") == 1 + len(comparisons())
    for _, shape, published, found, _ in comparisons():
        assert shape.format(published) in html and f"{found / published - 1:+z.0%}" in html


def test_the_ledger_halves_what_keeping_every_output_takes():
    for name, _, published, found, _ in comparisons()[2:]:
        side = int(re.findall(r"(\d+)²", name)[0])
        every = predict(deep.experiment_of(deep.Deep(side, each=1), 1, 1)).experiment.model
        outputs = 4e-9 * float(every.layer_output_elements.sum())
        assert found < outputs < published < 1.3 * outputs


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("check", ["own_halo", "own_bubble"])
def test_a_learners_numbers_have_an_answer(check, seed):
    asked = ask(check, seed).question
    question = asked.question
    numbers = [int(n.replace(",", "")) for n in re.findall(r"\d[\d,]*(?=[ ³])", question)]
    if check == "own_halo":
        answer = 100 * 2 * numbers[1] / numbers[0]
    else:
        gpus, tensor, pipeline, batch = numbers[:4]
        answer = 100 * (pipeline - 1) / (batch / (gpus / tensor / pipeline))
    assert asked.answer(str(answer))["right"], question
