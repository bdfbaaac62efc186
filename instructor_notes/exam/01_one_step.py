"""Exam questions of module 01, one step."""

from lib_dlhpc.explore.one_step import layers
from lib_dlhpc.explore.one_step.machines import Mine
from lib_dlhpc.explore.one_step.roofline import Setting, device_of, gain, point, roof
from lib_dlhpc.spec.machine import Device
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.questions import Draw, Question

mine = Mine()
GPUS = {"a100-sxm-40gb": "A100", "h100-sxm-80gb": "H100", "h200-sxm-141gb": "H200"}
NETWORKS = {"resnet101": "ResNet-101", "inception-v3": "Inception v3", "vit-b16": "ViT-B/16"}
streamed = [
    row.name
    for row in layers.rows(layers.Setting(model="lenet5"), layers.device_of(layers.Setting(), mine))
    if row.bound == "memory-bound"
]


def device(name: str) -> Device:
    """Return a device of the catalog."""
    return device_of(Setting(device=name), mine)


def step(model: str, name: str, batch: int) -> float:
    """Return the seconds of a step of a network on a device."""
    setting = layers.Setting(model, name, batch)
    return layers.step_time(setting, layers.device_of(setting, mine))


def one_sample(draw: Draw) -> Question:
    """A dense layer that reads its weights for one sample."""
    name, width = draw.of(list(GPUS)), draw.of([5120, 6144, 10240, 12288])
    peak, _ = roof(device(name))
    bandwidth = float(device(name).memory_bandwidth)
    one = point(Setting(name, width=width), device(name))
    return Question(
        "one sample",
        f"A dense layer has {width:,} numbers in and out, in 16 bits, and one sample. An {GPUS[name]} has a peak of"
        f" {show(peak, 'FLOP/s')} and {show(bandwidth, 'B/s')} of memory bandwidth; a launch takes"
        f" {show(one.seconds - one.moved / bandwidth, 's')}. About how long does the layer take?",
        show(one.seconds, "s"),
        {
            show(one.work / peak, "s"): "Peak FLOP/s predicts time.",
            show(2 * width * 2 / bandwidth, "s"): (
                "Only inputs and outputs move; the weights are already there."
            ),
            show(one.seconds * 8, "s"): "A GPU with one sample runs one core of many.",
        },
        f"All weights are read for one sample: {one.intensity:.2g} FLOP per byte, far below the ridge point.",
    )


def faster_arithmetic(draw: Draw) -> Question:
    """What faster arithmetic is worth to a layer that is compute-bound at first."""
    name, batch = draw.of(
        [
            ("a100-sxm-40gb", 768),
            ("h100-sxm-80gb", 1024),
            ("h200-sxm-141gb", 1024),
            ("h100-sxm-80gb", 768),
        ]
    )
    width = draw.of([8192, 10240, 12288])
    own = Setting(name, width=width, batch=batch)
    now, gained = point(own, device(name)).seconds, gain(own, mine)
    return Question(
        "faster arithmetic",
        f"A dense layer of {width:,} numbers in and out, {batch:,} samples, on an {GPUS[name]}: arithmetic takes"
        f" {show(now, 's')}, and memory would take {show(now / gained, 's')} by itself; they overlap. Arithmetic"
        " becomes 8 times as fast, memory stays. How many times as fast is the layer?",
        f"{gained:.2f}",
        {
            f"{8:.2f}": "Faster arithmetic makes every step faster.",
            f"{gain(own._replace(batch=1), mine):.2f}": "Thousands of samples behave as one does.",
            f"{1 / (0.5 + 0.5 / 8):.2f}": "Half of any layer's time is arithmetic.",
        },
        "Arithmetic was the limit; now memory is, and the layer takes as long as that.",
    )


def newer_gpu(draw: Draw) -> Question:
    """A step that is not its arithmetic."""
    model, batch = draw.of(list(NETWORKS)), draw.of([2, 4, 6, 12])
    old, new = draw.of([("p100-sxm2", "a100-sxm-40gb"), ("a100-sxm-40gb", "h100-sxm-80gb")])
    peaks = roof(device(new))[0] / roof(device(old))[0]
    few, many = (step(model, old, b) / step(model, new, b) for b in (batch, 256))
    return Question(
        "newer gpu",
        f"{NETWORKS[model]}, {batch} images per step. Another GPU has {peaks:.1f} times the peak. With 256 images per"
        " step"
        f" is {many:.2f} times as fast on it. And with {batch}?",
        f"{few:.2f}",
        {
            f"{peaks:.2f}": "Peak FLOP/s predicts time.",
            f"{many:.2f}": "The gain does not depend on the batch.",
            f"{1:.2f}": "So small a batch is launch overhead alone.",
        },
        "With few images, launches and memory take most of a step.",
    )


def twice_the_batch(draw: Draw) -> Question:
    """A step whose launches do not grow."""
    model, name = draw.of([("lenet5", "LeNet-5"), ("mlp-mnist", "A perceptron for MNIST")])
    batch = draw.of([4, 12, 32])
    grown, large = (
        layers.growth(setting, layers.device_of(setting, mine))
        for setting in (layers.Setting(model, batch=size) for size in (batch, 64))
    )
    return Question(
        "twice the batch",
        f"{name} on a laptop's core, {batch} samples per step: what does not grow with the samples, launches and the"
        f" weights, takes {100 * (2 - grown):.0f} % of it. With {2 * batch}, how many times as long does a step take?",
        f"{grown:.2f}",
        {
            f"{2:.2f}": "Twice the batch takes twice as long.",
            f"{large:.2f}": "A step grows by the same factor at any batch.",
            f"{1:.2f}": "A step that is launch-bound in part does not grow at all.",
        },
        "Launch overhead does not grow; the rest does.",
    )


def ridge_point(draw: Draw) -> Question:
    """Peak over bandwidth."""
    peak, bandwidth = draw.of([180e12, 260e12, 450e12, 700e12]), draw.of([1.2e12, 1.6e12, 2.5e12])
    ridge = peak / bandwidth
    return Question(
        "ridge point",
        f"A device has a peak of {show(peak, 'FLOP/s')} and reads {show(bandwidth, 'B/s')}. From which arithmetic"
        " intensity on can it reach its peak?",
        f"{ridge:.0f} FLOP/B",
        {
            f"{1 / ridge:.2g} FLOP/B": "Intensity is bytes per FLOP.",
            f"{ridge / 2:.0f} FLOP/B": "Numbers of 16 bits count as one byte each.",
            f"{roof(device('laptop-core'))[1]:.2g} FLOP/B": (
                "The ridge point is a property of the layer, the same on a laptop."
            ),
        },
        "Peak over bandwidth.",
    )


def attainable(draw: Draw) -> Question:
    """The roofline."""
    intensity, bandwidth = draw.of([5, 12, 20, 30]), draw.of([600e9, 1.3e12, 2.2e12])
    peak, reached = 80e12, intensity * bandwidth
    return Question(
        "attainable",
        f"A layer performs {intensity} FLOP per byte. Memory gives {show(bandwidth, 'B/s')}, the peak is"
        f" {show(peak, 'FLOP/s')}. What does it reach at most?",
        show(reached, "FLOP/s"),
        {
            show(peak, "FLOP/s"): "Peak FLOP/s predicts time.",
            show(1 / (1 / reached + 1 / peak), "FLOP/s"): "Memory and arithmetic take turns.",
            show(bandwidth / intensity, "FLOP/s"): "Intensity divides the bandwidth.",
        },
        "The lesser of the peak and of intensity times bandwidth.",
    )


def longer_message(draw: Draw) -> Question:
    """Latency and bandwidth of a message."""
    latency, rate = draw.of([0.6, 1.5, 2.5]), draw.of([4, 6, 9, 11])
    small, large = 64, draw.of([8192, 16384])
    short, long_ = (latency * 1e-6 + size / (rate * 1e9) for size in (small, large))
    return Question(
        "longer message",
        f"Two processes pass messages: a latency of {latency} µs, {rate} GB/s. One of {large:,} B takes how many times"
        f" as long as one of {small} B?",
        f"{long_ / short:.2f}",
        {
            f"{large / small:.0f}": "The time of a message is proportional to its bytes.",
            f"{(large / small) ** 0.5:.0f}": "Time grows with the root of the size.",
            f"{1:.2f}": "Below a page all messages are equal.",
        },
        "Both pay the same latency, and the longer one the time of its bytes.",
    )


def turning_point(draw: Draw) -> Question:
    """The batch from which a dense layer is compute-bound."""
    ridge, width = draw.of([110, 160, 250]), draw.of([3000, 6000, 10000, 15000])
    batch = ridge * width / (width - 2 * ridge)
    return Question(
        "turning point",
        f"A dense layer of {width:,} numbers in and out, in 16 bits, on a GPU whose ridge point is at {ridge} FLOP/B;"
        " matmuls reach the peak. From about which batch size on is it compute-bound?",
        f"{batch:.0f}",
        {
            f"{1}": "A matmul is always compute-bound.",
            f"{batch / 8:.0f}": "The ridge point counts FLOP per number of the input.",
            f"{width:,}": "Only a batch as large as the layer fills a GPU.",
        },
        "Intensity is b n / (n + 2 b) FLOP per byte, about the batch as long as the layer is much wider.",
    )


QUESTIONS = [
    one_sample,
    faster_arithmetic,
    newer_gpu,
    twice_the_batch,
    ridge_point,
    attainable,
    Question(
        "memory-bound layers",
        "LeNet-5 with 8 samples. Which of its layers are memory-bound?",
        "The activations and the pooling, which do next to no arithmetic for a number that they read",
        {
            "The dense layers, which have the most weights": "Memory-bound layers are the large ones.",
            "The convolutions, which do the most FLOP": "The layer that computes the most reads the most per FLOP.",
            "All of them, since the network is small": "A small network is memory-bound, not launch-bound.",
        },
        f"They are {', '.join(streamed)}: arithmetic intensity decides, not size.",
    ),
    longer_message,
    Question(
        "wide interval",
        "A calibration gives 10 GB/s for messages, with an interval from 3 to 12. A prediction is 40 % off."
        " What comes first?",
        "Measure again on an idle machine: the interval is wider than the error",
        {
            "Set the bandwidth to the value that makes this run come out": "A calibration is a number.",
            "Replace the formula, since it is off": "An error of a prediction is an error of its formula.",
            "Report the mean of prediction and measurement": "Two wrong numbers make a better one.",
        },
        "The parameters are not known well enough to blame the formula.",
    ),
    turning_point,
]
