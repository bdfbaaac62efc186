"""Exam questions of module 01, one step."""

from lib_dlhpc.explore.one_step import layers
from lib_dlhpc.explore.one_step.machines import Mine
from lib_dlhpc.explore.one_step.measured import message_ratio
from lib_dlhpc.explore.one_step.roofline import BATCHES, Setting, device_of, gain, point, roof
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.questions import Question

mine = Mine()
V100 = device_of(Setting(), mine)
one, (peak, ridge) = point(Setting(), V100), roof(V100)
GPUS = {name: f"{name}-sxm{kind}" for name, kind in (("v100", "2-16gb"), ("h100", "-80gb"))}


def resnet(device: str, batch: int) -> float:
    """Return the seconds of a step of ResNet-50."""
    setting = layers.Setting("resnet50", GPUS[device], batch)
    return layers.step_time(setting, layers.device_of(setting, mine))


def gained(batch: int) -> float:
    """Return how many times as fast a step of ResNet-50 is on an H100 as on a V100."""
    return resnet("v100", batch) / resnet("h100", batch)


def growth(batch: int) -> float:
    """Return how many times as long a step of the small network takes with twice the batch."""
    setting = layers.Setting(batch=batch)
    return layers.growth(setting, layers.device_of(setting, mine))


def peak_of(device: str) -> float:
    """Return the peak of a device, in FLOP/s."""
    return roof(device_of(Setting(device=GPUS[device]), mine))[0]


turn = next(batch for batch in BATCHES if point(Setting(batch=batch), V100).bound == "arithmetic")
BANDWIDTH, PEAK, INTENSITY = 900e9, 15.7e12, 8
reached = min(INTENSITY * BANDWIDTH, PEAK)
streamed = [
    row.name
    for row in layers.rows(layers.Setting(model="lenet5"), layers.device_of(layers.Setting(), mine))
    if row.bound == "memory-bound"
]
ratio = message_ratio(mine)

QUESTIONS = [
    Question(
        "one sample",
        "A dense layer has 4,096 numbers in and out, in 16 bits, and one sample. A V100 has a peak of"
        f" {show(peak, 'FLOP/s')} and"
        f" {show(float(V100.memory_bandwidth), 'B/s')} of memory bandwidth. About how long does the layer take?",
        show(one.seconds, "s"),
        {
            show(one.work / peak, "s"): "Peak FLOP/s predicts time.",
            show(
                2 * 4096 * 2 / float(V100.memory_bandwidth), "s"
            ): "Only inputs and outputs move, weights are there already.",
            show(one.seconds * 8, "s"): "A GPU with one sample runs one core of many.",
        },
        f"All weights are read for one sample: {one.intensity:.2g} FLOP a byte, far below the ridge point.",
    ),
    Question(
        "faster arithmetic",
        "A dense layer of 4,096 numbers in and out, in 16 bits, one sample, on a V100. Its arithmetic becomes"
        " 8 times as fast, its memory stays. How many times as fast is the layer?",
        f"{gain(Setting(), mine):.1f}",
        {
            f"{peak * 8 / peak:.1f}": "Faster arithmetic makes every step faster.",
            f"{gain(Setting(batch=4096), mine):.1f}": "One sample behaves as thousands do.",
            f"{1 / (0.5 + 0.5 / 8):.1f}": "Half of any layer's time is arithmetic.",
        },
        "The layer is memory-bound: its time is that of reading the weights.",
    ),
    Question(
        "h100 instead of v100",
        f"ResNet-50, 8 images a step. An H100 has {peak_of('h100') / peak:.1f} times the peak of a V100. How"
        " many times as fast is a step?",
        f"{gained(8):.1f}",
        {
            f"{peak_of('h100') / peak:.1f}": "Peak FLOP/s predicts time.",
            f"{gained(64):.1f}": "The gain does not depend on the batch.",
            f"{peak / peak:.1f}": "So small a batch is launch overhead alone.",
        },
        f"With 8 images, launches and memory take most of a step. With 64 the gain is {gained(64):.1f}.",
    ),
    Question(
        "twice the batch",
        "A small convolutional network on a laptop's core, 8 samples a step. With 16, how many times as long"
        " does a step take?",
        f"{growth(8):.2f}",
        {
            f"{16 / 8:.2f}": "Twice the batch takes twice as long.",
            f"{growth(64):.2f}": "A step grows by the same factor at any batch.",
            f"{8 / 8:.2f}": "A step that is launch-bound in part does not grow at all.",
        },
        "Most of the step is launch overhead, which does not grow; the rest does.",
    ),
    Question(
        "ridge point",
        f"A device has a peak of {show(peak, 'FLOP/s')} and reads {show(float(V100.memory_bandwidth), 'B/s')}."
        " From which arithmetic"
        " intensity on can it reach its peak?",
        f"{ridge:.0f} FLOP/B",
        {
            f"{1 / ridge:.2g} FLOP/B": "Intensity is bytes for each FLOP.",
            f"{ridge / 2:.0f} FLOP/B": "Numbers of 16 bits count as one byte each.",
            f"{roof(device_of(Setting(device='laptop-core'), mine))[1]:.2g} FLOP/B": (
                "The ridge point is a property of the layer, the same on a laptop."
            ),
        },
        "Peak over bandwidth.",
    ),
    Question(
        "attainable",
        f"A layer performs {INTENSITY} FLOP per byte. Memory gives {show(BANDWIDTH, 'B/s')}, the peak is"
        f" {show(PEAK, 'FLOP/s')}. What does"
        " it reach at most?",
        show(reached, "FLOP/s"),
        {
            show(PEAK, "FLOP/s"): "Peak FLOP/s predicts time.",
            show(1 / (1 / reached + 1 / PEAK), "FLOP/s"): "Memory and arithmetic take turns.",
            show(BANDWIDTH / INTENSITY, "FLOP/s"): "Intensity divides the bandwidth.",
        },
        "The lesser of the peak and of intensity times bandwidth.",
    ),
    Question(
        "memory-bound layers",
        "LeNet-5 with 8 samples. Which of its layers are memory-bound?",
        "The activations and the pooling, which do next to no arithmetic for a number that they read",
        {
            "The dense layers, which have the most weights": "Memory-bound layers are the large ones.",
            "The convolutions, which do the most FLOP": "Who computes most reads most for each FLOP.",
            "All of them, since the network is small": "A small network is memory-bound, not launch-bound.",
        },
        f"They are {', '.join(streamed)}: arithmetic intensity decides, not size.",
    ),
    Question(
        "longer message",
        "Two processes pass a message through memory: latency and bandwidth as in the module's example. One of"
        " 4,096 B takes how many"
        " times as long as one of 8 B?",
        f"{ratio:.1f}",
        {
            f"{4096 / 8:.0f}": "The time of a message is proportional to its bytes.",
            f"{(4096 / 8) ** 0.5:.0f}": "Time grows with the root of the size.",
            f"{8 / 8:.1f}": "Below a page all messages are equal.",
        },
        "Both pay the same latency; 4,096 B are still fewer than latency times bandwidth.",
    ),
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
    Question(
        "turning point",
        "The dense layer of 4,096 numbers on the V100, in 16 bits; large products reach four fifths of the peak. From"
        " which batch (a power of two) on is it compute-bound?",
        f"{turn:,}",
        {
            f"{turn // turn:,}": "A product of matrices is always compute-bound.",
            f"{turn // 8:,}": "The ridge point counts FLOP for each number of the input.",
            f"{BATCHES[-1]:,}": "Only a batch as large as the layer fills a GPU.",
        },
        f"Intensity is about the batch in FLOP a byte; the ridge point is at {ridge:.0f}, for such products at four"
        " fifths of it.",
    ),
]
