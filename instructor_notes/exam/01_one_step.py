"""Exam questions of module 01, one step."""

from lib_dlhpc.explore.one_step import layers
from lib_dlhpc.explore.one_step.machines import Mine
from lib_dlhpc.explore.one_step.roofline import Setting, device_of, gain, point, roof
from lib_dlhpc.spec.machine import Device
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.problems import Step
from lib_dlhpc.teaching.questions import Draw, Open, Question

mine = Mine()
core = layers.device_of(layers.Setting(), mine)
GPUS = {"a100-sxm-40gb": "A100", "h100-sxm-80gb": "H100", "h200-sxm-141gb": "H200"}
streamed = [
    row.name
    for row in layers.rows(layers.Setting(model="lenet5", batch=64), core)
    if row.bound == "memory-bound" and row.name != "update"
]


def device(name: str) -> Device:
    """Return a device of the catalog."""
    return device_of(Setting(device=name), mine)


def one_sample(draw: Draw) -> Question:
    """A dense layer that reads its weights for one sample."""
    name, width = draw.any(list(GPUS)), draw.between(4096, 14336, 128)
    peak, _ = roof(device(name))
    bandwidth = float(device(name).memory_bandwidth)
    one = point(Setting(name, width=width), device(name))
    launch = one.seconds - one.moved / bandwidth
    return Question(
        "one sample",
        f"A dense layer has {width:,} numbers in and out, in 16 bits, and processes one sample. An {GPUS[name]} has a"
        f" peak of {show(peak, 'FLOP/s')} and {show(bandwidth, 'B/s')} of memory bandwidth; a launch takes"
        f" {show(launch, 's')}. About how long does the layer take?",
        show(one.seconds, "s"),
        {
            show(launch + 6 * width**2 / bandwidth, "s"): (
                "Inputs and outputs move as many bytes as the weights."
            ),
            show(launch + 4 * width**2 / bandwidth, "s"): (
                "A multiplication and an addition each read the weight."
            ),
            show(launch + 16 * width**2 / bandwidth, "s"): "Memory bandwidth is counted in bits.",
        },
        f"All weights are read for one sample: {one.intensity:.2g} FLOP per byte, far below the ridge point.",
        [
            Step("Bytes of the weights, 2 n²", 2 * width**2, "B"),
            Step("Over the bandwidth", 2 * width**2 / bandwidth, "s"),
            Step("Plus the launch", launch + 2 * width**2 / bandwidth, "s"),
        ],
    )


def faster_arithmetic(draw: Draw) -> Question:
    """What faster arithmetic is worth to a layer that is compute-bound at first."""
    name, batch = draw.any(list(GPUS)), draw.between(640, 1536, 64)
    width = draw.between(6144, 12288, 512)
    own = Setting(name, width=width, batch=batch)
    now, gained = point(own, device(name)).seconds, gain(own, mine)
    return Question(
        "faster arithmetic",
        f"A dense layer of {width:,} numbers in and out processes {batch:,} samples on an {GPUS[name]}. Its arithmetic"
        f" takes {show(now, 's')}, and its memory traffic would take {show(now / gained, 's')} by itself; the two"
        " overlap. Arithmetic becomes 8 times as fast, memory stays as it is. How many times as fast is the layer?",
        f"{gained:.2f}",
        {
            f"{8:.2f}": "Faster arithmetic makes every step faster.",
            f"{gain(own._replace(batch=1), mine):.2f}": (
                "A layer gains as little with thousands of samples as with one."
            ),
            f"{1 / (0.5 + 0.5 / 8):.2f}": "Half of any layer's time is arithmetic.",
        },
        "Arithmetic was the limit; now memory is, and the layer takes as long as its memory traffic.",
        [Step("The layer now takes as long as memory: arithmetic over memory", gained)],
    )


def newer_gpu(draw: Draw) -> Question:
    """A step that is not its arithmetic."""
    computing, moving = draw.between(20, 60, 5), draw.between(15, 30, 5)
    peaks, bytes_ = draw.between(2.5, 6.0, 0.5), draw.between(1.5, 2.4, 0.1)
    starting = 100 - computing - moving
    parts = [computing / peaks, moving / bytes_, starting]
    mean = (computing * peaks + moving * bytes_ + starting) / 100
    return Question(
        "newer gpu",
        f"In a step with few images, layers that wait for arithmetic take {computing}% of the time, layers that wait"
        f" for memory {moving}%, and launches the rest. Another GPU has {peaks:.1f} times the peak FLOP/s and"
        f" {bytes_:.1f} times the memory bandwidth; its launches take as long. How many times as fast is the step on"
        " that GPU?",
        f"{100 / sum(parts):.2f}",
        {
            f"{peaks:.2f}": "Peak FLOP/s predicts time.",
            f"{mean:.2f}": "Gains are averaged by the time that they apply to.",
            f"{100 / (computing / peaks + moving + starting):.2f}": "Only arithmetic gains from a newer GPU.",
        },
        "With few images, launches and memory take most of a step, and each part speeds up by its own factor.",
        [
            Step("Launches", starting, "%"),
            Step("All three parts on the other GPU, as a share of the old step", sum(parts), "%"),
            Step("The old step over the new", 100 / sum(parts)),
        ],
    )


def twice_the_batch(draw: Draw) -> Question:
    """A step whose launches do not grow."""
    fixed, batch = draw.between(12, 78, 1), draw.between(4, 40, 4)
    grown = 2 - fixed / 100
    return Question(
        "twice the batch",
        f"A small network runs on a laptop's core with {batch} samples per step. Launches and reading the weights do"
        f" not grow with the samples; they take {fixed}% of a step. With {2 * batch} samples, how many times as long"
        " does a step take?",
        f"{grown:.2f}",
        {
            f"{2:.2f}": "Twice the batch takes twice as long.",
            f"{1 + fixed / 100:.2f}": "The part that does not grow is the part that doubles.",
            f"{1:.2f}": "A step that is partly launch-bound does not grow at all.",
        },
        "Launch overhead does not grow; the rest does.",
        [Step("What grows", 100 - fixed, "%"), Step("1 + what grows", grown)],
    )


def ridge_point(draw: Draw) -> Question:
    """Peak over bandwidth."""
    peak, bandwidth = draw.between(180, 720, 20) * 1e12, draw.between(1.2, 2.8, 0.1) * 1e12
    ridge = peak / bandwidth
    return Question(
        "ridge point",
        f"A device has a peak of {show(peak, 'FLOP/s')} and reads {show(bandwidth, 'B/s')}. At which arithmetic"
        " intensity and above can it reach its peak?",
        f"{ridge:.0f} FLOP/B",
        {
            f"{ridge / 2:.0f} FLOP/B": "A multiplication and an addition are one FLOP.",
            f"{2 * ridge:.0f} FLOP/B": "Intensity is counted per 16-bit number.",
            f"{ridge / 8:.0f} FLOP/B": "Bandwidth is counted in bits.",
        },
        "Peak over bandwidth.",
        [Step("Peak over bandwidth", ridge, "FLOP/B")],
    )


def attainable(draw: Draw) -> Question:
    """The roofline."""
    intensity, bandwidth = draw.between(5, 40, 1), draw.between(0.6, 2.4, 0.1) * 1e12
    peak, reached = 80e12, intensity * bandwidth
    return Question(
        "attainable",
        f"A layer performs {intensity} FLOP per byte. Memory gives {show(bandwidth, 'B/s')}, and the peak is"
        f" {show(peak, 'FLOP/s')}. Which rate can the layer reach at most?",
        show(reached, "FLOP/s"),
        {
            show(peak, "FLOP/s"): "Peak FLOP/s predicts time.",
            show(1 / (1 / reached + 1 / peak), "FLOP/s"): "Memory and arithmetic take turns.",
            show(reached / 2, "FLOP/s"): "Reads and writes each have half of the bandwidth.",
        },
        "The smaller of the peak and intensity times bandwidth.",
        [Step("Intensity times bandwidth, which is below the peak", reached, "FLOP/s")],
    )


def longer_message(draw: Draw) -> Question:
    """Latency and bandwidth of a message."""
    latency, rate = draw.between(0.4, 2.5, 0.1), draw.between(4, 12, 1)
    small, large = 1024, draw.any([8192, 16384, 32768])
    short, long_ = (latency * 1e-6 + size / (rate * 1e9) for size in (small, large))
    return Question(
        "longer message",
        f"Messages between two processes have a latency of {latency} µs, and a rate of {rate} GB/s. One of {large:,} B"
        f" takes how many times as long as one of {small:,} B?",
        f"{long_ / short:.2f}",
        {
            f"{large / small:.0f}": "The time of a message is proportional to its bytes.",
            f"{(large / small) ** 0.5:.2f}": "Time grows with the root of the size.",
            f"{1:.2f}": "Latency is all that a message pays.",
        },
        "Both pay the same latency; the longer one also pays for its bytes.",
        [
            Step(f"Time of {small:,} B", short, "s"),
            Step(f"Time of {large:,} B", long_, "s"),
            Step("One over the other", long_ / short),
        ],
    )


def turning_point(draw: Draw) -> Question:
    """The batch from which a dense layer is compute-bound."""
    ridge, width = draw.between(110, 290, 10), draw.between(2000, 4800, 200)
    batch = ridge * width / (width - 2 * ridge)
    return Question(
        "turning point",
        f"A dense layer of {width:,} numbers in and out, in 16 bits, runs on a GPU whose ridge point is at {ridge}"
        " FLOP/B; matmuls reach the peak. At about which batch size does it become compute-bound?",
        f"{batch:.0f}",
        {
            f"{ridge * width / (width - ridge) / 2:.0f}": "A 16-bit number takes one byte.",
            f"{2 * ridge * width / (width - 4 * ridge):.0f}": (
                "A multiplication and an addition are one FLOP."
            ),
            f"{width:,}": "Only a batch as large as the layer fills a GPU.",
        },
        "Intensity is b n / (n + 2 b) FLOP per byte, which is about b as long as the layer is much wider than the"
        " batch.",
        [
            Step("Width over (width minus two ridge points)", width / (width - 2 * ridge)),
            Step("Times the ridge point", batch),
        ],
    )


def fused_layers(draw: Draw) -> Question:
    """What fusing all that is neither a GEMM nor attention is worth to a step."""
    light, kernels = draw.between(14, 54, 0.5), draw.between(3, 8, 1)
    left = 100 - light + light / kernels
    return Question(
        "fused layers",
        f"On a GPU, norms, activations, dropout and sums take {light}% of a step, all of it moving data; GEMMs and"
        f" attention take the rest. A compiler fuses the former, {kernels} to a kernel, so that they move one byte"
        f" where they moved {kernels}. How many times as fast is the step?",
        f"{100 / left:.2f}",
        {
            f"{kernels:.2f}": "A step gains what its fused kernels gain.",
            f"{100 / (100 - light):.2f}": "Fused layers cost nothing.",
            f"{1:.2f}": "Fusion removes no FLOP, so it removes no time.",
        },
        "Fused layers take a fraction of their time, in proportion to their bytes; the others take as long as before.",
        [
            Step("Fused layers, as a share of the old step", light / kernels, "%"),
            Step("With the others", left, "%"),
            Step("The old step over the new", 100 / left),
        ],
    )


OPEN = Open(
    "A colleague measures that a network trains 1.6 times as fast on a GPU with three times the peak FLOP/s, and"
    " calls the new GPU faulty. Explain what you would look at before you agree, and name one measurement that would"
    " settle the question.",
    "A step is a sum over layers, each limited by arithmetic, by memory or by its launch; only the first kind gains"
    " from a higher peak. Compare the bandwidths, find the share of each kind in a trace or a roofline, and repeat"
    " with a larger batch: if the gain rises, the GPU is sound.",
    {
        "says that layers wait for arithmetic, memory or launches": 2,
        "says which of the three the peak changes, and what the others depend on": 2,
        "names a measurement, such as another batch, and what each outcome would mean": 2,
    },
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
        "LeNet-5 runs with 64 samples on a laptop's core, which reaches"
        f" {show(core.peak['fp32'] * core.efficiency, 'FLOP/s')} in matmuls and reads"
        f" {show(core.memory_bandwidth, 'B/s')} from memory. Which layers are memory-bound?",
        "The activations and the pooling, with few FLOP",
        {
            "The dense layers, which have the most weights": "Memory-bound layers are the large ones.",
            "The convolutions, which perform by far the most FLOP": "The layer that computes the most reads the most.",
            "All of them, since the network is small for a core": "A small network is memory-bound, not launch-bound.",
        },
        f"They are {', '.join(streamed)}: arithmetic intensity decides, not size. A dense layer uses each weight 64"
        " times.",
    ),
    longer_message,
    Question(
        "wide interval",
        "A calibration gives 10 GB/s for messages, with an interval from 3 to 12. A prediction is 40% off. What do"
        " you do first?",
        "Measure again on an idle machine, for a narrower interval",
        {
            "Set the bandwidth to the value that makes this run come out": "A calibration is a number.",
            "Replace the formula, since it is off": "A prediction that is off has a wrong formula.",
            "Report the mean of prediction and measurement": "The mean of two wrong numbers is better than either.",
        },
        "The parameters are not known well enough to blame the formula.",
    ),
    turning_point,
    fused_layers,
]
