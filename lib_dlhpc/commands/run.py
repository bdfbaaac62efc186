"""`dlhpc run FILE`: train for real, on MPI ranks of this machine."""

import argparse
from pathlib import Path
from typing import Any

from lib_dlhpc.commands.experiment import add_experiment, add_run, folder_of, ranks_of, read
from lib_dlhpc.commands.output import add_output, failed, print_result
from lib_dlhpc.errors import SpecError


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `run` to the command line."""
    real = subparsers.add_parser("run", help="train for real, on MPI ranks of this machine")
    add_experiment(real, held=" (default: the one of --resume or --from)")
    add_run(real)
    add_output(real)
    real.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from lib_dlhpc.comparison.here import step_here
    from lib_dlhpc.launch import JobError
    from lib_dlhpc.launch.energy import counters, energy_lines, run_energy
    from lib_dlhpc.launch.terminal import run_here
    from lib_dlhpc.prediction.limits import rank_limits

    experiment = read(options.experiment or _held(options), options.set)
    ranks = ranks_of(experiment, options.ranks, options.resume)
    predicted, step = rank_limits.check_fits(experiment), step_here(experiment, ranks)
    folder, found = folder_of(options), dict[str, Any]()
    before = counters()

    def beside(result: dict[str, Any]) -> list[str]:
        found.update(result)
        lines = rank_limits.result_lines(experiment, predicted, result, step_words=step)
        if not any(result["terms"].values()):  # nothing was left to do
            return lines
        found["energy"] = run_energy(experiment, result, before, counters())
        return [*lines, *energy_lines(found["energy"])]

    try:
        text = run_here(
            experiment,
            ranks,
            Path(folder) if folder else None,
            bool(options.resume),
            beside,
            options.snapshot_every,
            options.origin,
        )
    except JobError as error:
        return failed(error)
    where = text.rpartition("run folder: ")[2]  # the last line names it, also a temporary one
    print_result(options, found | {"folder": where}, text)
    return 0


def _held(options: argparse.Namespace) -> str:
    """Return the experiment of the run to resume or branch from."""
    option, run = "--resume", options.resume
    if not run:
        before, at, _ = (options.origin or "").rpartition("@")
        option, run = "--from", before if at else options.origin
    if not run:
        raise SpecError("dlhpc run: name an experiment, or a run folder with --resume or --from.")
    path = Path(run) / "experiment.toml"
    if not path.exists():
        there = "holds no run" if Path(run).is_dir() else "no such run folder"
        raise SpecError(f"{option} {run}: {there}: {path} is not there.")
    return str(path)
