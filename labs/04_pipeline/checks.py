"""Checks of lab 4: are the streams proven, short and thrifty, and does the step that carries them out equal one rank?

In the notebook:   check_streams(gpipe, one_f_one_b), check(step, gpipe, one_f_one_b, NAME),
                   picture(one_f_one_b, NAME, microbatches), on_ranks(step, gpipe, one_f_one_b, NAME)
In a terminal:     python checks.py step.py "your name"                  emulated ranks
                   mpiexec -n 4 python checks.py step.py "your name"     real ranks; srun works as well
"""

import inspect
from itertools import islice, pairwise
from pathlib import Path

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.labs.lab import save_and_run, say, show
from lib_dlhpc.labs.attempts import report
from lib_dlhpc.labs.emulated.pipeline_machine import (
    RANKS,
    best,
    choices,
    experiment_of,
    one_device,
    seconds,
    simulated_on,
)
from lib_dlhpc.labs.emulated.pipeline_step import (
    alone,
    emulate_stages,
    joined,
    one_stage,
    staged_task,
    stages_off,
)
from lib_dlhpc.labs.emulated.ranks import Endless, LabError, emulate
from lib_dlhpc.labs.findings import broken, later, passed, seed_of
from lib_dlhpc.labs.findings import kept as holds
from lib_dlhpc.labs.program import arguments, end_together, end_with, handed_in, report_stuck
from lib_dlhpc.schedules import PIPELINES, ProofError, prove_pipeline
from lib_dlhpc.schedules.pipeline import Backward, Forward, Pipeline, Receive, Send
from lib_dlhpc.schedules.pipeline_proof import bubble, stored_chunks
from lib_dlhpc.spec.units import format_quantity as show_quantity

HERE = Path(__file__).parent
NEAR = 1e-10  # relative, in float64
SHAPES = ((2, 4), (3, 5), (4, 8), (4, 3), (4, 1))  # ranks, microbatches
LONGEST = 10_000  # instructions of a stream
MARGIN = 0.02  # above the best step that the simulation finds
GPIPE = "GPipe: proven, and the bubble is (p-1)/m"
ONE = "1F1B: proven, and the bubble is (p-1)/m"
KEPT = "1F1B: rank r stores at most p - r microbatches"
OWNED = "A received activation is intact at its backward"
WAITED = "Every message is waited for"
SINGLE, EVEN, UNEVEN = "One microbatch", "Even microbatches, GPipe", "Uneven microbatches, 1F1B"
LOSS = "The last rank returns the loss of the whole batch"
TARGET = f"Target: within {MARGIN:.0%} of the best step on your machine"
# Not in the cell of the guess, which it would give away.
FILL = "The pipeline has to fill and drain: a rank is idle in three of eleven turns."
STREAMS, STEP = (GPIPE, ONE, KEPT), (OWNED, WAITED, SINGLE, EVEN, UNEVEN, LOSS, TARGET)


def tasks(name, ranks=RANKS):
    """Return the learner's own tasks: law -> (task, name of its pipeline)."""
    rng = np.random.default_rng(seed_of(name))
    few, many = (int(rng.integers(*bounds)) for bounds in ((3, 6), (5, 8)))
    each, seed = int(rng.integers(2, 5)), int(rng.integers(1000))
    rate, fewer = round(float(rng.uniform(0.1, 0.4)), 2), max(ranks - 1, 1)
    uneven = each * many + int(rng.integers(1, many))
    return {
        SINGLE: (staged_task(seed, ranks, 2 * each, 1, rate), "1f1b"),
        EVEN: (staged_task(seed, fewer, each * few, few, rate), "gpipe"),
        UNEVEN: (staged_task(seed, ranks, uneven, many, rate), "1f1b"),
    }


def pipeline_of(stream, ranks, microbatches):
    """Return what the learner's function makes as a Pipeline. Raises LabError: see `emulate`."""

    def program(comm):
        made = list(islice(stream(comm.rank, ranks, microbatches), LONGEST + 1))
        wrong = [do for do in made if not isinstance(do, Forward | Backward | Send | Receive)]
        if wrong:
            raise LabError(f"rank {comm.rank} got {wrong[0]!r}, which is not an instruction.")
        if len(made) > LONGEST:
            raise LabError(f"The stream of rank {comm.rank} does not end.")
        return tuple(made)

    name = getattr(stream, "__name__", "yours")
    return Pipeline(name, ranks, microbatches, 1, tuple(emulate(ranks, program)))


def streams(gpipe, one_f_one_b):
    """Return what holds for the streams."""
    return [short(GPIPE, gpipe), short(ONE, one_f_one_b), thrifty(one_f_one_b)]


def check_streams(gpipe, one_f_one_b):
    """Return the findings on the streams for the page."""
    return show(streams(gpipe, one_f_one_b), "Your streams")


def findings(step, gpipe, one_f_one_b, name):
    """Return what holds for streams and step, on emulated ranks and on the learner's machine."""
    result = streams(gpipe, one_f_one_b)
    both = {"gpipe": gpipe, "1f1b": one_f_one_b}
    own = {kind: both[kind] if law.right else None for kind, law in zip(both, result, strict=False)}
    try:
        return [*result, *_step(step, own, name, all(each.right for each in result))]
    except Endless as error:  # nobody waits for the same again
        return [*result, *map(later, STEP[:2]), broken(SINGLE, str(error)), *map(later, STEP[3:])]


def check(step, gpipe, one_f_one_b, name):
    """Return all findings for the page."""
    return show(findings(step, gpipe, one_f_one_b, name), "Your pipeline on emulated ranks")


def short(law, stream):
    """Whether the stream is proven on all shapes, and how long ranks are idle."""
    for ranks, microbatches in SHAPES:
        where = _shape(ranks, microbatches)
        try:
            pipeline = pipeline_of(stream, ranks, microbatches)
            spans = prove_pipeline(pipeline)
        except (LabError, ProofError) as error:
            return broken(law, f"Nothing is proven: {where}: {error}")
        least, found = (ranks - 1) / microbatches, bubble(pipeline)
        if found > 1.001 * least:
            work = [s for s in spans if s.stop > s.start and not isinstance(s.instruction, Receive)]
            ends = sorted((s.start, s.stop) for s in work)
            alone_ = all(b[0] >= a[1] for a, b in pairwise(ends))
            why = (
                " No two ranks ever compute at the same time: must a microbatch finish before "
                "the next one starts?"
                if alone_
                else " Which rank waits for something that could have been sent earlier?"
            )
            return broken(
                law,
                f"It is proven; but with {where} a rank is idle {found:.3g} times as long as it computes,"
                f" and (p-1)/m is {least:.3g}.{why}",
            )
    return holds(law, "On 2, 3 and 4 ranks, also with fewer microbatches than ranks.")


def _shape(ranks, microbatches):
    return f"{ranks} ranks, {microbatches} microbatch{'es' * (microbatches > 1)}"


def thrifty(stream):
    """Whether ranks keep no more activations than fill the pipe."""
    for ranks, microbatches in SHAPES:
        try:
            pipeline = pipeline_of(stream, ranks, microbatches)
            prove_pipeline(pipeline)
        except (LabError, ProofError):
            return later(KEPT)
        for rank, most in enumerate(stored_chunks(pipeline)):
            if most > min(ranks - rank, microbatches):
                return broken(
                    KEPT,
                    f"{_shape(ranks, microbatches)}: rank {rank} keeps the activations of {most} at once;"
                    f" {min(ranks - rank, microbatches)} fill the pipe. What could be freed "
                    "before the next forward?",
                )
    return holds(KEPT, "However many microbatches there are.")


def _step(step, own, name, right):
    def run(task, kind):
        given = own[kind]
        shape = task.ranks, task.microbatches
        pipeline = pipeline_of(given, *shape) if given else PIPELINES[kind](*shape)
        return emulate_stages(step, pipeline.streams, task), pipeline, "" if given else kind

    result = carried_out(run, name)
    return [*result, _target(own["1f1b"], name, right and passed(result))]


def carried_out(run, name):
    """Return what holds for the learner's tasks. run(task, kind): what each rank did, the pipeline, what was lent."""
    emulated, result, reported = {}, {}, set()
    for law, (task, kind) in tasks(name).items():
        try:
            emulated[law], pipeline, lent = run(task, kind)
            result[law] = _equal(law, task, emulated[law], pipeline, lent)
        except Endless:
            raise
        except LabError as error:
            words = "As above." if str(error) in reported else str(error)
            reported.add(str(error))
            result[law] = broken(law, words)
    return [_owned(emulated), _waited(emulated), *result.values(), _loss(emulated, name)]


def _equal(law, task, emulated, pipeline, lent=""):
    expected, _ = alone(task)
    worst = float(np.max(np.abs(joined(emulated) - expected)) / np.max(np.abs(expected)))
    parts = np.array_split(np.arange(task.batch), task.microbatches)
    about = f"{task.ranks} ranks, microbatches of {', '.join(str(len(part)) for part in parts)}"
    if lent:
        about += f" (with {lent} of the library, because yours does not hold yet)"
    if not worst <= NEAR:
        far = f": off by {worst:.1e} of the largest weight" if np.isfinite(worst) else ""
        return broken(law, f"{about}{far}. {stages_off(task, joined(emulated))}".strip())
    for rank, (each, stream) in enumerate(zip(emulated, pipeline.streams, strict=True)):
        work = [do for do in stream if isinstance(do, Forward | Backward)]
        if each.done != [(type(do).__name__.lower(), do.microbatch) for do in work]:
            words = f"The weights are right, but rank {rank} does not execute its stream."
            return broken(law, words)
    near = f"to {max(worst, 1e-16):.0e}"
    return holds(law, f"{about}: the weights of one rank after three steps, {near}.")


def _owned(emulated):
    for law, each in emulated.items():
        for rank, stage in enumerate(each):
            if stage.overwritten:
                return broken(
                    OWNED,
                    f"{law}, rank {rank}: what the forward of microbatch "
                    f"{min(stage.overwritten)} was given was overwritten before its backward. "
                    "The stage stores a reference to the array, not a copy. Into which buffer "
                    "was the next one received?",
                )
    if len(emulated) < 3:
        return later(OWNED)
    return holds(OWNED, "No buffer is overwritten while it is still needed.")


def _waited(emulated):
    for law, each in emulated.items():
        for rank, stage in enumerate(each):
            if stage.unwaited:
                return broken(
                    WAITED,
                    f"{law}, rank {rank}: {stage.unwaited} messages were sent and never waited for. Until then"
                    " MPI may not have read the array.",
                )
            if stage.changed:
                return broken(
                    WAITED,
                    f"{law}, rank {rank}: {stage.changed} messages were written to before they were waited for.",
                )
    if len(emulated) < 3:
        return later(WAITED)
    return holds(WAITED, "Nothing is in flight when a step ends.")


def _loss(emulated, name):
    for law, each in emulated.items():
        _, expected = alone(tasks(name)[law][0])
        value = each[-1].losses[0]
        number = np.size(value) == 1 and np.asarray(value).dtype.kind in "iuf"
        if not (number and np.allclose(value, expected[0], rtol=1e-9)):
            shown = f"{float(np.ravel(value)[0]):.6g}" if number else repr(value)
            return broken(
                LOSS,
                f"{law}: {shown} was returned where the mean over all samples is {expected[0]:.6g}.",
            )
    return later(LOSS) if len(emulated) < 3 else holds(LOSS, "In every case.")


def pipeline_for(stream, name, many):
    """Return the learner's stream for their machine and batch. Raises LabError."""
    if many not in choices(name):
        legal = ", ".join(map(str, choices(name)))
        raise LabError(f"microbatches = {many}: the batch is cut evenly into {legal}.")
    return pipeline_of(stream, RANKS, many)


def chosen(stream):
    """Return the number of microbatches that the learner has written into the head of the function."""
    *_, last = inspect.signature(stream).parameters.values()
    return last.default if isinstance(last.default, int) else 1


def machine(name):
    """Return the learner's machine in words."""
    own = experiment_of(name)
    link, batch = own.machine.inter_node, int(own.strategy.batch)
    naive = seconds(PIPELINES["gpipe"](RANKS, 1), name)
    return say(
        f"{RANKS} ranks, two layers of {own.model.input_shape[0]} each; a batch of {batch} samples. A link"
        f" takes {show_quantity(link.latency, 's')} per message and carries"
        f" {show_quantity(link.bandwidth, 'B/s')}.\nOne device with all layers would take"
        f" {show_quantity(one_device(name), 's')}; {RANKS} ranks, with one microbatch,"
        f" {show_quantity(naive, 's')}."
    )


def speed_up(microbatches, ranks=RANKS):
    """Return how many times as fast as one rank a pipeline is where messages take no time."""
    return ranks / (1 + (ranks - 1) / microbatches)


def picture(stream, name, microbatches):
    """Return the stream on the learner's machine as a chart, simulated."""
    from lib_dlhpc.explore.gantt.chart import gantt

    try:
        pipeline = pipeline_for(stream, name, microbatches)
        prove_pipeline(pipeline)
        took = simulated_on(pipeline, name)
    except (LabError, ProofError, SpecError) as error:
        return say(str(error))
    sentence = f"{microbatches} microbatches: {show_quantity(float(took.stop.max()), 's')}"
    return gantt(took, f"{sentence}; rank 0 keeps {stored_chunks(pipeline)[0]} of them at once")


def _target(stream, name, right):
    goal, alone_ = best(name), one_device(name)
    if stream is None:
        return later(TARGET)
    many = chosen(stream)
    try:
        took = seconds(pipeline_for(stream, name, many), name)
    except LabError as error:
        return broken(TARGET, str(error))
    sentence = (
        f"With microbatches={many} your 1F1B takes {show_quantity(took, 's')}, {alone_ / took:.2g} times as"
        f" fast as one device; the best that the simulation finds is {show_quantity(goal, 's')}."
    )
    if not right:
        return later(TARGET, f"{sentence} It counts once everything else holds.")
    if took > (1 + MARGIN) * goal:
        return broken(TARGET, f"{sentence} What do more microbatches cost, and what do fewer?")
    return holds(TARGET, sentence)


def on_ranks(step, gpipe, one_f_one_b, name, ranks=RANKS):
    """Save the cells as step.py and run them on MPI ranks, once all above but the target holds."""
    if not passed(findings(step, gpipe, one_f_one_b, name)[:-1]):
        return say("Not yet: all checks on emulated ranks except the target have to pass first.")
    return save_and_run(HERE, name, (step, gpipe, one_f_one_b), ranks)


def main():
    """Check step.py on the ranks there are; on one, on emulated ones."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    file, name = arguments("step.py", '"your name"')
    names = ("step", "gpipe", "one_f_one_b")
    given = handed_in(file, names)
    step, gpipe, one = (given[each] for each in names)
    if comm.size == 1:
        end_with(findings(step, gpipe, one, name))
    own, emulated, laws = tasks(name, comm.size), {}, []
    own[EVEN] = (staged_task(seed_of(name) % 1000, comm.size, 12, 4), "gpipe")  # on all ranks
    for law, (task, kind) in own.items():
        pipeline = pipeline_of({"gpipe": gpipe, "1f1b": one}[kind], task.ranks, task.microbatches)
        stream = report_stuck(pipeline.streams[comm.rank], comm.rank)
        gathered = comm.gather(one_stage(step, stream, task, comm))
        if comm.rank == 0:
            emulated[law] = gathered
            laws.append(_equal(law, task, gathered, pipeline))
    if comm.rank == 0:
        print(f"{comm.size} real ranks\n{report([_owned(emulated), *laws])}")


if __name__ == "__main__":
    end_together(main)
