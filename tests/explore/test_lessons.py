"""What holds for every lesson: drawings get all that they read, and each position of each control shows its own."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, wraps
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

import pytest
from experiment_page import controls, each_position_shows_its_own, fills

from lib_dlhpc import explore
from lib_dlhpc.explore.allreduce import messages, panel, rounds
from lib_dlhpc.explore.blocks.bench import OnBench
from lib_dlhpc.explore.blocks.drawing import drawings_of
from lib_dlhpc.explore.blocks.panel import AtClick
from lib_dlhpc.explore.data_parallel import real, waiting
from lib_dlhpc.explore.energy_planning import best_size, budget
from lib_dlhpc.explore.failures import interval, network, silent, versions
from lib_dlhpc.explore.hybrid_parallel import map as hybrid_map
from lib_dlhpc.explore.hybrid_parallel.charts import HELD, TERMS, Way
from lib_dlhpc.explore.io_bottleneck.charts import measured_state
from lib_dlhpc.explore.large_batch import charts as large_batch_charts
from lib_dlhpc.explore.large_batch import live, rules, time
from lib_dlhpc.explore.memory_wall import ways
from lib_dlhpc.explore.serving import here
from lib_dlhpc.explore.traces import charts as traces_charts
from lib_dlhpc.explore.traces import waits

TIMES = here.Times((0.01, 0.012), (0.002, 0.0021), (0.04, 0.05))
MEASURED = {"low": 1e-2, "median": 2e-2, "high": 3e-2, "price": 1e-2}
ELSEWHERE = ("compare", "explorer", "gantt", "labs", "one_step")  # tested with what they need


def parts(lesson: ModuleType, kind: type | tuple[type, ...]) -> dict[str, Any]:
    """Return the objects of a kind that the files of a lesson define, by file and name."""
    found = {}
    for file in iter_modules(lesson.__path__):
        module = import_module(f"{lesson.__name__}.{file.name}")
        for name, value in vars(module).items():
            if isinstance(value, kind) and value not in found.values():
                found[f"{lesson.__name__.rpartition('.')[2]}.{file.name}.{name}"] = value
    return found


def lessons() -> Iterator[ModuleType]:
    """Yield the packages with drawings."""
    for each in iter_modules(explore.__path__):
        package = import_module(f"lib_dlhpc.explore.{each.name}")
        if each.ispkg and any(file.name == "drawings" for file in iter_modules(package.__path__)):
            yield package


def remembered(bench: Any) -> Any:
    """Return an experiment that computes once what it shows at first, to which each control returns."""
    if not isinstance(bench, OnBench):
        return bench
    first = cache(lambda: bench.view(bench.first))

    @wraps(bench.view)
    def view(setting: Any) -> Any:
        return first() if setting == bench.first else bench.view(setting)

    return replace(bench, view=view)


LESSONS = {each.__name__.rpartition(".")[2]: each for each in lessons()}
# What these say before a click does not depend on each control.
WITHOUT = ("data_parallel.live", "io_bottleneck.live", "model_parallel.live")
ALL = {
    name: remembered(bench)
    for lesson in LESSONS.values()
    for name, bench in parts(lesson, (OnBench, AtClick)).items()
}
BENCHES = {name: bench for name, bench in ALL.items() if not name.startswith(WITHOUT)}
OTHERS: dict[str, Callable[[], Any]] = {  # experiments that are functions
    "budget": budget.the_budget,
    "size": best_size.the_size,
    "interval": interval.the_interval,
    "checks": silent.the_checks,
    "ways": ways.four_ways,
    "learning": live.break_and_repair,
    "trace": waits.read_it,
}


def trace(state: Callable[..., Any], *more: Any) -> Any:
    return state(waits.analyzed(waits.Setting()), *more)


# States that no bench shows at first, by drawing.
STATES: dict[str, Callable[[], Any]] = {
    "messages": lambda: messages.messages_chart(rounds.Example("ring", 4, 8).plan, 2),
    "measured": lambda: panel.measured_chart([{"algorithm": "ring", "size": 4e3, **MEASURED}]),
    "slowest": lambda: waiting.slowest_chart(waiting.Ranks(slow=2.0)),
    "step_exchange": lambda: real.exchange_chart([{"size": 1e5, "buckets": 315, **MEASURED}]),
    "energy_plan": lambda: budget.budget_view(budget.Setting()).charts["energy_plan"],
    "size_loss": lambda: best_size.size_view(best_size.Setting()).charts["size_loss"],
    "size_utilization": lambda: best_size.size_view(best_size.Setting()).charts["size_utilization"],
    "failures_loss": lambda: interval.loss_view(
        interval.Setting(), interval.simulated_points(interval.Setting())
    ),
    "failures_phases": lambda: interval.phases_view(interval.Setting()),
    "failures_checks": lambda: silent.checks_view(silent.Setting(), [(3600.0, 0.2, 0.1, 0.3, 0.2)]),
    "failures_found": lambda: silent.found_view(silent.Setting()),
    "failures_written": lambda: versions.written_view(network.Trunk()),
    "hybrid_map": lambda: hybrid_map.cells_state(
        [
            Way(4, 2, 1, 8, 2.0, 10e9, 16e9, "", (1.0,) * len(TERMS), (2e9,) * len(HELD)),
            Way(1, 2, 1, 32, 1.0, 20e9, 16e9, "", (0.5,) * len(TERMS), (4e9,) * len(HELD)),
            Way(8, 2, 1, 0, illegal="64 GPUs are no multiple"),
        ],
        (1, 2),
    ),
    "io_measured": lambda: measured_state({"folder": (1000.0, 950.0, 900.0)}),
    "published_error": lambda: drawn(rules.published_error()),
    "rate_schedule": lambda: live.asked_view(live.Setting()).charts["rate_schedule"],
    "live_runs": lambda: large_batch_charts.runs_state(
        [large_batch_charts.Curve("LARS 512", [0, 1, 2], [0.1, 0.5, 0.9])], 40, (0.9, "the base")
    ),
    "arrival": lambda: drawn(time.steps_measured().children[0]),
    "memory_ways": lambda: ways.ways_view(ways.Setting()).charts["memory_ways"],
    "serving_here": lambda: here.here_state(here.Setting(), {1: TIMES, 8: TIMES}),
    "traces_gantt": lambda: traces_charts.trace_state(
        waits.trace(waits.Setting()), trace(lambda found: found.findings[0].where)
    ),
    "traces_ranks": lambda: trace(traces_charts.ranks_state),
    "traces_efficiency": lambda: trace(traces_charts.efficiency_state),
    "traces_coupled": lambda: traces_charts.coupled_state(
        {"1 + 1": {"simulate": 1.0, "idle": 0.5}}, "1 + 1"
    ),
}
DERIVED = {"middle", "half"}  # fields that a drawing makes from others


def drawn(figure: Any) -> Any:
    return figure.data, figure.summary


@cache
def first_states(lesson: str) -> dict[str, Any]:
    """Return what the benches of a lesson show at first, by drawing."""
    return {
        name: state
        for of, bench in ALL.items()
        if of.startswith(f"{lesson}.") and isinstance(bench, OnBench)
        for name, state in bench.view(bench.first).charts.items()
    }


DRAWINGS = [
    (lesson, name)
    for lesson, package in LESSONS.items()
    if lesson not in ELSEWHERE
    for name in drawings_of(import_module(f"{package.__name__}.drawings"))
]


@pytest.mark.parametrize(("lesson", "drawing"), DRAWINGS)
def test_a_state_fills_every_dataset_and_field_of_its_drawing(lesson, drawing):
    state = STATES[drawing]() if drawing in STATES else first_states(lesson)[drawing]
    fills(drawing, state, DERIVED)


# Looks of lines: color, dash and symbol. These tables are of several charts each; their lessons test those together.
SEVERAL = ("allreduce", "data_parallel", "hybrid_parallel", "io_bottleneck", "labs", "large_batch")
LOOKS = {
    f"{lesson}.{name}": looks
    for lesson, package in LESSONS.items()
    for name, looks in vars(import_module(f"{package.__name__}.drawings")).items()
    if isinstance(looks, dict)
    and all(
        isinstance(each, tuple) and [*map(type, each)] == [str, list, str]
        for each in looks.values()
    )
    and not (name == "LINES" and lesson in SEVERAL)
}


@pytest.mark.parametrize("name", LOOKS)
def test_no_two_lines_of_a_chart_look_alike_without_color(name):
    looks = LOOKS[name].values()
    assert len({tuple(dash) for _, dash, _ in looks}) == len(looks)
    assert len({symbol for *_, symbol in looks}) == len(looks)


# Controls that may move words alone.
WORDED = {
    "ways": ("Host memory",),
    "failures.ways.four_ways": ("Host memory",),
    "language_model.layout.the_layout": ("Tensor",),
    "language_model.sequences.the_sequence": ("Exchange",),
    "large_batch.rules.how_far": ("Compare", "with"),
    "learning": ("Seed",),
}


@pytest.mark.parametrize("name", [*BENCHES, *OTHERS])
def test_every_position_of_every_control_shows_something_of_its_own(name):
    page = (BENCHES | OTHERS)[name]()
    if name == "model_parallel.cuts.where_to_cut":
        # Equal time and equal work are the same cuts of ResNet-50 in four.
        controls(page)["Network"].value = "ResNet-1001"
    few = name.startswith(("io_bottleneck.", "large_batch."))
    assert 2 + few <= len(controls(page)) <= 7 - few
    but = "Seed" if name == "failures.live.fail_here" else ""
    each_position_shows_its_own(page, but, WORDED.get(name, ()))
