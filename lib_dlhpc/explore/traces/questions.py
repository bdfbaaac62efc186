"""What module 11 asks, in its order: guesses that uncover experiments, things to try, checks."""

import ipywidgets
import numpy as np

from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.plain_text import Column
from lib_dlhpc.explore.blocks.question import Card
from lib_dlhpc.explore.traces import coupled
from lib_dlhpc.explore.traces.coupled import Setting as Coupled
from lib_dlhpc.explore.traces.coupled import couple, named, times_faster, ways
from lib_dlhpc.explore.traces.coupled_here import Setting as Workflow
from lib_dlhpc.explore.traces.coupled_here import couple_here, waiting_share
from lib_dlhpc.explore.traces.here import STEPS, longer_if_late
from lib_dlhpc.explore.traces.here import Setting as Planted
from lib_dlhpc.explore.traces.live import trace_here
from lib_dlhpc.explore.traces.puzzle import find_it
from lib_dlhpc.explore.traces.waits import (
    IN_TURN,
    NETWORKS,
    NOBODY,
    Setting,
    analyzed,
    gain_of_ideal_network,
    read_it,
)
from lib_dlhpc.spec.units import format_quantity as show

lesson = Lesson()


def ideal_network() -> Card:
    """Ask what an ideal network would save."""
    share = 1 - analyzed(Setting()).efficiency.parallel
    return lesson.predict(
        "Rank 2 of four computes 50 % longer than the others, in each of eight steps. On average a rank does"
        f" not compute for {share:.0%} of the time. On an ideal network, without latency and with infinite bandwidth,"
        " how many % less would the run take?",
        result=lambda: gain_of_ideal_network(Setting()),
        unit="%",
        explanation="The others do not wait for data transfer. They wait for rank 2, however fast its message is.",
        then=read_it(),
    )


def where_to_look() -> Card:
    """Ask on which rank to look for a cause."""
    return lesson.predict_choice(
        "In each step of a trace all ranks wait for a while. On which rank do you look for the cause?",
        (
            "the rank that waits longest",
            "the rank that waits least",
            "the rank at the other end of the first wait",
        ),
        result="the rank at the other end of the first wait",
        explanation="A cause precedes its waits. Durations alone mislead: a late sender may wait longest, later on.",
        then=find_it(),
    )


def best_placement() -> Card:
    """Ask what the best placement gains."""
    chosen = named(next(way for way in ways(Coupled()) if way.simulating == 1))
    return lesson.predict(
        f"One rank of eight simulates and seven train ({chosen}), and the training waits. With the best placement of"
        f" the"
        " same eight ranks, how many times faster is the run?",
        result=lambda: times_faster(Coupled()),
        unit="times",
        explanation="The simulation is the bottleneck: it limits the rate of batches, however many ranks train.",
        then=couple(),
    )


def sends_late() -> Card:
    """Ask what a late sender costs, and trace a real run."""
    late = Planted(how="sends late")
    return lesson.predict(
        f"All four ranks do the same work. Rank {late.rank} does {late.by * 1e3:.0f} ms of it before it sends, the"
        f" others"
        f" after sending. There are {STEPS} steps. By how many ms is the run longer than if no rank sent late?",
        result=lambda: longer_if_late(late) * 1e3,
        unit="ms",
        explanation="Balanced to within a percent, and yet both neighbors wait in each step, and then all wait for"
        " them.",
        then=trace_here(),
    )


def waiting_training() -> Card:
    """Ask how long training waits, and couple for real."""
    return lesson.predict(
        "Two ranks: one simulates, 16 steps for a sample; the other trains. On a laptop's cores, for how many % of"
        " the run"
        " does the training rank wait for samples?",
        result=lambda: waiting_share(Workflow()),
        unit="%",
        explanation="A batch takes far longer to produce than to train on. Taking turns, neither would wait for the"
        " other.",
        then=couple_here(),
    )


def longest_wait() -> Card:
    """Check who is slow where one waits longest."""
    return lesson.choose(
        "In a trace of 64 ranks, rank 17 waits longest in the allreduce. Rank 17 ...",
        {
            "is the slow one": "It arrives first: it has the least work, or the best luck. The slow one does not wait.",
            "arrives first: look for the last to arrive": "Yes. Its wait is long because its own work is short.",
            "has a slow link": "Then its data would be in flight for long. Waiting for others is not transfer.",
        },
        right="arrives first: look for the last to arrive",
    )


def faster_network() -> Card:
    """Check what a faster network saves."""
    return lesson.choose(
        "A third of all time is spent in MPI calls; transfer efficiency is 98 %. A network twice as fast saves ...",
        {
            "a sixth of the time": "Half of a third, if it moved data. It waits: MPI time is not network time.",
            "a third": "Not even if it were moving data, and it is waiting.",
            "at most 2 %": "Yes: no network beats the ideal one, which saves 2 %.",
        },
        right="at most 2 %",
    )


def balanced() -> Card:
    """Check whether balance ends waits."""
    return lesson.choose(
        "Over an epoch all ranks have computed for the same time, to within a percent. Waits ...",
        {
            "are gone: load balance is 1": "Over the epoch, yes. But ranks meet each step, and in each another was"
            " late.",
            "can still be a third of the run": "Yes: being late in turn, or sending late, makes others wait.",
            "are due to the network, then": "No: the ideal network has them as well. See serialization.",
        },
        right="can still be a third of the run",
    )


def feed_training() -> Card:
    """Check what helps training that waits for samples."""
    return lesson.choose(
        "The training ranks wait for samples; a batch takes 20 ms to produce and 10 ms to train on. You ...",
        {
            "double the buffer": "It is empty. A larger empty buffer is as empty.",
            "let training ranks simulate": "Yes: move ranks to the bottleneck side, until both take equally long.",
            "buy a faster network for the samples": "The samples are not in flight. They have not been produced yet.",
        },
        right="let training ranks simulate",
    )


def load_balance(seed: int | None = None) -> Card:
    """Ask for the load balance of a run whose numbers are drawn for each visitor."""
    draw = np.random.default_rng(seed)
    usual, most = int(draw.integers(20, 31)), int(draw.integers(35, 51))
    return lesson.compute(
        f"Three ranks compute for {usual} s each, a fourth for {most} s. What is the load balance, in %?",
        answer=100 * (3 * usual + most) / (4 * most),
        unit="%",
        hint="The compute time of the mean rank over that of the busiest: the length of the run has no part in it.",
    )


def try_trace() -> Column:
    """List things to try with a trace."""

    def span(setting: Setting) -> str:
        return show(analyzed(setting).span, "s")

    def longest(setting: Setting) -> int:
        return int(np.argmax(sum(analyzed(setting).waits.values())))

    late, turns = Setting(how="sends late"), Setting(IN_TURN)
    link = Setting(NOBODY, size=4e6, share=0.25)
    return lesson.steps(
        (
            "Three ranks have long hatched bars, and one has none. Which one is slow? Click the finding load"
            " imbalance.",
            "Rank 2, the one without: the others are done sooner, and wait for it in the allreduce.",
        ),
        (
            "Take a network of 1, 10, 100 Gbit/s. What moves?",
            lambda: (
                f"{', '.join(span(Setting(network=rate)) for rate in NETWORKS)}: at 1 Gbit/s transfer takes part of"
                " the run, beyond 10 next to nothing changes."
            ),
        ),
        (
            "Let rank 2 send late. All ranks do the same work now. Why do they wait?",
            lambda: (
                f"Its neighbors wait for its message, and all wait for them in the allreduce: {span(late)} in place of"
                f" {span(Setting())}, with a load balance of {analyzed(late).efficiency.load_balance:.2f}."
            ),
        ),
        (
            "Which rank waits longest of all then, and why?",
            lambda: (
                f"Rank {longest(late)}, the late one itself: after sending it has least to do before the"
                f" allreduce."
            ),
        ),
        (
            "Choose each in turn: over the run all ranks have computed for the same time. Is anything gained?",
            lambda: (
                f"Nothing: {span(turns)}. In each step another rank is late, and no finding blames one rank, since none"
                " is later than the others."
            ),
        ),
        (
            "Nobody late, messages of 4 MB, link 1–2 with a quarter of the bandwidth: which ranks wait in the"
            " allreduce?",
            lambda: (
                f"0 and 3, for 1 and 2, which transfer for longer. Transfer is"
                f" {analyzed(link).efficiency.transfer:.2f}:"
                " the network is the bottleneck."
            ),
        ),
    )


def try_puzzles() -> Column:
    """List what to look at in the puzzles."""
    return lesson.steps(
        (
            "Look at one step. Where does the first hatched bar end, and what begins or ends on another rank then?",
            "A message is sent, or the last rank joins: that rank is the next one to look at.",
        ),
        (
            "Longer computation and a longer read both make a rank late. What distinguishes them?",
            "The bar before its messages: reading, or computing. Afterwards the trace is the same.",
        ),
        (
            "A wait is hatched, a slow link is not. Why?",
            "On a slow link the data is in flight: the receiver does not wait for a late rank, it transfers.",
        ),
    )


def try_placements() -> Column:
    """List things to try with the workflow."""

    def best_of(sampling: int) -> str:
        setting = Coupled(sampling=sampling)
        turns = next(way for way in ways(setting) if named(way) == "all, in turn")
        found = coupled.best(setting)
        return f"{named(found)}, {show(found.seconds, 's')}; all, in turn takes {show(turns.seconds, 's')}"

    def seconds(setting: Coupled) -> str:
        found = next(way for way in ways(setting) if way.simulating == setting.simulating)
        return show(found.seconds, "s")

    even = Coupled(6, 4, 1, 0.3)
    return lesson.steps(
        (
            "With 1 of 8, take a deeper buffer. Does it help?",
            "No: it is empty at any depth, since the simulation is slower.",
        ),
        (
            "Move ranks until the waits are minimal. Is that the fastest placement?",
            lambda: (
                f"The fastest is {best_of(4)}. In turn no rank waits for the other side, but eight ranks parallelize"
                " small work inefficiently."
            ),
        ),
        (
            "Take a sample of 1 step, and of 16. Where is the best placement now?",
            lambda: f"1 step: {best_of(1)}. 16 steps: {best_of(16)}.",
        ),
        (
            "30 % variation, 6 of 8, a sample of 4 steps, a buffer of 1 batch. Which side waits, and why does a deeper"
            " buffer help here?",
            lambda: (
                "Both, in turn: they are equally fast on average, and each is slower at times. A buffer smooths that:"
                f" {seconds(even)} with 1 batch, {seconds(even._replace(depth=8))} with 8."
            ),
        ),
    )


def try_real_trace() -> Column:
    """List things to try with the traced program."""
    return lesson.steps(
        (
            "Run it with the defaults. Is rank 2 blamed, and for as much as was planted?",
            "As a rule within some percent. Where the machine itself delays a rank as much, no rank is blamed.",
        ),
        (
            "Let it send late. Which rank waits for which?",
            "Ranks 1 and 3 wait for the message of rank 2, then all for them; the load balance is near 1.",
        ),
        (
            "Nobody late: which line of the table do prediction and simulation miss, and why?",
            "Moves data: a rank whose message has arrived waits for a core, which no network model covers.",
        ),
        (
            "Save the trace, and open it in Perfetto (ui.perfetto.dev) or with any tool that reads OTF2.",
            "The same bars, with the messages as arrows.",
        ),
    )


def try_coupling() -> Column:
    """List things to try with the real workflow."""
    return lesson.steps(
        (
            "Couple with the defaults. Is another placement predicted to be faster, and is it?",
            "All, in turn: with 16 steps a sample the training rank is mostly idle. On a busy machine it may not be.",
        ),
        (
            "Take a sample of 1 step. Which side waits now?",
            "The simulation, for room: a batch is produced faster than it is trained on.",
        ),
        (
            "Begin with all, in turn. Is anything left to gain?",
            "Little: no rank waits for the other side. What is mispredicted is mostly the training step.",
        ),
    )


def surprises() -> ipywidgets.HTML:
    """Return all guesses beside the results."""
    return lesson.surprises()
