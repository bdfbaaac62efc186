"""`dlhpc couple FILE -n 4`: a simulation that feeds training; wait states, and which placement helps."""

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lib_dlhpc.commands.output import STDIN, add_output, failed, print_result, standard_input
from lib_dlhpc.errors import SpecError

if TYPE_CHECKING:
    from lib_dlhpc.launch.coupled import CoupledResult
    from lib_dlhpc.prediction.communication.coupled import CoupledPrediction
    from lib_dlhpc.spec.workflow import Workflow
    from lib_dlhpc.timeline.analysis import Finding

MOST_RANKS = 256
MOST_FINDINGS = 3
WORTH = 0.03  # fraction of the run's time that a better placement must save to be tried


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `couple` to the command line."""
    one = subparsers.add_parser(
        "couple",
        help="run a simulation that feeds training; compare prediction, simulation and run; find wait states",
        description="Measures the costs here, and runs the workflow on MPI ranks. Compares the closed form, the"
        " simulation and the run. If another placement of the ranks is predicted to be faster, runs that as well.",
    )
    one.add_argument(
        "workflow",
        help="a TOML file such as labs/experiments/coupled.toml, or - for standard input",
    )
    one.add_argument("-n", "--ranks", type=int, default=2, help="MPI ranks (default: 2)")
    one.add_argument(
        "--placement",
        metavar="PLACEMENT",
        help="overrides the file: shared, or the number of ranks that simulate while the others train",
    )
    one.add_argument("--once", action="store_true", help="do not run the better placement")
    one.add_argument("--out", metavar="DIR", help="keep the runs there, in before/ and after/")
    add_output(one)
    one.set_defaults(command=_couple)


@dataclass(frozen=True, eq=False)
class ThreeWays:
    """One placement: predicted, simulated and measured."""

    workflow: "Workflow"
    predicted: "CoupledPrediction"
    terms: dict[str, dict[str, float]]  # s of the mean rank; by term, then by engine
    result: "CoupledResult"

    @property
    def waited(self) -> float:
        """Measured s that the mean rank waited for the other side."""
        return sum(self.terms[name]["measured"] for name in ("wait for samples", "wait for room"))


def _couple(options: argparse.Namespace) -> int:
    from lib_dlhpc.launch import JobError
    from lib_dlhpc.prediction.communication.coupled import placements
    from lib_dlhpc.spec.workflow import load, loads

    described = loads(standard_input()) if options.workflow == STDIN else load(options.workflow)
    workflow = _placed(described, options.placement)
    if not 1 <= options.ranks <= MOST_RANKS:
        raise SpecError(f"--ranks {options.ranks}: legal: a whole number from 1 to {MOST_RANKS}.")
    workflow.sides(options.ranks)
    out = Path(options.out) if options.out else None
    try:
        before = three_ways(workflow, options.ranks, out and out / "before")
        ways = placements(workflow, before.result.costs, options.ranks)
        best, after = ways[0], None
        if best.seconds < (1 - WORTH) * before.predicted.seconds and not options.once:
            better = workflow.placed(best.placement, best.simulating)
            after = three_ways(better, options.ranks, out and out / "after")
    except JobError as error:
        return failed(error)
    print_result(options, as_dict(before, ways, after), as_text(before, ways, after))
    return 0


def _placed(workflow: "Workflow", who: str | None) -> "Workflow":
    """Return the workflow with the placement of --placement."""
    if who is None:
        return workflow
    if who == "shared":
        return workflow.placed("shared")
    if not who.isascii() or not who.isdigit() or int(who) < 1:
        raise SpecError(
            f"--placement {who}: legal: shared, or the number of ranks that simulate, at least 1."
        )
    return workflow.placed("separate", int(who))


def three_ways(workflow: "Workflow", ranks: int, folder: Path | None = None) -> ThreeWays:
    """Run a workflow, then predict and simulate it with the measured costs of the run."""
    from lib_dlhpc.launch.coupled import run_coupled
    from lib_dlhpc.prediction.communication.coupled import predict_coupled
    from lib_dlhpc.simulation.coupled import simulate_coupled
    from lib_dlhpc.timeline.coupled import mean_terms

    result = run_coupled(workflow, ranks, folder)
    predicted = predict_coupled(workflow, result.costs, ranks)
    simulated = mean_terms(simulate_coupled(workflow, result.costs, ranks))
    measured = mean_terms(result.timeline, result.seconds)
    terms = {
        name: {"predicted": value, "simulated": simulated[name], "measured": measured[name]}
        for name, value in predicted.terms.items()
    }
    return ThreeWays(workflow, predicted, terms, result)


def as_text(before: ThreeWays, ways: list["CoupledPrediction"], after: ThreeWays | None) -> str:
    """Return the result as text."""
    workflow, result = before.workflow, before.result
    costs = result.costs
    lines = [
        f"{workflow.batches} batches of {workflow.batch} fields, one field every"
        f" {workflow.simulation.sampling} steps; at most {workflow.coupling.depth} batches between the two.",
        f"Costs here: {costs.small_step * 1e6:.3g} us + {costs.point * 1e9:.3g} ns per point and small step,"
        f" {costs.update * 1e3:.3g} ms + {costs.sample * 1e3:.3g} ms per sample and training step,"
        f" {costs.latency * 1e6:.3g} us + {costs.byte * 1e9:.3g} ns per byte of a message; they vary by"
        f" {costs.jitter:.1%}.",
    ]
    if result.ranks > result.cores:
        lines.append(
            f"{result.ranks} ranks share {result.cores} cores: a waiting rank yields its core, so"
            " neither the closed form nor the simulation holds for these runs."
        )
    lines += [
        "",
        *table_of(before),
        "",
        *waits_of(before),
        *_learned(before),
        "",
        "Predicted, best first:",
    ]
    lines += [f"  {_named(way):<28} {way.seconds:8.3f} s{_mark(way, before)}" for way in ways[:6]]
    if after is None:
        lines.append(f"No other placement is predicted to save more than {WORTH:.0%}.")
        return "\n".join(lines)
    lines += [
        "",
        *table_of(after),
        "",
        *waits_of(after),
        *_learned(after),
        "",
        gain_of(before, after),
    ]
    return "\n".join(lines)


def as_dict(
    before: ThreeWays, ways: list["CoupledPrediction"], after: ThreeWays | None
) -> dict[str, Any]:
    """Return the result as plain data, in SI units."""

    def one(way: ThreeWays) -> dict[str, Any]:
        result = way.result
        table = {key: getattr(result, key) for key in ("ranks", "cores", "seconds", "steps")}
        table |= {"errors": list(result.errors), "diffusivity": result.diffusivity}
        table |= {"findings": [finding.sentence for finding in _findings(way)]}
        table |= {"costs": asdict(result.costs), "terms": way.terms}
        return table | {"predicted": asdict(way.predicted), "waited": way.waited}

    return {
        "before": one(before),
        "placements": [asdict(way) for way in ways],
        "after": one(after) if after else None,
    }


def table_of(way: ThreeWays) -> list[str]:
    """Return the lines of the terms of a workflow, three ways."""
    engines = ("predicted", "simulated", "measured")
    rows = [*way.terms.items()]
    whole = {engine: sum(term[engine] for _, term in rows) for engine in engines}
    lines = ["Mean of the ranks:"]
    lines += [f"{_named(way.predicted):<28}" + "".join(f"{engine:>12}" for engine in engines)]
    for name, term in [*rows, ("the run", whole)]:
        lines.append(f"  {name:<26}" + "".join(f"{term[engine]:>10.3f} s" for engine in engines))
    off = [whole[engine] / whole["measured"] - 1 for engine in engines[:2]]
    lines.append(f"  off by{off[0]:>+z32.1%}{off[1]:>+z12.1%}")
    return lines


def waits_of(way: ThreeWays) -> list[str]:
    """Return the wait states and their causes."""
    from lib_dlhpc.timeline.coupled import coupled_terms

    terms = coupled_terms(way.result.timeline, way.result.seconds)
    lines: list[str] = []
    for name in sorted(_WHY, key=lambda name: -float(terms[name].max())):
        rank = int(terms[name].argmax())
        waited = float(terms[name][rank])
        if waited > WORTH * way.result.seconds:
            why = "." if lines else f": {_WHY[name]}"  # only one side is the bottleneck
            lines.append(f"Rank {rank} waits {waited:.3g} s {name.removeprefix('wait ')}{why}")
    if not lines:
        lines.append("No rank waits for the other side.")
    lines += [f"In the trace, caused by one rank: {finding.sentence}" for finding in _findings(way)]
    p, c = way.predicted.produce, way.predicted.consume
    return [*lines, f"A batch takes {p * 1e3:.3g} ms to generate and {c * 1e3:.3g} ms to train on."]


def _findings(way: ThreeWays) -> "list[Finding]":
    """Return the findings of the trace analysis, the most expensive first."""
    from lib_dlhpc.timeline.analysis import analyze

    return analyze(way.result.timeline).findings[:MOST_FINDINGS]


_WHY = {
    "wait for samples": "the simulation is the bottleneck.",
    "wait for room": "training is the bottleneck, and the buffer is full.",
}


def _learned(way: ThreeWays) -> list[str]:
    (first, last), result = way.result.errors, way.result
    extra = result.steps - way.workflow.batches
    again = f" ({extra} of them on repeated batches)" if extra else ""
    return [
        f"Trained in {result.steps} steps{again}: error on unseen fields {first:.3g} -> {last:.3g} of their"
        f" change, diffusivity {result.diffusivity:.4g} of {way.workflow.simulation.diffusivity:g} 1/s."
    ]


def gain_of(before: ThreeWays, after: ThreeWays) -> str:
    """Return the sentence on what another placement of the workflow gains."""
    import numpy as np

    text = (
        f"Before {before.result.seconds:.3f} s, after {after.result.seconds:.3f} s; waits for the other side"
        f" {before.waited:.3f} s -> {after.waited:.3f} s of the mean rank."
    )
    if after.result.seconds >= before.result.seconds:
        term = max(after.terms, key=lambda name: _excess(after, name))
        text += (
            f" Here that was not faster: {term} took {_excess(after, term):.3g} s more than predicted; are"
            " other processes running, or are there more ranks than cores?"
        )
    if before.result.steps == after.result.steps:
        apart = np.abs(before.result.weights - after.result.weights).max()
        text += f" Training is unchanged: weights differ by at most {apart:.1e}."
    return text


def _excess(way: ThreeWays, term: str) -> float:
    return way.terms[term]["measured"] - way.terms[term]["predicted"]


def _named(way: "CoupledPrediction") -> str:
    if way.placement == "shared":
        return f"shared: {way.simulating} do both"
    return f"separate: {way.simulating} + {way.training}"


def _mark(way: "CoupledPrediction", before: ThreeWays) -> str:
    return "   as described" if _named(way) == _named(before.predicted) else ""
