"""What module 08 asks, in its order: guesses that uncover experiments, things to try, checks."""

import ipywidgets
import numpy as np

from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.plain_text import Column, Table
from lib_dlhpc.explore.blocks.question import Card
from lib_dlhpc.explore.memory_wall import ledger, outside, ways
from lib_dlhpc.explore.memory_wall.ledger import Setting, published_table, shares, the_ledger
from lib_dlhpc.explore.memory_wall.live import Setting as Capped
from lib_dlhpc.explore.memory_wall.live import experiment, train_under_a_cap
from lib_dlhpc.explore.memory_wall.live import ledger as peak
from lib_dlhpc.explore.memory_wall.outside import Setting as Away
from lib_dlhpc.explore.memory_wall.outside import forward_share, needed, out_of_core, seconds
from lib_dlhpc.explore.memory_wall.ways import Setting as Step
from lib_dlhpc.explore.memory_wall.ways import fastest, four_ways, sent
from lib_dlhpc.spec.units import format_quantity as show

lesson = Lesson()


def activations() -> Card:
    """Ask how much memory activations take."""
    opens = Setting()
    weights, _, activations = shares(opens)
    return lesson.predict(
        f"GPT-2 in 16 bits: its weights are {weights / 1e9:.1f} GB. It trains on {opens.batch} samples at once. How"
        f" many GB"
        " do its activations take?",
        result=activations / 1e9,
        unit="GB",
        explanation="Each layer stores its output for every token of every sample: this term is underestimated most"
        " often.",
        then=the_ledger(),
    )


def fastest_way() -> Card:
    """Ask which way around the wall is the fastest."""
    known = ("recompute all", "ZeRO 3 + recompute all", "pipeline + ZeRO 1", "offload activations")
    return lesson.predict_choice(
        "GPT-2 with 1.5 billion weights on two nodes of 8 A100, sold as 40 GB, which have"
        f" {Step().memory / 1e9:.1f} GB each; two 25 Gb/s links between the nodes. It does not fit. Which of these ways"
        " gives the shortest step?",
        known,
        result=lambda: fastest(Step(), known),
        explanation="Between the nodes travel the gradients of all weights, or only the activations at stage"
        " boundaries.",
        then=four_ways(),
    )


def hiding_bandwidth() -> Card:
    """Ask for the bandwidth that hides an offload."""
    need, step, forward = needed(Away()), seconds(Away(), "in core"), forward_share(Away())
    return lesson.predict(
        f"GPT-2, four samples on one GPU: a step takes {step * 1e3:.0f} ms, {forward:.0%} of it forward. In a step"
        f" {need.moved / 2e9:.1f} GB of activations are offloaded and fetched back. How many GB/s each way hide all"
        f" of it?",
        result=need.required / 1e9,
        unit="GB/s",
        explanation="They are offloaded during forward, the shorter of the two passes.",
        then=out_of_core(),
    )


def out_of_core_peak() -> Card:
    """Ask for the peak out of core, and train under a cap."""
    inside, cap = peak(experiment(Capped())), Capped().cap
    return lesson.predict(
        f"In core the network needs {inside / 1e6:.0f} MB, and the cap is {cap / 1e6:.0f} MB. Out of core weights,"
        " gradients, optimizer state and activations are in a file. How many MB are in memory at the peak, by the"
        " ledger?",
        result=lambda: peak(experiment(Capped(), "all")) / 1e6,
        unit="MB",
        explanation="The layers in use, with their gradients and state. The weights are bitwise identical: a"
        " file stores all bits, and the order of all sums is unchanged.",
        then=train_under_a_cap(),
    )


def not_activations() -> Card:
    """Check which technique leaves activations alone."""
    return lesson.choose(
        "Nine tenths of the memory are activations. Which technique does not help at all?",
        {
            "ZeRO 1": "Yes: it shards the optimizer state. Activations are untouched.",
            "Full recomputation": "It removes nearly all activations, for one more forward pass.",
            "Smaller microbatches": "Half the samples at a time store half as much; gradients accumulate.",
        },
        right="ZeRO 1",
    )


def bytes_of_zero_3() -> Card:
    """Check what ZeRO 3 sends with microbatches."""
    times = f"{sent(3, 4) / sent(0, 4):.2g} times as many"
    return lesson.choose(
        "Each GPU accumulates gradients over 4 microbatches. Plain data parallelism allreduces them once a step."
        " How many bytes does ZeRO 3 send, which replicates nothing?",
        {
            "As many": "That is ZeRO 1. ZeRO 3 also all-gathers the weights, in every microbatch.",
            "1.5 times as many": "In each microbatch: two all-gathers, one reduce-scatter, 3 n for 2 n. There are 4.",
            times: "Yes: 3 n in each of 4 microbatches, against 2 n once a step.",
        },
        right=times,
    )


def split_for_speed() -> Card:
    """Check what a split is for."""
    return lesson.choose(
        "A replica does not fit on one of 8 GPUs; split over all of them it does. The batch may still grow. Is the"
        " split"
        " for speed?",
        {
            "Yes, 8 GPUs compute 8 times as fast": "So would 8 replicas with 8 times the samples, if they fitted.",
            "No, for memory: it costs time": "Yes: an allreduce in each layer, or a bubble. Only past the"
            " critical batch is a split for speed as well.",
            "Yes, small layers are faster": "Small kernels fill a GPU less well: they are slower for the same FLOP.",
        },
        right="No, for memory: it costs time",
    )


def own_bandwidth(seed: int | None = None) -> Card:
    """Ask each learner for the bandwidth that hides activations of their own."""
    draw = np.random.default_rng(seed)
    gigabytes, forward = int(draw.integers(8, 40)), 50 * int(draw.integers(2, 9))
    return lesson.compute(
        f"A forward pass takes {forward} ms, the backward pass twice as long, and {gigabytes} GB of activations"
        " are offloaded. How many GB/s must the host link have, so that nothing is exposed?",
        answer=gigabytes / (forward / 1e3),
        unit="GB/s",
        hint="They leave during the forward pass and come back during the longer backward pass: which is tighter?",
    )


def try_ledger() -> Column:
    """List things to try with the ledger."""

    def largest(setting: Setting) -> tuple[str, str]:
        terms = ledger.fullest(setting).terms
        first, second, *_ = sorted(terms, key=lambda name: -terms[name])
        return f"{first}, {show(terms[first], 'B')}", f"{second}, {show(terms[second], 'B')}"

    def state(name: str) -> str:
        _, whole, kept = shares(Setting(name, 32, "fp32"))
        return f"{show(whole, 'B')} of weights and state, {show(kept, 'B')} of activations"

    def peak_layer() -> str:
        course = ledger.in_time(opens)
        at = int(course.bytes.argmax())
        return f"{course.what[at]} of {course.layer[at]}"

    def walls() -> str:
        cosmoflow, gpt3 = shares(Setting("cosmoflow-512", 1)), shares(Setting("gpt3-175b", 1))
        return (
            f"One sample of CosmoFlow takes {show(cosmoflow[2], 'B')} of activations, with"
            f" {show(cosmoflow[1], 'B')} of weights and state; GPT-3 has {show(gpt3[1], 'B')} of them."
        )

    opens = Setting()
    return lesson.steps(
        (
            "GPT-2 with the defaults: which term comes after the activations, and in which layer is the peak?",
            lambda: f"The {largest(opens)[1]}. The peak is in {peak_layer()}.",
        ),
        (
            "Take a batch of 1. Which term dominates now?",
            lambda: f"The {largest(opens._replace(batch=1))[0]}.",
        ),
        (
            "VGG-16 and ResNet-50 with fp32 and a batch of 32: in which do the weights dominate?",
            lambda: f"In VGG-16: {state('vgg16')}. ResNet-50: {state('resnet50')}.",
        ),
        ("CosmoFlow with one sample, and GPT-3: which walls do they meet?", walls),
    )


def try_ways() -> Column:
    """List things to try with the ways around the wall."""

    def zero(level: int) -> str:
        found = ways.way(opens, f"ZeRO {level}")
        return f"{show(found.memory, 'B')} and {show(found.seconds, 's')}"

    def best(setting: Step) -> str:
        found = ways.fitting(setting)[0]
        return f"{found.name}, {show(found.seconds, 's')}"

    def cost(name: str) -> str:
        return f"{ways.way(opens, name).seconds / ways.way(opens, 'as it is').seconds - 1:+.1%}"

    opens = Step()
    fast = opens._replace(network="eight 200 Gb/s InfiniBand")
    return lesson.steps(
        (
            "Compare ZeRO 1 with ZeRO 3: how much more memory is saved, and at which cost?",
            lambda: (
                f"ZeRO 1: {zero(1)} a step. ZeRO 3: {zero(3)}; it also all-gathers the weights."
            ),
        ),
        (
            "Take one link of 100 Gb/s. Why does the pipeline no longer win?",
            lambda: (
                f"The fastest is {best(opens._replace(network='one 100 Gb/s Ethernet'))}: the gradients of all weights"
                " travel faster now, and the pipeline keeps its bubble."
            ),
        ),
        (
            "Take eight InfiniBand links, and look again at ZeRO 3.",
            lambda: (
                f"{show(ways.way(fast, 'ZeRO 3').seconds, 's')} a step; ZeRO 1 takes"
                f" {show(ways.way(fast, 'ZeRO 1').seconds, 's')}: its all-gathers are hidden."
            ),
        ),
        (
            "Back to the slow network: what do both recomputations cost there, and why so little?",
            lambda: (
                f"{cost('recompute scores')} and {cost('recompute all')}: the recomputation overlaps with"
                " communication that is exposed anyway."
            ),
        ),
        (
            "Take GPUs of 24 GB. What is left?",
            lambda: (
                ", ".join(each.name for each in ways.fitting(opens._replace(memory=24e9))) + "."
            ),
        ),
        (
            "Click Search. Does it find anything that you had not thought of?",
            "Pairs of ways: most of the fastest combine a split with a sharding.",
        ),
    )


def try_links() -> Column:
    """List things to try out of core."""

    def required(model: str, batch: int = 4, what: str = "activations") -> str:
        return show(needed(Away(model, batch, what)).required, "B/s")

    def exposed(batch: int) -> str:
        setting = Away("vgg16", batch, "all")
        return f"{needed(setting).exposed / seconds(setting, 'prefetched'):.0%}"

    def paged(page: str) -> str:
        return show(seconds(Away(page=outside.PAGES[page]), "page by page"), "s")

    return lesson.steps(
        (
            "Move the host link from a disk to NVLink. From where on is nothing exposed?",
            lambda: f"From {required('gpt2-1.5b')} on: of these links only NVLink to the CPU.",
        ),
        (
            "Take twice the batch. Why does the required bandwidth hardly change?",
            lambda: f"It is {required('gpt2-1.5b', 8)}: bytes and seconds grow alike.",
        ),
        (
            "ResNet-50 and VGG-16 with a batch of 64: whose activations are easier to hide, and why?",
            lambda: (
                f"Those of VGG-16, {required('vgg16', 64)} against {required('resnet50', 64)}: more FLOP for each byte."
            ),
        ),
        (
            "VGG-16, weights and state too, with a batch of 1 and of 64: what share of the step is exposed?",
            lambda: (
                f"{exposed(1)} and {exposed(64)}: the bytes of weights are constant, and the step is longer. From"
                f" {required('vgg16', 1, 'all')} the required bandwidth falls to {required('vgg16', 64, 'all')}."
            ),
        ),
        (
            "Take larger pages. Is it the fault or the bytes that a page fault costs?",
            lambda: (
                f"The fault: {paged('64 KiB')} a step with 64 KiB, {paged('2 MiB')} with 2 MiB."
            ),
        ),
    )


def try_cap() -> Column:
    """List things to try under a cap."""
    return lesson.steps(
        (
            "Train with the defaults. Which of the peaks does the ledger predict well, and which not?",
            "The one in core, to some percent. Out of core prefetch and write-behind buffers add a third to a half.",
        ),
        (
            "Take a batch of 64. What happens to the time out of core?",
            "It grows against that in core: the weights move as before, and less computation hides them.",
        ),
        (
            "Offload activations only. Which run is refused now, and for which term?",
            "Both under the cap: weights, gradients and momentum alone are larger than it.",
        ),
    )


def published() -> Table:
    """Return what was published beside its prediction."""
    return published_table()


def surprises() -> ipywidgets.HTML:
    """Return all guesses beside the results."""
    return lesson.surprises()
