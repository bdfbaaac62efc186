"""`dlhpc simulate FILE`: steps of a run simulated on every rank, beside the prediction."""

import argparse

from lib_dlhpc.commands.experiment import add_experiment
from lib_dlhpc.commands.on_machine import add_machine, known_of, read_on_machine
from lib_dlhpc.commands.output import add_output, failed, print_result
from lib_dlhpc.commands.scale_out import OF_A_BATCH_SYSTEM, add_scale_out, place_of
from lib_dlhpc.errors import SpecError


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `simulate` to the command line."""
    simulated = subparsers.add_parser(
        "simulate", help="simulate steps of a run on every rank, next to the prediction"
    )
    add_experiment(simulated)
    add_machine(simulated)
    simulated.add_argument(
        "--fidelity",
        default="rounds",
        help="rounds (default): messages between two ranks stay in order and contend only at the NICs;"
        " events: messages contend for links",
    )
    simulated.add_argument("--seed", type=int, help="seed of the jitter (default: run.seed)")
    simulated.add_argument(
        "--steps", type=int, default=1, help="training steps to simulate (default: 1)"
    )
    simulated.add_argument(
        "--trace", metavar="FILE", help="write the timeline as JSON for Chrome and Perfetto"
    )
    simulated.add_argument(
        "--messages",
        type=int,
        metavar="N",
        help="with --trace and events: write the first N messages too (default: 50,000)",
    )
    simulated.add_argument(
        "--message-limit",
        type=int,
        metavar="N",
        help="with events: simulate up to N messages (default: 5,000,000, about four minutes)",
    )
    simulated.add_argument(
        "--seeds",
        type=int,
        metavar="N",
        help="simulate with each of N seeds, and print mean, standard deviation and percentiles of the terms",
    )
    add_scale_out(simulated)
    add_output(simulated)
    simulated.set_defaults(command=_simulate)


def _seeds(options: argparse.Namespace) -> int:
    """Simulate with many seeds; --on says where."""
    from lib_dlhpc.scale_out import LostError
    from lib_dlhpc.scale_out.seeds import simulate_seeds

    for name in ("trace", "messages", "message_limit"):
        if getattr(options, name) is not None:
            raise SpecError(
                f"--{name.replace('_', '-')}: is for a single simulation, not for --seeds."
            )
    experiment, _ = read_on_machine(options)
    where = place_of(options)
    try:
        found = simulate_seeds(
            experiment, options.seeds, options.fidelity, options.steps, options.seed, where
        )
    except LostError as error:
        return failed(error)
    title, facts, header, rows, _ = found.summary()
    lines = [title, *(f"  {name}: {text}" for name, text in facts.items()), ""]
    for first, *rest in [tuple(header), *rows]:
        lines.append(f"  {first:<25}{''.join(f'{cell:>11}' for cell in rest)}")
    print_result(options, {"fidelity": found.fidelity, **found.to_columns()}, *lines)
    return 0


def _refuse_scale_out(options: argparse.Namespace) -> None:
    """Raise SpecError for options of many simulations."""
    given = [getattr(options, name) for name in ("work", *OF_A_BATCH_SYSTEM)]
    if options.on != "here" or any(each is not None for each in given):
        raise SpecError("--on, --work and the options of jobs need --seeds N.")


def _simulate(options: argparse.Namespace) -> int:
    if options.seeds is not None:
        return _seeds(options)
    _refuse_scale_out(options)
    from lib_dlhpc.prediction import predict
    from lib_dlhpc.simulation import compare, staleness
    from lib_dlhpc.simulation.step_terms import measure
    from lib_dlhpc.simulation.terminal import simulate_here, terms_here

    experiment, notes = read_on_machine(options)
    prediction = predict(experiment)
    predicted = {name: float(seconds) for name, seconds in prediction.terms.items()}
    joules = float(sum(prediction.energy.values()))
    heading = compare.heading(experiment, options.fidelity, options.steps, predicted)
    heading = "" if options.json else heading
    asynchronous = experiment.strategy.update == "asynchronous"
    rows = asynchronous or options.fidelity != "rounds"
    timeline = None
    if not rows and options.trace is None and options.messages is None:
        found = terms_here(experiment, options.seed, options.steps, heading)
    else:
        timeline = simulate_here(
            experiment,
            options.fidelity,
            options.seed,
            options.steps,
            options.trace,
            options.messages,
            options.message_limit,
            heading,
        )
        found = measure(experiment, timeline)
    result = (experiment, options.fidelity, found)
    known = known_of(experiment, notes)
    held = known.carried(predicted, found.terms)
    stale = timeline if asynchronous else None
    if options.json:
        table = compare.as_dict(*result, predicted)
        if held:
            table |= {"bands": held, "predicted_bands": known.bands}
            table["calibration"] = known.calibration
        table |= {"notes": list(known.notes)} if known.notes else {}
        table |= {"staleness": staleness.as_dict(stale)} if stale is not None else {}
        print_result(options, table)
    else:
        print("\n".join([compare.as_text(*result, predicted, held, joules), *known.lines]))
        if stale is not None:
            print(staleness.report(stale))
    return 0
