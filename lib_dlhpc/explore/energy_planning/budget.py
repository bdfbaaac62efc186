"""A plan within a budget: all layouts of a GPT on up to 64 A100, the front of time and energy, and what it changes."""

from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import ipywidgets

from lib_dlhpc.convergence import verdict
from lib_dlhpc.explore.blocks.bench import Bench, Dropdown, Slider, View, amount
from lib_dlhpc.explore.blocks.panels import table_html
from lib_dlhpc.explore.energy_planning.charts import Cost, costs_state, hours, kilowatt_hours
from lib_dlhpc.planner import Choice, Plan, plan
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.units import HOUR, KWH

MODEL, BATCH, NODES, PER_NODE = "gpt2-1.5b", 128, (1, 2, 4, 8), 8
NETWORKS = {"two 25 Gb/s Ethernet": ("ethernet-25g", 2), "eight 200 Gb/s InfiniBand": ("ib-hdr", 8)}
ASKED = 0.5  # an accuracy; the answer is the same for all: nobody measured it
CHOOSE: dict[str, tuple[Any, ...]] = {  # some hundred layouts: predicted in about a second
    "nodes": NODES,
    "tensor": (1,),
    "pipeline": (1, 8),
    "spatial": (1,),
    "sequence_parallel": (False,),
    "microbatches": (1, 2, 8, 16),
    "schedule": ("1f1b",),
    "chunks": (1,),
    "zero": (0, 1),
    "recompute": ("none",),
    "power_limit": (0, 300, 200),
}
HOURS = tuple(HOUR * h for h in (3, 4, 6, 8, 12, 14, 16, 20, 24, 48))
ENERGIES = tuple(KWH * k for k in (130, 140, 150, 170, 200, 250, 300, 500))
THEN = {"fewest joules": "energy", "shortest time": "time"}


class Setting(NamedTuple):
    """A budget. hours: s at most; energy: J at most; then: what decides within both."""

    network: Annotated[str, Dropdown("Between nodes", "Inside it is NVLink", NETWORKS.keys())] = (
        "two 25 Gb/s Ethernet"
    )
    hours: Annotated[float, Slider("Time", "At most", HOURS, amount("s"))] = 20 * HOUR
    energy: Annotated[float, Slider("Energy", "At most", ENERGIES, kilowatt_hours)] = 300 * KWH
    then: Annotated[str, Dropdown("Then", "Of what is within both", THEN)] = "energy"


def the_budget() -> Bench[Setting]:
    """Return the experiment: the front of a plan, the best within a budget, and a table of what changes."""
    table = ipywidgets.HTML()

    def view(setting: Setting) -> View:
        table.value = table_html(front_lines(setting))
        return budget_view(setting)

    look = "what changes first when joules count, and which numbers of GPUs are never on the front."
    results = ["energy_plan", table]
    return Bench(Setting(), view, results, "There is a run within the budget.", look)


def budget_view(setting: Setting) -> View:
    """Return the front of the plan, and the best run within the budget."""
    found, chosen = planned(setting.network), within(setting)
    costs = [cost_of(choice) for choice in found.ranked]
    front = [costs[found.ranked.index(choice)] for choice in found.front]
    knee = front[found.front.index(found.knee)]
    marks = {"fastest": front[0], "knee": knee, "cheapest": front[-1]}
    rows = [costs.index(each) for each in front]
    now = cost_of(chosen) if chosen else None
    chart = costs_state(costs, rows, marks, now, budget=(setting.hours, setting.energy))
    return View(budget_words(setting), budget_wall(setting), {"energy_plan": chart})


@lru_cache(maxsize=len(NETWORKS))
def planned(network: str) -> Plan:
    """Return the plan for a network between nodes."""
    return plan(experiment(network), ("time", "energy"), choose=CHOOSE)


def experiment(network: str) -> Experiment:
    """Return the run to be planned: one epoch of a text."""
    link, nics = NETWORKS[network]
    machine = {"name": "selene", "inter_node": link, "nics": nics}
    strategy: dict[str, Any] = {"nodes": NODES[-1], "batch": BATCH // (NODES[-1] * PER_NODE)}
    strategy |= {"precision": "bf16", "optimizer": "adam"}
    tables = {"model": MODEL, "dataset": "webtext", "machine": machine, "strategy": strategy}
    return read_experiment({**tables, "run": {"target": ASKED}})


def within(setting: Setting) -> Choice | None:
    """Return the best choice within a budget, or None."""
    choices = [
        each
        for each in planned(setting.network).front
        if each.values["time"] <= setting.hours and each.values["energy"] <= setting.energy
    ]
    if not choices:
        return None
    return choices[-1 if setting.then == "energy" else 0]


def gpus(choice: Choice) -> int:
    """Return the GPUs of a choice."""
    return int(choice.experiment.devices)


def layout(choice: Choice) -> str:
    """Return a choice in words, its GPUs first."""
    named = [word for word in choice.words.split(", ") if not word.startswith("nodes")]
    return f"{gpus(choice)} GPUs: {', '.join(named)}"


def cost_of(choice: Choice) -> Cost:
    """Return what a choice takes."""
    return Cost(choice.values["time"], choice.values["energy"], layout(choice))


def front_lines(setting: Setting) -> list[list[str]]:
    """Return the front as lines of a table: what each takes, and what changes from the one before."""
    found = planned(setting.network)
    lines = [["on the front, the fastest first", "time", "energy", "what changes"]]
    for choice, change in zip(found.front, ("", *found.along_the_front), strict=True):
        own = cost_of(choice)
        knee = " (knee)" * (choice is found.knee)
        lines.append([own.words + knee, hours(own.seconds), kilowatt_hours(own.joules), change])
    return lines


def budget_words(setting: Setting) -> str:
    """Say which run is the best within the budget, what is known of the others, and of accuracy."""
    found, chosen = planned(setting.network), within(setting)
    searched = f"{found.legal} layouts, {len(found.ranked)} fit, {len(found.front)} on the front"
    known = verdict((chosen or found.best).experiment, found.base)
    words = f"Searched: {searched}. {known.reason[0].upper()}{known.reason[1:]}, so the batch stays at {BATCH}."
    if chosen is None:
        return words
    own = cost_of(chosen)
    return (
        f"<b>{own.words}</b>: {hours(own.seconds)}, {kilowatt_hours(own.joules)}; {found.certificate}"
        f" among these. {words}"
    )


def budget_wall(setting: Setting) -> str:
    """Say why nothing is within the budget, or nothing."""
    if within(setting):
        return ""
    front = [cost_of(choice) for choice in planned(setting.network).front]
    quick = [each for each in front if each.seconds <= setting.hours]
    if not quick:
        most = NODES[-1] * PER_NODE
        more = " More GPUs would be slower." * (gpus(planned(setting.network).best) < most)
        return (
            f"Time: no layout on up to {most} GPUs takes less than {hours(front[0].seconds)}, the time of"
            f" {front[0].words}.{more}"
        )
    least = min(quick, key=lambda each: each.joules)
    return (
        f"Energy: within {hours(setting.hours)} no layout takes less than {kilowatt_hours(least.joules)}"
        f" ({least.words}). Give it more time, or more energy."
    )
