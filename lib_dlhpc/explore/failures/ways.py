"""Who waits for a checkpoint: four ways to save, how long each stalls training, and what each loses."""

from functools import lru_cache
from typing import Annotated, Any, NamedTuple

from lib_dlhpc.explore.blocks.bench import Dropdown, Slider, View, amount, on_bench
from lib_dlhpc.explore.blocks.charts import Data, State, columns, stacked
from lib_dlhpc.explore.failures.charts import LOST, WAYS
from lib_dlhpc.explore.failures.interval import (
    BETWEEN,
    FILES,
    INTERVALS,
    LARGE,
    NETWORK,
    experiment,
)
from lib_dlhpc.explore.failures.interval import Setting as Run
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.failures.resilience import Resilience
from lib_dlhpc.sentences import sentences
from lib_dlhpc.spec.units import format_quantity as show

say = sentences(__file__)

MEMORIES = (0.25e9, 1e9, 2e9, 4e9, 16e9, 256e9, 2e12)  # B of a node's host, for copies
CHANGED = (0.01, 0.05, 0.1, 0.3, 1.0)
WRITERS = {"all nodes, a shard each": "all", "the first node": "first"}
HOST = Slider("Host memory", "Of a node, that training leaves for copies", MEMORIES, amount("B"))
OF_IT = "Share of the state that an incremental one writes"
CHANGE = Slider("Changed", OF_IT, CHANGED, "{:.0%}".format)
BEST = 0.0  # the position of the interval at which each way has its own best one
EVERY = {"best for each": BEST} | {show(seconds, "s"): seconds for seconds in INTERVALS}
LATE = 1.0 + 1e-9


class Setting(NamedTuple):
    """A run. interval: s, or BEST; rate: B/s of the file system; memory: B of a host."""

    model: Annotated[str, NETWORK] = LARGE
    writers: Annotated[str, Dropdown("Who writes", "To the shared file system", WRITERS)] = "all"
    interval: Annotated[float, Slider("Interval", BETWEEN, EVERY)] = 1200.0
    rate: Annotated[float, FILES] = 95e9
    memory: Annotated[float, HOST] = 256e9
    changed: Annotated[float, CHANGE] = 0.1


@on_bench(Setting(), "failures_costs", "failures_ways", fine="")
def four_ways(setting: Setting) -> View:
    """Look for how far the square is from the circle: a cheap checkpoint can be frequent."""
    charts = {"failures_costs": costs_view(setting), "failures_ways": ways_view(setting)}
    copy = float(found(setting, "asynchronous").saving.host_copy)
    fine = f"Every copy fits, {show(copy, 'B')} of {show(setting.memory, 'B')}, and is written in time."
    return View(ways_words(setting), " ".join(ways_walls(setting)), charts, fine)


@lru_cache(maxsize=512)
def found(setting: Setting, way: str) -> Resilience:
    """Return the run under failures with one way to save, at its interval."""
    run = Run(model=setting.model, rate=setting.rate, interval=setting.interval or 1200.0)
    more: dict[str, Any] = {"host_memory": setting.memory, "changed": setting.changed}
    own = predict(experiment(run, way, setting.writers, **more)).resilience
    if setting.interval == BEST:
        best = max(float(own.best), 1.0)
        better = own.prediction.experiment.set({"run.checkpoint_interval": best})
        own = predict(better).resilience
    return own


def costs_view(setting: Setting) -> State:
    """Return the columns of the chart "failures_costs": s until training goes on, and until the state is durable."""
    points = [_cost(way, found(setting, way)) for way in WAYS]
    due = [setting.interval] if setting.interval != BEST else []
    low = min([*due, *(point["blocked"] for point in points)])
    high = max([*due, *(point["safe"] for point in points)])
    words = [f"the next is due: {show(seconds, 's')}" for seconds in due]
    each = "; ".join(
        f"{p['way']}: training stalls for {p['still']}"
        + (f", durable after {p['written']}" if p["split"] else "")
        for p in points
    )
    room = {"x": [low / 3, high * 6]}
    data: Data = {"points": columns(points), "interval": {"x": due, "words": words}, "room": room}
    return data, f"One checkpoint. {each}."


def _cost(way: str, run: Resilience) -> dict[str, Any]:
    blocked, behind = float(run.saving.blocked), float(run.saving.background)
    return {
        "way": way,
        "blocked": blocked,
        "safe": blocked + behind,
        "still": show(blocked, "s"),
        "written": show(blocked + behind, "s"),
        "details": f"{way}: {say.words[way]}",
        "split": behind > 0,
    }


def ways_view(setting: Setting) -> State:
    """Return the columns of the chart "failures_ways": shares of the time that are lost, by cause."""
    bars, ends, kept = [], [], {}
    for way in WAYS:
        run = found(setting, way)
        lost = {part: float(run.shares[part]) for part in LOST}
        kept[way] = float(run.shares["training"])
        bars += [
            {
                "way": way,
                "part": part,
                "start": start,
                "stop": stop,
                "middle": (start + stop) / 2,
                "share": f"{lost[part]:.1%}",
                "hatched": part == "repeated work",
            }
            for part, start, stop in stacked(lost)
        ]
        words = f"{kept[way]:.1%} goodput, every {show(float(run.interval), 's')}"
        ends.append({"way": way, "x": sum(lost.values()), "words": words})
    room = {"x": [0.0, 1.02 * (1 - min(kept.values()))]}
    each = ", ".join(f"{way} {share:.1%}" for way, share in kept.items())
    best = max(kept, key=lambda way: kept[way])
    data: Data = {"bars": columns(bars), "ends": columns(ends), "room": room}
    return data, f"Goodput: {each}. The best is {best}."


def ways_words(setting: Setting) -> str:
    """Say how long each way stalls training, and which loses least."""
    own = {way: found(setting, way) for way in WAYS}
    stop, copied = (float(own[way].saving.blocked) for way in ("synchronous", "asynchronous"))
    ratio = f"{stop / copied:,.0f} times less" if stop > copied else "more: one node copies it all"
    good = {way: float(run.goodput) for way, run in own.items()}
    best = max(good, key=lambda way: good[way])
    return (
        f"<b>Stall: {show(stop, 's')} until all is written, {show(copied, 's')} for a copy</b>, {ratio}."
        f" Goodput is {good['synchronous']:.1%} synchronous, {good['asynchronous']:.1%} asynchronous; the best is"
        f" {best}, {good[best]:.1%}."
    )


def ways_walls(setting: Setting) -> list[str]:
    """Say which copy does not fit, and which write is not done when the next checkpoint is due."""
    walls, copy = [], float(found(setting, "asynchronous").saving.host_copy)
    if copy > setting.memory:
        help_ = "let all nodes write" if setting.writers == "first" else "take more nodes"
        walls.append(
            f"Memory, asynchronous: a host stores {show(copy, 'B')} until it is written, and has"
            f" {show(setting.memory, 'B')}; {help_}."
        )
    for way in ("asynchronous", "multilevel"):
        own = found(setting, way)
        behind, every = float(own.saving.background), float(own.interval)
        if behind > LATE * every:
            walls.append(
                f"Too slow, {way}: the background write takes {show(behind, 's')}, and after"
                f" {show(every, 's')} the next one is due: training waits {show(behind - every, 's')} for each."
            )
    return walls
