"""The batch as a choice: each is a run of its own, with the epochs that it needs to meet run.target.

More epochs are what a larger batch costs, so a plan compares time and energy to the target. Where nobody has measured
what a batch does to accuracy, it stays as in the file.
"""

from collections import Counter
from dataclasses import replace

from lib_dlhpc.convergence import epochs_of, verdict
from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment


def of_batches(experiment: Experiment) -> tuple[list[Experiment], Counter[str], str]:
    """Return the run of each batch of the [plan], batches that are refused by reason, and what is known of accuracy.

    A run has one batch in its [plan], whatever the layout of the file, and runs are in the order of their batches.
    Without batches in the [plan] that is the experiment as it is. Raises SpecError if every batch is refused.
    """
    asked = experiment.plan.batch
    if not asked:
        return [experiment], Counter(), ""
    runs, refused = list[Experiment](), Counter[str]()
    for batch in sorted(asked):
        run = replace(experiment, plan=replace(experiment.plan, batch=(batch,)))
        offered, reason = verdict(alone(run), experiment)
        if not offered:
            refused[f"batch of {batch:,}: {reason}"] += 1
            continue
        if (found := epochs_of(alone(run))).known:
            run = replace(run, run=replace(run.run, epochs=float(found.epochs)))
        runs.append(run)
    if not runs:
        raise SpecError(f"plan.batch: every batch is refused: {'; '.join(refused)}.")
    return runs, refused, epochs_of(alone(runs[0])).reason


def samples(experiment: Experiment) -> int:
    """Return the global batch of a run: the one of its [plan], or else its own."""
    asked = experiment.plan.batch
    return asked[0] if len(asked) == 1 else int(experiment.global_batch)


def alone(experiment: Experiment) -> Experiment:
    """Return a run with its global batch on one device: what its steps and epochs are, whatever the layout."""
    strategy = replace(
        experiment.strategy,
        nodes=1,
        devices_per_node=1,
        tensor=1,
        pipeline=1,
        spatial=1,
        context=1,
        batch=samples(experiment),
    )
    return replace(experiment, strategy=strategy)
