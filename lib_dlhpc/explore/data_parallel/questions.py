"""What module 02 asks, in its order: guesses that uncover experiments, things to try, checks."""

import ipywidgets
import numpy as np

from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.plain_text import Column, Table
from lib_dlhpc.explore.blocks.question import Card
from lib_dlhpc.explore.data_parallel import here, live, race, scaling, waiting
from lib_dlhpc.explore.data_parallel.buckets import bucket_count, one_step, step_of
from lib_dlhpc.explore.data_parallel.real import exchange_here
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.units import format_quantity as show

lesson = Lesson()


def exposed() -> Card:
    """Ask how much of an allreduce is exposed after backward."""
    step = predict(step_of())
    return lesson.predict(
        f"256 GPUs: backward takes {_ms(step.backward)}, the allreduce of the gradients"
        f" {_ms(step.communication.total)}, overlapped, in buckets of 25 MB. How many ms are exposed?",
        result=float(step.exposed_communication) * 1e3,
        unit="ms",
        explanation="The last bucket is complete when backward ends: no computation is left to overlap with it.",
        then=one_step(),
    )


def try_buckets() -> Column:
    """List things to try with the size of a bucket."""
    return lesson.steps(
        (
            "Make the buckets smaller until next to nothing is exposed.",
            lambda: f"At 4 MB {_exposed(bucket=4e6)} are exposed: the last bucket is small.",
        ),
        (
            "Now take the largest bucket. Why is the whole allreduce exposed?",
            lambda: (
                "One bucket holds all gradients, so it is complete only when backward ends:"
                f" {_exposed(bucket=200e6)} are exposed."
            ),
        ),
        (
            "Choose ring, and buckets of 100 kB. Which cost grows with the number of buckets?",
            lambda: f"Latency: {_latency(100e3)}, {_latency(25e6)}. Bandwidth costs the same.",
        ),
        (
            "Give each GPU one image. Which times shrink?",
            lambda: (
                f"Backward, from {_ms(predict(step_of()).backward)} to {_ms(predict(step_of(images=1)).backward)}."
                " The gradients are as large as before, so their allreduce takes as long."
            ),
        ),
    )


def straggler() -> Card:
    """Ask what the slowest of 256 costs."""
    return lesson.predict(
        "256 GPUs whose steps vary by 3 %: by how many percent is a step longer than the mean?",
        result=waiting.expected_wait(256, 0.03),
        unit="%",
        explanation="The slowest of 256 lies nearly three standard deviations above the mean.",
        then=waiting.the_slowest(),
    )


def try_stragglers() -> Column:
    """List things to try with jitter and a slow GPU."""

    def idle(jitter: float) -> str:
        return f"{waiting.waiting_share(waiting.Ranks(jitter=jitter, slow=2.0)):.1%}"

    return lesson.steps(
        (
            "Compare 16, 256 and 2,048 GPUs. What does each factor add?",
            lambda: (
                "A step is "
                + ", ".join(f"{waiting.expected_wait(p, 0.03):.1f} %" for p in (16, 256, 2048))
                + " longer than the mean: the wait grows ever more slowly, and without bound."
            ),
        ),
        (
            "Make one GPU half as fast. How much of the machine is idle?",
            lambda: f"{idle(0.03)}: all others wait for it as long as they compute.",
        ),
        (
            "Leave it slow and remove the jitter. What did jitter add?",
            lambda: (
                f"Hardly anything, {idle(0.0)} is idle without it: no other GPU is ever the slowest."
            ),
        ),
    )


def staleness() -> Card:
    """Ask how stale an asynchronous gradient is."""
    return lesson.predict(
        "8 equally fast asynchronous workers: how many updates old is a gradient on average?",
        result=race.served(race.Race()).staleness.mean(),
        unit="updates",
        explanation="While one worker computes, each of the other seven pushes an update.",
        then=race.the_race(),
    )


def try_race() -> Column:
    """List things to try with the three ways to train."""

    def first(setting: race.Race) -> str:
        runs = race.courses(setting)
        most = max(runs, key=lambda name: runs[name].gradients)
        reached = min(runs, key=lambda name: runs[name].reached)
        both = "it is also" if most == reached else f"{reached} is"
        return (
            f"{most.capitalize()} computes the most gradients a second, {runs[most].gradients:.3g}; {both} the first"
            f" at a tenth of the loss, after {show(runs[reached].reached, 's')}."
        )

    def diverges() -> str:
        for rate in race.RATES:
            runs = race.courses(race.Race(rate=rate))
            wild = [name for name, run in runs.items() if not run.loss[-1] < race.DIVERGED]
            if wild:
                return f"{' and '.join(wild)}, at {rate:g}: stale gradients tolerate only a lower learning rate."
        return "None of them."

    def queued() -> str:
        runs = race.courses(race.Race(workers=16, servers=1))
        rates = ", ".join(f"{name} {run.gradients:.3g}" for name, run in runs.items())
        return f"At the link of the server. Gradients a second: {rates}."

    return lesson.steps(
        (
            "With the defaults: which method computes the most gradients a second, and which is the first at a"
            " tenth of the loss?",
            lambda: first(race.Race()),
        ),
        (
            "Make one worker a quarter as fast. Which is the first now?",
            lambda: first(race.Race(slow=4.0)),
        ),
        ("With no slow worker, raise the learning rate. Which method diverges first?", diverges),
        (
            "At 0.4 again, take 16 workers and one server. Where do gradients queue, and which method computes"
            " the most?",
            queued,
        ),
    )


def gain() -> Card:
    """Ask what eight times the GPUs bring at a fixed batch."""
    return lesson.predict(
        "8,192 images a step on any number of GPUs: how many times faster are 2,048 GPUs than 256?",
        result=scaling.strong_gain(256, 2048),
        unit="times",
        explanation="Computing four images a GPU takes next to no time, while the allreduce takes longer.",
        then=scaling.weak_and_strong(),
    )


def try_scaling() -> Column:
    """List things to find out about weak and strong scaling."""

    def fastest(allreduce: str) -> str:
        curve = scaling.strong(scaling.Scaling(allreduce=allreduce))
        return f"{int(curve.gpus[np.argmax(curve.rate)]):,} GPUs"

    def ends() -> str:
        curve = scaling.strong(scaling.Scaling())
        return (
            f"Below {int(curve.gpus[0]):,} GPUs their share of the batch does not fit into memory; beyond"
            f" {int(curve.gpus[-1]):,} there is less than one image for each."
        )

    return lesson.steps(
        (
            "Beyond how many GPUs does strong scaling make the run slower?",
            lambda: (
                f"Beyond {fastest('hierarchical')}: more ranks lengthen the allreduce by more than they shorten"
                " the computation."
            ),
        ),
        (
            "Find an allreduce that moves this point outward. Why does it?",
            lambda: (
                f"rabenseifner, to {fastest('rabenseifner')}: its rounds grow with log p. ring moves it inward, to"
                f" {fastest('ring')}: its rounds grow with p."
            ),
        ),
        ("Find the two other limits: at few GPUs, and at very many.", ends),
    )


def many_or_one() -> Card:
    """Ask whether many small buckets or one are exchanged faster, and measure it."""
    count = len(here.sizes_of_a_step(here.BUCKETS[0]))
    return lesson.predict_choice(
        f"The same gradients in {count} buckets or in one, without overlap. Which is exchanged faster?",
        ("many small buckets", "one large bucket", "equal, the bytes are the same"),
        result="one large bucket",
        explanation="Each bucket pays every round of its ring, and each round pays the latency.",
        then=exchange_here(),
    )


def four_ranks() -> Card:
    """Ask how much faster four ranks train, and train."""
    return lesson.predict(
        "Four ranks with a core each share the batch that one rank had. By the formula, how many times as fast is a"
        " step?",
        result=lambda: live.times_as_fast(live.Setting(ranks=4)),
        unit="times",
        explanation="A quarter of the batch is computed less efficiently, and all wait for the slowest; the allreduce"
        " takes microseconds. The accuracy is unchanged: the allreduce yields the gradient of the whole batch.",
        then=live.train_here(),
    )


def try_training() -> Column:
    """List things to try with real ranks."""
    return lesson.steps(
        (
            "Train on one rank, then on two and on four. Where does the prediction start to fail?",
            "With more ranks than the machine has cores: the chart shows ranks that wait for a core inside their"
            " allreduce.",
        ),
        (
            "Send the buckets after backward. Where does the communication move?",
            "Behind backward, where nothing overlaps with it: all of it is exposed.",
        ),
        (
            "Take the smallest bucket. Which term grows?",
            "Exposed communication: more buckets, each with the latency of all its rounds.",
        ),
    )


def twice_the_gpus() -> Card:
    """Check what strong scaling shortens."""
    taken = f"{1 / scaling.strong_gain(256, 512):.0%} of the time"
    return lesson.choose(
        "Goyal's run: 8,192 images a step, 32 on each of 256 GPUs. You take 512 GPUs, 16 images each. It takes ...",
        {
            "half the time": "Only the computation halves. Allreduce and waiting do not.",
            taken: "Yes: the terms that do not shrink become a larger share of each step.",
            "the same time": "Not yet: that happens where computation is shorter than the allreduce, near 2,048 GPUs.",
        },
        right=taken,
    )


def hidden() -> Card:
    """Check what overlap hides."""
    return lesson.choose(
        "The allreduce takes a third of the time of backward, and they overlap. How much of it is hidden?",
        {
            "All of it": "The last bucket is ready when backward ends. No computation is left to hide it.",
            "All but the last bucket": "Yes: that is why its size matters more than the total.",
            "A third of it": "The totals do not decide that: the time at which each bucket is ready does.",
        },
        right="All but the last bucket",
    )


def asynchronous() -> Card:
    """Check when asynchronous training pays."""
    return lesson.choose(
        "Asynchronous training computes more gradients a second here. Is it the better choice?",
        {
            "Yes, more gradients are more learning": "They are stale: find the learning rate at which it diverges.",
            "No, stale gradients never converge": "They do, at a lower learning rate. See the formula.",
            "It depends on the slow workers and the learning rate": "Yes: it pays where waiting is expensive.",
        },
        right="It depends on the slow workers and the learning rate",
    )


def efficiency(seed: int | None = None) -> Card:
    """Ask each learner for an efficiency from a step of their own."""
    draw = np.random.default_rng(seed)
    compute = 10 * int(draw.integers(10, 30))
    exchange, overlapped = 10 * int(draw.integers(6, 12)), int(draw.choice([50, 60, 75, 80]))
    wait = int(draw.integers(5, 20))
    out = exchange * (100 - overlapped) / 100
    return lesson.compute(
        f"A step computes for {compute} ms, its allreduce takes {exchange} ms of which {overlapped} % are hidden,"
        f" and the slowest rank is {wait} ms behind the mean. What is the efficiency, in %?",
        answer=100 * compute / (compute + wait + out),
        unit="%",
        hint="Add exposed communication and waiting to the computation; divide the computation by the sum.",
    )


def published() -> Table:
    """Return what was published of the run beside its prediction."""
    return scaling.published_table()


def surprises() -> ipywidgets.HTML:
    """Return all guesses beside the results."""
    return lesson.surprises()


def _ms(seconds: object) -> str:
    return f"{float(seconds) * 1e3:.0f} ms"  # type: ignore[arg-type]


def _exposed(**choice: float) -> str:
    return show(float(predict(step_of(**choice)).exposed_communication), "s")  # type: ignore[arg-type]


def _latency(bucket: float) -> str:
    step = predict(step_of(allreduce="ring", bucket=bucket))
    count = bucket_count(step.experiment)
    return f"{count} buckets wait {show(float(step.communication.latency), 's')} for it"
