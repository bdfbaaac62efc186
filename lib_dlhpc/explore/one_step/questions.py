"""What module 01 asks, in its order: guesses that uncover experiments, things to try, checks."""

from typing import Any

import ipywidgets
import numpy as np

from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.plain_text import Column
from lib_dlhpc.explore.blocks.question import Card
from lib_dlhpc.explore.one_step import layers
from lib_dlhpc.explore.one_step.here import Setting as Here
from lib_dlhpc.explore.one_step.here import exchange_share, run_one_step
from lib_dlhpc.explore.one_step.layers import Setting as Step
from lib_dlhpc.explore.one_step.layers import device_of as computes
from lib_dlhpc.explore.one_step.layers import growth, step_by_layers
from lib_dlhpc.explore.one_step.machines import Mine
from lib_dlhpc.explore.one_step.measured import calibrate_here, message_ratio
from lib_dlhpc.explore.one_step.roofline import (
    ASKED,
    BATCHES,
    PEAK,
    Point,
    Setting,
    device_of,
    gain,
    point,
    roof,
    roofline,
)
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.units import format_quantity as show

lesson, mine = Lesson(), Mine()
GPUS = ("v100-sxm2-16gb", "a100-sxm-40gb", "h100-sxm-80gb")
BIG = Step("resnet50", "v100-sxm2-16gb", 512)


def one_sample() -> Card:
    """Ask how long a layer with one sample takes."""
    layer = point(Setting(), device_of(Setting(), mine))
    return lesson.predict(
        "A dense layer, 4,096 numbers in and out, one sample: 33.6 million FLOP. A V100 peaks at 125 TFLOP/s in"
        " 16 bits. By that peak the layer takes 0.27 µs. How many µs does it take?",
        result=layer.seconds * 1e6,
        unit="µs",
        explanation="33.6 MB of weights come from memory first: an arithmetic intensity of one FLOP a byte.",
        then=roofline(mine),
    )


def twice_the_samples() -> Card:
    """Ask how a step grows with its batch."""
    return lesson.predict(
        "A small convolutional network trains on the digits on a laptop's core, 8 samples a step. With 16, how many"
        " times as long does a step take?",
        result=growth(Step(), computes(Step(), mine)),
        unit="times",
        explanation="Most of the step is launch overhead, which is the same for 16 samples as for 8.",
        then=step_by_layers(mine),
    )


def longer_message() -> Card:
    """Ask how a message grows with its bytes, and calibrate."""
    return lesson.predict(
        "Two processes on one machine pass a message through memory. In the example, how many times as long does one of"
        " 4,096 B take as one of 8 B?",
        result=message_ratio(mine),
        unit="times",
        explanation="512 times the bytes, but each message pays the same latency first.",
        then=calibrate_here(mine),
    )


def share_of_the_allreduce() -> Card:
    """Ask for the share of the allreduce, and run a step."""
    return lesson.predict(
        "Two ranks, 8 samples each, allreduce their gradients in each step. By the formula, what percentage of a step"
        " is"
        " that exchange?",
        result=lambda: 100 * exchange_share(Here(), mine),
        unit="%",
        explanation="A few messages through shared memory; launching the layers takes far longer.",
        then=run_one_step(mine),
    )


def higher_peak() -> Card:
    """Check what a higher peak brings."""
    return lesson.choose(
        "A dense layer has one sample and 4,096 numbers in and out. You buy a device with 8 times the peak and the same"
        " memory bandwidth. What happens to the layer?",
        {
            "It is 8 times as fast": "That is what the peak promises. The layer does one FLOP a byte: it is"
            " memory-bound.",
            "It takes as long as before": "Yes: its weights are read no faster.",
            "It gets slower": "Nothing gets slower, but memory, which it waits for, got no faster.",
        },
        right="It takes as long as before",
    )


def launch() -> Card:
    """Check what bounds a small step."""
    return lesson.choose(
        "A step of a small network takes 171 µs with 8 samples, and 176 µs with 16. All its weights are 26 kB, and"
        " memory"
        " moves 20 GB/s. What limits it?",
        {
            "Arithmetic": "Then twice the samples would take nearly twice the time.",
            "Memory": "Weights are read whatever the batch, so it could be. But 26 kB take 1.3 µs: even read ten times"
            " a step, less than a tenth of it.",
            "Starting": "Yes: neither samples nor weights account for it; each layer is launched as often as before.",
        },
        right="Starting",
    )


def wide_interval() -> Card:
    """Check what a wide interval means."""
    return lesson.choose(
        "Your calibration says 10 GB/s for messages, with an interval from 3 to 12. A prediction is 40 % off. What"
        " first?",
        {
            "The formula is wrong": "It may be, but its parameters are not known well enough to conclude that.",
            "Measure again on a quiet machine": "Yes: the interval is wider than the error.",
            "Make the machine's number fit": "That is fitting to one run: it holds for no other.",
        },
        right="Measure again on a quiet machine",
    )


def attainable(seed: int | None = None) -> Card:
    """Ask what a layer reaches, with numbers of the learner's own: under the slope or under the flat roof."""
    draw = np.random.default_rng(seed)
    intensity, bandwidth = int(draw.choice(ASKED)), int(draw.integers(3, 16)) * 100
    return lesson.compute(
        f"A layer makes {intensity} FLOP of each byte. Memory gives {bandwidth} GB/s, the peak is {PEAK} TFLOP/s."
        " How many TFLOP/s does it reach at most?",
        min(intensity * bandwidth / 1e3, PEAK),
        "TFLOP/s",
        "Bytes a second times FLOP a byte, unless the peak is less.",
    )


def try_roofline() -> Column:
    """List things to try under the roof."""

    def at(**changes: Any) -> Point:
        setting = Setting(**changes)
        return point(setting, device_of(setting, mine))

    def turn() -> int:
        return next(b for b in BATCHES if at(batch=b).bound == "arithmetic")

    def below() -> str:
        setting = Setting(width=64)
        here, (peak, ridge) = at(width=64), roof(device_of(setting, mine))
        reach = peak * min(1.0, here.intensity / ridge)
        return f"{reach / here.rate:,.0f} times, all of it launch overhead. What helps is more work in each call."

    return lesson.steps(
        (
            "With the defaults, take Arithmetic at 8 times. What changes?",
            lambda: (
                f"Nothing: {show(at().seconds, 's')} before, {show(at(faster=8.0).seconds, 's')} after. The layer is"
                " memory-bound, on the slope."
            ),
        ),
        (
            "Raise the batch. Along which line does the point move, and from where on is it flat?",
            lambda: f"Up the slope; from a batch of {turn()} on it is compute-bound.",
        ),
        (
            "At a batch of 4,096, take Arithmetic at 8 times again.",
            lambda: f"Now the layer is {gain(Setting(batch=4096), mine):.1f} times as fast.",
        ),
        (
            "Take one sample and a width of 64. How far below the roof is it, and what would help?",
            below,
        ),
        (
            "Take a 3 × 3 convolution of 256 channels, one sample. Why is its arithmetic intensity higher than that"
            " of a"
            " dense layer?",
            lambda: (
                f"It uses each weight at 256 places: {at(layer='conv3', width=256).intensity:.0f} FLOP a byte, where"
                f" the"
                f" dense layer has {at(width=256).intensity:.0f}."
            ),
        ),
        (
            "Take a laptop's core. Where is the ridge point now?",
            lambda: (
                f"At {roof(device_of(Setting('laptop-core'), mine))[1]:.2g} FLOP a byte, not at"
                f" {roof(device_of(Setting(), mine))[1]:.0f}: far fewer samples are enough."
            ),
        ),
    )


def try_layers() -> Column:
    """List things to try with a whole step."""

    def bounds(batch: int) -> str:
        setting = Step(batch=batch)
        found = {row.name: row.bound for row in layers.rows(setting, computes(setting, mine))}
        kinds = {
            bound: [n for n in found if found[n] == bound]
            for bound in dict.fromkeys(found.values())
        }
        return "; ".join(f"{bound}: {', '.join(names)}" for bound, names in kinds.items())

    def seconds(device: str, batch: int) -> str:
        setting = Step("resnet50", device, batch)
        return show(layers.step_time(setting, computes(setting, mine)), "s")

    def three(batch: int) -> str:
        return ", ".join(seconds(device, batch) for device in GPUS)

    def lenet() -> str:
        setting = Step("lenet5")
        found = layers.rows(setting, computes(setting, mine))
        return ", ".join(row.name for row in found if row.bound == "memory-bound")

    return lesson.steps(
        (
            "Raise the batch. Which layers change their bound, and in which order?",
            lambda: f"At 8 samples: {bounds(8)}. At 16: {bounds(16)}. At 512: {bounds(512)}.",
        ),
        (
            "Take LeNet-5 at 8 samples. Which layers are memory-bound, and what do they compute?",
            lambda: f"{lenet()}: they do next to no arithmetic for each number that they read.",
        ),
        (
            "Take ResNet-50 on a V100, an A100 and an H100, 8 samples. The peak grows 7.9 times; does the step?",
            lambda: f"No: {three(8)}. Launch overhead and memory do not follow the peak.",
        ),
        ("And with 64 samples?", lambda: f"{three(64)}: larger products use more of the peak."),
        (
            "Take 512 samples on the V100.",
            lambda: predict(layers.experiment(BIG, computes(BIG, mine))).walls[0],
        ),
    )


def try_measuring() -> Column:
    """List things to try with one's own machine."""
    return lesson.steps(
        (
            "Look at the example. From which edge on do products reach their peak rate, and which lie off the line?",
            "From an edge of about 96 on. Points above the line there and below it at larger edges: the library"
            " switches"
            " algorithms.",
        ),
        (
            "Why is the bandwidth of the smallest arrays low, that of 64 kB arrays the highest, and that of larger ones"
            " lower?",
            "The smallest are all call overhead, those of 64 kB stay in a cache, larger ones come from memory.",
        ),
        (
            "Measure your machine for 4 seconds, then for 30. Which numbers move?",
            "The intervals become narrower; the second values should lie inside the intervals of the first run.",
        ),
        (
            "Run something else meanwhile, a video perhaps. Which of the three charts suffers most?",
            "Messages, since two ranks need a core at the same moment; products suffer least.",
        ),
        (
            "Go back to the first figures, and choose the measured core as the device.",
            "Now they are about your machine.",
        ),
    )


def try_running() -> Column:
    """List things to try with real steps."""
    return lesson.steps(
        (
            "Run it before you have measured, and after. Which terms come closer?",
            "As a rule all: forward and backward first, since they are the longest.",
        ),
        (
            "Take one rank. What is left of the error?",
            "Compute alone: there is nothing to wait for and nothing to send.",
        ),
        (
            "Take 256 samples, and convolutions. Which term has the largest error now?",
            "See the table; an error of a third is common where ranks lack cores or other processes run, and the text"
            " below the chart says so.",
        ),
    )


def surprises() -> ipywidgets.HTML:
    """Return all guesses beside the results."""
    return lesson.surprises()
