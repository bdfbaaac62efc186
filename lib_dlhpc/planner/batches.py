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

    Without batches in the [plan] that is the experiment as it is. Raises SpecError for a batch that the replicas of the
    experiment do not divide, or if every batch is refused.
    """
    asked = experiment.plan.batch
    if not asked:
        return [experiment], Counter(), ""
    runs, refused = list[Experiment](), Counter[str]()
    for batch in asked:
        run = _with_batch(experiment, batch)
        offered, reason = verdict(run, experiment)
        if not offered:
            refused[f"batch of {batch:,}: {reason}"] += 1
            continue
        if (found := epochs_of(run)).known:
            run = replace(run, run=replace(run.run, epochs=float(found.epochs)))
        runs.append(run)
    if not runs:
        raise SpecError(f"plan.batch: every batch is refused: {'; '.join(refused)}.")
    return runs, refused, epochs_of(runs[0]).reason


def _with_batch(experiment: Experiment, batch: int) -> Experiment:
    """Return the experiment with a global batch."""
    replicas = int(experiment.devices // experiment.strategy.replica)
    if batch % replicas:
        raise SpecError(
            f"plan.batch: {batch:,}: expected multiples of the {replicas:,} replicas of the experiment."
        )
    return experiment.set({"strategy.batch": batch // replicas})
