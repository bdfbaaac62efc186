"""The coupled workflow on ranks of this machine: as chosen, then as predicted to be the fastest, three ways each."""

import json
import threading
from collections.abc import Callable, Mapping
from html import escape
from typing import Annotated, Any, NamedTuple

from lib_dlhpc.explore.blocks.bench import Dropdown, Slider
from lib_dlhpc.explore.blocks.panel import Panel, at_click
from lib_dlhpc.explore.blocks.workbench import verdict_html
from lib_dlhpc.explore.traces import coupled
from lib_dlhpc.explore.traces.charts import coupled_state
from lib_dlhpc.explore.traces.live import ways_html
from lib_dlhpc.explore.traces.process import scratch, through
from lib_dlhpc.prediction.communication.coupled import predict_coupled
from lib_dlhpc.sentences import sentences
from lib_dlhpc.spec.host import cores
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.spec.workflow import Workflow, dumps

say = sentences(__file__)

BATCHES = 20
STARTS = {"one simulates": 1, "all, in turn": coupled.SHARED}
FIRST = Dropdown("Begin with", "The placement that is run first", STARTS)
ENGINES = ("predicted", "simulated", "measured")

Outcome = dict[str, Any]  # printed by `dlhpc couple --json`


class Setting(NamedTuple):
    """A run. simulating: ranks to begin with, SHARED: all do both."""

    ranks: Annotated[int, Slider("Ranks", "Of this machine", (2, 3))] = 2
    sampling: Annotated[int, coupled.Sampling(values=(1, 4, 16))] = 16
    depth: Annotated[int, coupled.Depth(values=(1, 2, 8))] = 2
    simulating: Annotated[int, FIRST] = 1


def workflow(setting: Setting) -> Workflow:
    """Return what is run; its costs are measured first."""
    own = coupled.Setting(setting.simulating, setting.sampling, setting.depth)
    return coupled.workflow(own, BATCHES)


def run(setting: Setting, stop: threading.Event) -> Outcome:
    """Run it, and then the placement that is predicted to be faster. Raises Cancelled, RunError; leaves nothing."""
    with scratch("dlhpc-coupled-") as folder:
        file = folder / "workflow.toml"
        file.write_text(dumps(workflow(setting)), encoding="utf-8")
        words = ("couple", str(file), "-n", str(setting.ranks), "--json")
        outcome: Outcome = json.loads(through(words, folder, stop))
        return outcome


def asked_words(setting: Setting) -> str:
    """Say what a click would run."""
    first = "all do both, in turn" if setting.simulating == coupled.SHARED else "rank 0 simulates"
    times = count(setting.sampling, "step").removeprefix("1 ")
    many = " More ranks than cores: they share them." if setting.ranks > cores() else ""
    return (
        f"{BATCHES} batches of {coupled.BATCH} samples, one every {times} of the simulation; up to"
        f" {coupled.batches_words(setting.depth)} in between. First {first}; then, if another placement"
        f" is predicted to be faster, that one. {count(setting.ranks, 'rank')}.{many}"
    )


@at_click(
    Setting(), asked_words, "Couple", "traces_coupled", "Nothing has run yet.", "Some ten seconds"
)
def couple_here(
    panel: Panel, setting: Setting, coupled: Callable[[Setting, threading.Event], Outcome] = run
) -> None:
    """Look for whether the placement that is predicted to be the best has fewer waits here, and is faster."""
    panel.say(f"Costs are measured, then {count(setting.ranks, 'rank')} couple ...")
    outcome = coupled(setting, panel.stop)
    panel.show(coupled_state(bars_of(outcome)), result_html(outcome))
    panel.say(outcome_words(outcome))


def placed(run_of: Mapping[str, Any]) -> str:
    """Return a placement in words."""
    one = run_of["predicted"]
    if one["placement"] == "shared":
        return coupled.ALL
    return f"{one['simulating']} + {one['training']}"


def runs_of(outcome: Outcome) -> list[Mapping[str, Any]]:
    """Return what was run: one placement, or two."""
    return [one for one in (outcome["before"], outcome["after"]) if one]


def bars_of(outcome: Outcome) -> dict[str, dict[str, float]]:
    """Return each run, predicted, simulated and measured, with its terms."""
    return {
        f"{placed(one)}, {engine}": {name: way[engine] for name, way in one["terms"].items()}
        for one in runs_of(outcome)
        for engine in ENGINES
    }


def outcome_words(outcome: Outcome) -> str:
    """Say whether the placement that is predicted to be the best is."""
    before, after = outcome["before"], outcome["after"]
    words = (
        f"{escape(placed(before))} took {show(before['seconds'], 's')}, of which the mean rank waited"
        f" {show(before['waited'], 's')}"
    )
    if after is None:
        return f"<b>✓ {words}.</b> No other placement is predicted to save more than a few percent."
    took, waited = (show(after[name], "s") for name in ("seconds", "waited"))
    words = f"{words}; {escape(placed(after))} took {took} and waited {waited}"
    if after["seconds"] < before["seconds"]:
        return f"<b>✓ {words}: faster, as predicted.</b>"
    return f"<b>✗ {words}: not faster here.</b> Are other programs on these cores?"


def result_html(outcome: Outcome) -> str:
    """Return the terms of each run by engine, with errors, and why they differ."""
    parts = []
    for one in runs_of(outcome):
        whole = {e: sum(way[e] for way in one["terms"].values()) for e in ENGINES}
        p, c = (show(one["predicted"][name], "s") for name in ("produce", "consume"))
        parts.append(
            f"<p><b>{escape(placed(one))}</b>: a batch takes {p} to produce, {c} to train on.</p>"
            + ways_html({**one["terms"], "the run": whole})
        )
    first, last = runs_of(outcome)[-1]["errors"]
    return "".join(parts) + verdict_html(
        f"The network really learns: on unseen fields its error fell from {first:.3g} to"
        f" {last:.3g} of their change. {say.why}"
    )


def waiting_share(setting: Setting) -> float:
    """Return the % of a run that the one training rank waits, with the costs of a laptop's core."""
    way = predict_coupled(workflow(setting), coupled.COSTS, setting.ranks)
    return 100 * setting.ranks * way.terms["wait for samples"] / way.seconds
