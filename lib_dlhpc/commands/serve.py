"""`dlhpc serve predict FILE`, `serve simulate FILE`, `serve run FILE`: what an answer of a language model costs.

`dlhpc serve validate` compares predictions with published measurements.
"""

import argparse
import tomllib
from collections.abc import Mapping, Sequence
from math import floor
from typing import TYPE_CHECKING, Any

from lib_dlhpc.commands.experiment import change
from lib_dlhpc.commands.output import STDIN, add_output, print_result, standard_input
from lib_dlhpc.errors import SpecError

if TYPE_CHECKING:
    from lib_dlhpc.serving import Load, Published, Service, ServicePrediction, ServiceTrace

VERBS = {
    "predict": "bytes, times and costs in closed form",
    "simulate": "every request and every step, next to the prediction",
    "run": "the same requests decoded in numpy, next to prediction and simulation on this machine",
}


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `serve` to the command line."""
    parser = subparsers.add_parser(
        "serve", help="serve a language model: predict, simulate and run it"
    )
    add_output(parser)
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    for (name, words), command in zip(VERBS.items(), (_predict, _simulate, _run), strict=True):
        verb = verbs.add_parser(name, help=words)
        verb.add_argument(
            "service",
            help="a TOML file such as labs/experiments/serving.toml, - for standard input, or a model on a machine such"
            " as llama3-8b@h100-pod",
        )
        verb.add_argument(
            "--set",
            action="extend",
            nargs="+",
            default=[],
            metavar="KEY=VALUE",
            help="change fields: --set service.batch=16 requests.rate=4",
        )
        add_output(verb)
        verb.set_defaults(command=command)
    check = verbs.add_parser("validate", help="compare predictions with published measurements")
    add_output(check)
    check.set_defaults(command=_validate)


def _read(options: argparse.Namespace) -> "Service":
    """Return the service of a file or of standard input, with --set applied. Raises SpecError."""
    from lib_dlhpc.serving import read_service
    from lib_dlhpc.serving.service import tables_of

    if options.service == STDIN:
        try:
            tables = tomllib.loads(standard_input())
        except SpecError:
            raise
        except ValueError as error:
            raise SpecError(f"Not valid TOML: {error}.") from None
    else:
        tables = tables_of(options.service)
    for key, value in map(change, options.set):
        _place(tables, key, value)
    return read_service(tables)


def _place(tables: dict[str, Any], key: str, value: Any) -> None:
    """Set the dotted key of nested tables; a new name removes the other settings beside the old one."""
    *parents, last = key.split(".")
    for parent in parents:
        inner = tables.setdefault(parent, {})
        if isinstance(inner, str):
            inner = tables[parent] = {"name": inner}
        if not isinstance(inner, dict):
            raise SpecError(f"--set {key}: {parent} is a value, not a table.")
        tables = inner
    if last == "name":
        tables.clear()
    tables[last] = value


def _predict(options: argparse.Namespace) -> int:
    from lib_dlhpc.serving import predict_service

    found = predict_service(_read(options))
    print_result(options, found.as_dict(), *predicted_lines(found))
    return 0


def _simulate(options: argparse.Namespace) -> int:
    from lib_dlhpc.serving import predict_service, simulate_service

    service = _read(options)
    found, trace = predict_service(service), simulate_service(service)
    data = {"predicted": found.as_dict(), "simulated": trace.as_dict()}
    ways = {"predicted": _of_load(found), "simulated": _of_trace(trace)}
    print_result(options, data, *trace_lines(trace), *beside(ways))
    return 0


def _run(options: argparse.Namespace) -> int:
    from lib_dlhpc.serving import predict_service, run_service, simulate_service
    from lib_dlhpc.serving.measure import on_this_machine

    service = on_this_machine(_read(options))
    found, trace, real = predict_service(service), simulate_service(service), run_service(service)
    data = {"predicted": found.as_dict(), "simulated": trace.as_dict(), "measured": real.as_dict()}
    ways = {
        "predicted": _of_load(found),
        "simulated": _of_trace(trace),
        "measured": _of_trace(real),
    }
    print_result(options, data, *trace_lines(real), *beside(ways))
    return 0


def _validate(options: argparse.Namespace) -> int:
    from lib_dlhpc.serving import published

    rows, fields = published(), ("quantity", "predicted", "published", "error", "scored", "notes")
    data = {row.name: {field: getattr(row, field) for field in fields} for row in rows}
    print_result(options, data, *published_lines(rows))
    return 0


def published_lines(rows: Sequence["Published"]) -> list[str]:
    """Return measurements beside their predictions, source by source, and the errors of those that are scored."""
    from statistics import median

    lines = []
    for source in dict.fromkeys(row.source for row in rows):
        lines += [
            source,
            f"  {'row':<36} {'predicted':>12} {'published':>12} {'error':>7}  quantity",
        ]
        for row in (row for row in rows if row.source == source):
            lines.append(
                f"  {row.name:<36} {row.predicted:>12,.5g} {row.published:>12,.5g} {row.error:>+z7.1%}"
                f"  {row.quantity}{'' if row.scored else f', not scored: {row.notes}'}"
            )
        lines.append("")
    errors = [abs(row.error) for row in rows if row.scored]
    last = f"{len(errors)} scored: median error {median(errors):.1%}, worst {max(errors):.1%}"
    return [*lines, f"{len(rows)} published rows, {last}"]


def predicted_lines(found: "ServicePrediction") -> list[str]:
    """Return a prediction in words."""
    from lib_dlhpc.serving.predict import named
    from lib_dlhpc.spec.units import format_plain
    from lib_dlhpc.spec.units import format_quantity as shown

    service, load = found.service, found.load
    lines = [
        f"{named(service)}, {service.requests.prompt} + {service.requests.answer} tokens",
        f"  weights {shown(found.weights, 'B')} per device, cache {shown(found.cache_token, 'B')} per token,"
        f" {found.sequences:,} sequences fit; batch {found.batch}",
    ]
    for name, step in (("prefill", found.prefill), ("decode", found.decode)):
        terms = ", ".join(f"{term} {shown(s, 's')}" for term, s in step.terms.items() if s)
        lines.append(f"  {name:<8} {shown(step.total, 's'):>8}, limited by {step.bound}: {terms}")
    if service.draft:
        lines.append(
            f"  {found.tokens:.2f} tokens per step of each sequence, {service.drafts} drafted"
        )
    if found.reuse.tokens:
        lines.append(
            f"  {found.reuse.hit:.0%} of the requests find {found.reuse.tokens:,} tokens of their prompt stored;"
            f" {found.reuse.requests:,.0f} requests fit"
        )
    priced = found.full.cost == found.full.cost
    money = f" {f'{service.machine.currency}/M tokens':>13}" * priced
    lines.append(
        f"  {'batch':>7} {'first token':>12} {'next token':>12} {'tokens/s':>10} {'J/token':>9}{money}"
    )
    for point in found.curve:
        lines.append(
            f"  {point.batch:>7} {shown(point.ttft, 's'):>12} {shown(point.tpot, 's'):>12}"
            f" {format_plain(point.tokens_per_second):>10} {point.joules:>9.3g}"
            + f" {point.cost:>13.3g}"
            * priced
        )
    if load:
        lines += _load_lines(service, load)
    if pools := found.pools:
        serving = service.service
        lines.append(
            f"  {serving.prefill_replicas} of {serving.replicas} replicas read prompts, busy {pools.reading:.0%};"
            f" paths of caches busy {pools.sending:.0%}; places of the others {pools.decoding:.0%}"
        )
    return lines


def _load_lines(service: "Service", load: "Load") -> list[str]:
    """Return the steady state in words, and whether simulations were compared with such."""
    from lib_dlhpc.serving.load import SIMULATED, is_simulated
    from lib_dlhpc.spec.units import format_plain
    from lib_dlhpc.spec.units import format_quantity as shown

    first = f"{load.utilization:.0%} of capacity, first token {shown(load.ttft, 's')}"
    words = _saturated(service, load) if load.saturated else first
    lines = [
        f"  at {service.requests.rate:g} requests/s: {words}, next token {shown(load.tpot, 's')}, batch"
        f" {format_plain(load.batch)}"
    ]
    if not is_simulated(service):
        replicas, answer = SIMULATED
        lines.append(
            "  NOTE  how much other prompts delay tokens was compared with simulations of at most"
            f" {replicas} replicas and answers of at least {answer} tokens; check with dlhpc serve simulate"
        )
    return lines


def _saturated(service: "Service", load: "Load") -> str:
    """Return that more requests arrive than are answered, and with how many replicas they all are, in words."""
    from lib_dlhpc.spec.units import format_plain

    most = load.tokens_per_second / service.requests.answer
    words = f"saturated, {format_plain(most)} are answered and the queue grows without end"
    if service.service.prefill_replicas:
        return words
    enough = floor(service.service.replicas * service.requests.rate / most) + 1
    return f"{words}; service.replicas = {enough} are enough"


def trace_lines(trace: "ServiceTrace") -> list[str]:
    """Return what happened to the requests, in words."""
    from lib_dlhpc.spec.units import count, format_plain
    from lib_dlhpc.spec.units import format_quantity as shown

    lines = [
        f"{count(len(trace.requests), 'request')} in {shown(trace.end, 's')}:"
        f" {format_plain(trace.tokens_per_second)} tokens/s,"
        f" busy {trace.utilization:.0%}, mean batch {trace.mean_batch:.1f}, {count(trace.preemptions, 'preemption')}"
    ]
    if trace.service.service.prefix_block:
        lines.append(f"  {trace.reused.mean():.0%} of the prompts' tokens were stored")
    table = trace.percentiles()
    names = list(next(iter(table.values())))
    lines.append(f"  {'':<8}" + "".join(f"{name:>11}" for name in names))
    for name, row in table.items():
        lines.append(f"  {name:<8}" + "".join(f"{shown(row[each], 's'):>11}" for each in names))
    return lines


def beside(ways: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the engines side by side, one line for each quantity of the first."""
    lines = [f"  {'':<16}" + "".join(f"{name:>12}" for name in ways)]
    for name in next(iter(ways.values())):
        lines.append(f"  {name:<16}" + "".join(f"{way[name]:>12.4g}" for way in ways.values()))
    return lines


def _of_load(found: "ServicePrediction") -> dict[str, float]:
    load, full = found.load, found.full
    if load is None:  # all are there at once: most of the time to the first token is the queue
        return {"tpot, s": full.tpot, "tokens/s": full.tokens_per_second}
    rate = {"tokens/s": load.tokens_per_second} if load.saturated else {"batch": load.batch}
    if found.pools:  # a simulation counts the requests of both pools
        rate.pop("batch", None)
    return {"ttft, s": load.ttft, "tpot, s": load.tpot, **rate}


def _of_trace(trace: "ServiceTrace") -> dict[str, float]:
    means = {name: row["mean"] for name, row in trace.percentiles().items()}
    return {
        "ttft, s": means["ttft"],
        "tpot, s": means.get("tpot", 0.0),
        "tokens/s": trace.tokens_per_second,
        "batch": trace.inside,
    }
