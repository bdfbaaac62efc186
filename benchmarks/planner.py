"""Speed of a planner's questions: predictions of layouts one by one and at once, and lower bounds, a CPU second.

    python benchmarks/planner.py

GPT-3 (175 billion parameters) on 1,024 A100 of Selene, global batch 1,536. Rates depend on the machine; the number of
layouts that have to be predicted does not. Where Calculon or mlsysim is installed (benchmarks/peers.py says how), it is
asked for steps of the same random layouts in the same run. Then one space that Calculon searches, too: the best by
each, priced by both, and the ratio of their CPU times; without Calculon, with its answers as kept in
planner_calculon.csv (--store asks it and keeps them). Then the search on 50 small spaces, each enumerated: its regret
with predictions of 5% of the layouts, and the predictions until the best is proved.
"""

import argparse
import random
import time
from importlib.util import find_spec
from math import inf

import _calculon_space
import _peer_calculon
import _peer_mlsysim
from _quick import add_quick

from lib_dlhpc.errors import SpecError
from lib_dlhpc.labs.race_the_planner.race import ours
from lib_dlhpc.labs.race_the_planner.tracks import tracks_of
from lib_dlhpc.planner import plan
from lib_dlhpc.planner.bound import bound
from lib_dlhpc.planner.prices import predicted
from lib_dlhpc.planner.search_space import Space, space
from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.spec.experiment import Experiment

PEERS = {"calculon": _peer_calculon, "mlsysim": _peer_mlsysim}
SPACES, SHARE = 50, 0.05  # small spaces; predictions over layouts


def main() -> None:
    """Print the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_quick(parser)
    parser.add_argument("--store", action="store_true", help="keep Calculon's search")
    options = parser.parse_args()
    run = _calculon_space.experiment()
    choose = {"pipeline": [8], "microbatches": [24]} if options.quick else {}
    combinations = space(run, choose)
    count = len(combinations)
    print(f"layouts: {count:,} legal, {sum(combinations.left_out.values()):,} left out")
    for name in ("cold", "warm"):
        began = time.process_time()
        bound(run, combinations)
        print(f"lower bounds, {name}: {count / (time.process_time() - began):,.0f} a CPU second")
    rows = random.Random(1).sample(range(count), 3 if options.quick else 200)
    for name in ("cold", "warm"):
        began = time.process_time()
        for row in rows:
            try:
                predict(run.set(combinations.changes(row)))
            except SpecError:
                continue
        rate = len(rows) / (time.process_time() - began)
        print(f"predictions of random layouts, {name}: {rate:,.1f} a CPU second")
    rates, rows = dict[str, float](), random.Random(2).sample(range(count), count)
    many = 10 if options.quick else 3000
    questions = {
        "cold": rows[:many],
        "the same again": rows[:many],
        "others": rows[many : 2 * many],
    }
    for name, some in questions.items():
        rates[name] = at_once(run, combinations, name, some)
    layouts = [run.set(combinations.changes(row)) for row in rows[:200]]
    for name in PEERS:
        beside(name, layouts, rates)
    for name in ("first", "again"):
        began = time.process_time()
        best = plan(run, choose=choose, most=5 if options.quick else None)
        spent = time.process_time() - began
        print(f"plan, {name}: {spent:.1f} CPU s, {best.predicted} predicted, {best.certificate}")
    same_space(run, options.quick, options.store)
    small_spaces(1 if options.quick else SPACES)


def at_once(run: Experiment, combinations: Space, name: str, rows: list[int]) -> float:
    """Print how many layouts are predicted at once a CPU second; return that."""
    columns = {field: each[rows] for field, each in combinations.columns.items()}
    began = time.process_time()
    found = list(predicted(run, columns))
    rate = len(rows) / (time.process_time() - began)
    fit = sum(len(some) for some, one in found if isinstance(one, Breakdown))
    print(
        f"{len(rows):,} random layouts at once, {name}: {rate:,.1f} a CPU second, {fit:,} of them fit"
    )
    return rate


def beside(name: str, layouts: list[Experiment], ours: dict[str, float]) -> None:
    """Print how many steps a peer predicts a CPU second, and the ratio of our rate to that."""
    if find_spec(name) is None:
        print(f"{name}: not installed")
        return
    answered, began = 0, 0.0
    for number, one in enumerate([layouts[0], *layouts]):
        if number == 1:  # the first call reads its modules and files
            answered, began = 0, time.process_time()
        try:
            PEERS[name].step_time(one)
        except SpecError:  # it has no word for this layout
            continue
        answered += 1
    rate = len(layouts) / (time.process_time() - began)
    print(
        f"{name}: {rate:,.1f} a CPU second, {answered} of {len(layouts)} answered; ours at once: "
        + ", ".join(f"{one / rate:,.1f} times that {which}" for which, one in ours.items())
    )


def same_space(run: Experiment, quick: bool, keep: bool) -> None:
    """Print the best of one space by our search and by Calculon's, each priced by both, and the ratio of CPU times."""
    here = find_spec("calculon") is not None
    began = time.process_time()
    live = _calculon_space.asked(run, 10 if quick else None) if here else {}
    spent = time.process_time() - began
    if keep and here and not quick:
        _calculon_space.store(live)
    theirs = live if here and not quick else _calculon_space.stored()
    for name in ("first", "again"):
        began = time.process_time()
        found = plan(run, choose=_calculon_space.CHOOSE, most=5 if quick else None)
        taken = time.process_time() - began
        print(f"one space, {name}: {found.legal:,} layouts, {taken:.1f} CPU s, {found.certificate}")
        if here:
            print(f"the same, Calculon: {spent:.1f} CPU s, {spent / taken:.1f} times that")
    ours = {_calculon_space.layout_of(one.changes): one for one in found.ranked}
    both = [layout for layout in ours if layout in theirs]
    least, best = min(theirs.values()), min(both, key=theirs.__getitem__)
    print(
        f"our best by Calculon: {theirs[both[0]] / least - 1:.1%} above its best; {found.best.words}"
    )
    regret = ours[best].values["step"] / found.best.values["step"] - 1
    print(
        f"Calculon's best that fits here, by ours: {regret:.1%} above our best; {ours[best].words}"
    )


def small_spaces(count: int) -> None:
    """Print how often the search finds the exact best of small spaces, its worst regret, and what a proof takes."""
    seeds = range(-(-count // 3))
    tracks = [track for seed in seeds for track in tracks_of(seed)][:count]
    regrets, proofs = [], []
    for track in tracks:
        layouts = len(track.layouts)
        try:
            regrets.append(ours(track, max(1, int(SHARE * layouts)))[0])
        except SpecError:  # nothing that fits was found
            regrets.append(inf)
        proofs.append(ours(track, layouts)[1] / layouts)
    exact, near = (sum(regret <= most for regret in regrets) for most in (1e-9, 0.01))
    print(
        f"{count} small spaces, predictions of {SHARE:.0%} of the layouts: exact best in {exact}, regret of at most 1%"
        f" in {near}, worst {max(regrets):.1%}; proved after {sum(proofs) / count:.0%} of the layouts on average"
    )


if __name__ == "__main__":
    main()
