"""Checks of lab 12: are weights in shards and a sequence on a ring those of one rank, and is the layout a fast one?

In the notebook:   check_step(step, NAME), check_ring(zigzag, ring_attention, NAME), run(NAME),
                   check_memory(memory, NAME), check_seconds(seconds, NAME), check_layout(choose, NAME),
                   on_ranks(NAME, all six)
In a terminal:     python checks.py step.py "your name"                  emulated ranks, and the layout
                   mpiexec -n 4 python checks.py step.py "your name"     shards and ring on real ranks; also 2 or 3
"""

from pathlib import Path

import numpy as np

from lib_dlhpc.explore.labs.lab import save_and_run, say, show
from lib_dlhpc.labs.attempts import report
from lib_dlhpc.labs.findings import broken, kept, later, seed_of
from lib_dlhpc.labs.lay_out_a_language_model import ring_attention as rings
from lib_dlhpc.labs.lay_out_a_language_model import sharded_units as shards
from lib_dlhpc.labs.lay_out_a_language_model.layout_laws import (
    MARGIN,
    layout_findings,
    memory_findings,
)
from lib_dlhpc.labs.lay_out_a_language_model.layouts import fastest, task_of
from lib_dlhpc.labs.lay_out_a_language_model.sharded_laws import (
    gathered_off,
    losses_off,
    moved_off,
    weights_off,
)
from lib_dlhpc.labs.lay_out_a_language_model.step_laws import seconds_findings
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.labs.program import arguments, emulated_first, end_together, end_with, handed_in
from lib_dlhpc.spec.units import format_quantity as show_quantity

HERE = Path(__file__).parent
RANKS = 4
ROOM = 1.02  # times the bytes that have to move
SHARDED = "Shards: the weights and the loss of one rank"
ONE = "Shards: the weights of one unit at a time"
MOVED = "Target of the shards: no more bytes than have to move"
ZIGZAG = "Zig-zag: every token once, and equal work"
RING = "Ring attention: the outputs of one rank"
HOPS = "Target of the ring: each block once to a neighbor in each hop"
NAMES = ("step", "zigzag", "ring_attention", "memory", "seconds", "choose")
AS_ABOVE = "Checked as soon as the one above holds."


def sharded_tasks(name, ranks=(RANKS, 3)):
    """Return the learner's decoders: the weights of their units do not divide evenly."""
    rng, found = np.random.default_rng([seed_of(name), 1]), []
    for many in ranks:
        hidden, wide = int(rng.choice([10, 14])), int(rng.choice([13, 17, 21]))
        own = shards.ShardedTask(
            hidden, wide, many, int(rng.integers(2, 4)), int(rng.integers(1000))
        )
        found.append(own)
    return found


def ring_tasks(name, ranks=(RANKS, 3, 2)):
    """Return the learner's sequences; the second has large scores."""
    rng, found = np.random.default_rng([seed_of(name), 2]), []
    for place, many in enumerate(ranks):
        sizes = int(rng.integers(2, 5)), int(rng.integers(2, 4)), int(rng.choice([3, 5, 6]))
        large = 3000.0 if place == 1 else 1.0
        found.append(rings.RingTask(many, *sizes, int(rng.integers(1000)), large))
    return found


def step_findings(step, name):
    """Return what holds for the step on shards."""
    own, every = sharded_tasks(name), []
    for task in own:
        try:
            runs = shards.run_emulated(step, task)
        except LabError as error:
            return _stopped([SHARDED, ONE, MOVED], f"{task.ranks} ranks: {error}")
        words = weights_off(task, runs) or losses_off(task, runs)
        if words:
            return _stopped([SHARDED, ONE, MOVED], f"{task.ranks} ranks. {words}")
        every.append((task, runs))
    right = kept(SHARDED, f"On {' and '.join(str(task.ranks) for task in own)} ranks, to 1e-10.")
    wrong = next(
        (f"{t.ranks} ranks. {words}" for t, runs in every if (words := gathered_off(t, runs))), ""
    )
    one = broken(ONE, wrong) if wrong else kept(ONE, "Forward and backward, on all ranks.")
    times = max(moved_off(task, runs) for task, runs in every)
    words = f"A rank moves {times:.2f} times two all-gathers and a reduce-scatter of each unit"
    if times > ROOM:
        more = "A rank needs its own block of the summed gradient, and a unit's weights twice per step."
        return [right, one, broken(MOVED, f"{words}. {more}")]
    return [right, one, kept(MOVED, f"{words}.")]


def ring_findings(zigzag, ring_attention, name):
    """Return what holds for the order of tokens and the ring."""
    own, laws = ring_tasks(name), [ZIGZAG, RING, HOPS]
    places = []
    for task in own:
        try:
            places.append(rings.positions_of(zigzag, task.tokens, task.ranks))
            words = rings.order_off(task.tokens, places[-1])
        except LabError as error:
            words = str(error)
        if words:
            return _stopped(laws, words)
    order, every = kept(ZIGZAG, "All ranks compute the same number of scores."), []
    for task, those in zip(own, places, strict=True):
        try:
            runs = rings.emulated(ring_attention, task, those)
            words = rings.outputs_off(task, those, [run.out for run in runs])
        except LabError as error:
            words = str(error)
        if words:
            return [order, *_stopped(laws[1:], f"{task.words()}. {words}")]
        every.append((task, runs))
    right = kept(RING, f"On {len(own)} sequences, to 1e-10.")
    wrong = next(
        (f"{t.words()}. {words}" for t, runs in every if (words := rings.messages_off(t, runs))), ""
    )
    hops = broken(HOPS, wrong) if wrong else kept(HOPS, "Nothing else travels.")
    return [order, right, hops]


def _stopped(laws, words):
    return [broken(laws[0], words), *(later(law, AS_ABOVE) for law in laws[1:])]


def run_of(name):
    """Return the learner's own run of a language model."""
    return task_of(seed_of(name))


def findings(given, name):
    """Return what holds for all that is handed in: functions by their names in NAMES."""
    step, zigzag, ring_attention, memory, seconds, choose = (given[each] for each in NAMES)
    real = [*step_findings(step, name), *ring_findings(zigzag, ring_attention, name)]
    own = run_of(name)
    paper = [*memory_findings(memory, own), *seconds_findings(seconds, own)]
    return [*real, *paper, *layout_findings(choose, own)]


def check_step(step, name):
    """Return the findings on the step for the page."""
    return show(step_findings(step, name), "Your step on shards")


def check_ring(zigzag, ring_attention, name):
    """Return the findings on the ring for the page."""
    return show(ring_findings(zigzag, ring_attention, name), "Your ring")


def check_memory(memory, name):
    """Return the findings on the bytes of a device for the page."""
    return show(memory_findings(memory, run_of(name)), "Your bytes on a device")


def check_seconds(seconds, name):
    """Return the findings on the time of a step for the page."""
    return show(seconds_findings(seconds, run_of(name)), "Your time of a step")


def check_layout(choose, name):
    """Return the findings on the layout for the page."""
    return show(layout_findings(choose, run_of(name)), "Your layout")


def run(name):
    """Return the learner's run in words."""
    own = run_of(name)
    model, machine = own.model, own.machine
    return say(
        f"Model: {model.layers} blocks, hidden {model.hidden}, feed-forward {model.feed_forward}, {model.heads} heads"
        f" of queries, {model.kv_heads} of keys and values, vocabulary {model.vocabulary}, sequences of"
        f" {model.sequence} tokens; {show_quantity(model.flop, 'FLOP')} per sequence, forward and backward.\n"
        f"Machine: {machine.devices} devices, {machine.per_node} in a node, {show_quantity(machine.memory, 'B')} each,"
        f" of which {show_quantity(machine.reserve, 'B')} are for what your terms leave out;"
        f" {show_quantity(machine.rate, 'FLOP/s')}; in a node {show_quantity(machine.nvlink, 'B/s')} per device, out of"
        f" it {show_quantity(machine.nic, 'B/s')}.\n"
        f"A step: {own.batch} sequences over all devices. {len(own.layouts)} legal layouts.\n"
        f"Target: a step of at most {show_quantity((1 + MARGIN) * fastest(own)[1], 's')}."
    )


def work_of_last(ranks=RANKS, tokens=64):
    """Return the work of the last of four ranks with consecutive tokens, as a multiple of the mean."""
    own = np.array_split(np.arange(1, tokens + 1), ranks)
    return float(own[-1].sum() * ranks / sum(each.sum() for each in own))


def on_ranks(name, *functions, ranks=RANKS):
    """Save the cells as step.py and run step and ring on MPI ranks, once they are right."""
    step, zigzag, ring_attention, *_ = functions
    found = [*step_findings(step, name), *ring_findings(zigzag, ring_attention, name)]
    if not all(each.right for each in found if each.law in (SHARDED, ZIGZAG, RING)):
        return say("Not yet: the results on emulated ranks have to be right first.")
    return save_and_run(HERE, name, functions, ranks)


def main():
    """Check step.py on the ranks there are; on one, on emulated ones, and the layout."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    file, name = arguments("step.py", '"your name"')
    given = handed_in(file, NAMES if comm.size == 1 else NAMES[:3])
    if comm.size == 1:
        end_with(findings(given, name))
    (task,), (ring,) = sharded_tasks(name, (comm.size,)), ring_tasks(name, (comm.size,))
    places = rings.positions_of(given["zigzag"], ring.tokens, ring.ranks)
    emulated_first(comm, lambda: shards.run_emulated(given["step"], task))
    emulated_first(comm, lambda: rings.emulated(given["ring_attention"], ring, places))
    runs = comm.gather(shards.rank_run(given["step"], task, comm))
    outs = comm.gather(rings.on_rank(given["ring_attention"], ring, places, comm).out)
    if comm.rank == 0:
        wrong = {
            SHARDED: weights_off(task, runs) or losses_off(task, runs),
            RING: rings.outputs_off(ring, places, outs),
        }
        same = [
            broken(law, words) if words else kept(law, "To 1e-10.") for law, words in wrong.items()
        ]
        print(f"{comm.size} real ranks\n{report(same)}")


if __name__ == "__main__":
    end_together(main)
