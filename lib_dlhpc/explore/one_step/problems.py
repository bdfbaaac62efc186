"""Problems of module 01, one step."""

from lib_dlhpc.costs import by_operator, flat
from lib_dlhpc.explore.one_step.machines import Mine
from lib_dlhpc.explore.one_step.roofline import Setting, device_of, point, roof
from lib_dlhpc.prediction.collectives import ALGORITHMS
from lib_dlhpc.spec.experiment import read_model
from lib_dlhpc.spec.machine import Device
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.problems import FADED, PAGE, WORKED, Cases, Problem, Step, Trap

draw: Cases = globals().get("draw", PAGE)

mine = Mine()
device = device_of(Setting(), mine)
peak, bandwidth, launch = (
    float(device.peak["fp16"]),
    float(device.memory_bandwidth),
    float(device.launch),
)
half, large = float(device.half_work), float(device.efficiency)
V100 = (
    f"A GPU has a peak of {show(peak, 'FLOP/s')} in 16 bits. Large matmuls reach {large:.0%} of it; a matmul of"
    f" {show(half, 'FLOP')} reaches half of that. Its memory moves {show(bandwidth, 'B/s')}, and a launch takes"
    f" {show(launch, 's')}."
)
N = draw.any([4096, 2048, 8192])


def work(batch: int) -> float:
    """Return the FLOP of a dense layer."""
    return 2 * batch * N * N


def moved(batch: int) -> float:
    """Return the bytes that it moves."""
    return 2 * (N * N + 2 * batch * N)


def arithmetic(batch: int) -> float:
    """Return the seconds of its arithmetic."""
    return (work(batch) + half) / (large * peak)


NEWER = draw.any([("H100", "h100-sxm-80gb"), ("H200", "h200-sxm-141gb")])
WIDE = draw.any([8192, 12288, 6144])
newer = device_of(Setting(device=NEWER[1]), mine)
top, read_ = roof(newer)[0], float(newer.memory_bandwidth)
a100 = device_of(Setting(device="a100-sxm-40gb"), mine)
ALPHA, BETA = draw.any([5e-6, 3e-6, 8e-6]), 1 / draw.any([12.5e9, 25e9])
SIZE = draw.any([250e3, 100e3, 400e3, 1e6])
SMALL, PIECES = draw.any([20e3, 8e3, 40e3]), draw.any([16, 8, 32])
TOKENS, WIDTH = draw.any([8192, 4096, 16384]), draw.any([2048, 4096, 1024])
CHAIN = read_model(
    {
        "family": "sequential",
        "input": [TOKENS, WIDTH],
        "layers": [{"kind": "gelu"}, {"kind": "relu"}, {"kind": "layer_norm", "scale": False}],
    }
)
STARTED, MEMORY = float(a100.launch), float(a100.memory_bandwidth)
ONCE = 2 * TOKENS * WIDTH * 2  # B that a pass over an activation in 16 bits reads and writes


def chain_seconds(fused: bool) -> float:
    """Return the seconds of the chain, forward and backward."""
    found = by_operator(CHAIN, a100, 1, "fp16", "sgd", fused).values()
    return sum(each.seconds + each.launches for each in found)


def single(gpu: Device) -> float:
    """Return the seconds of a layer of WIDE numbers for one sample, whose bytes decide."""
    return float(gpu.launch) + 2 * (WIDE**2 + 2 * WIDE) / float(gpu.memory_bandwidth)


def message(size: float) -> float:
    """Return the seconds of a message."""
    return float(ALGORITHMS["recursive_doubling"](size, flat(2, ALPHA, BETA)).total)


PROBLEMS = [
    Problem(
        "One sample",
        f"{V100} A dense layer has {N:,} inputs and outputs. How long does it take for one sample?",
        point(Setting(width=N), device).seconds,
        Step("FLOP: 2 b n²", work(1), "FLOP"),
        Step("Bytes: 2 (n² + 2 b n)", moved(1), "B"),
        Step("Time of the arithmetic: (w + w½) / (e P)", arithmetic(1), "s"),
        Step("Time of the memory traffic: m / B, which is longer", moved(1) / bandwidth, "s"),
        Step("The longer of the two, plus the launch", moved(1) / bandwidth + launch, "s"),
    ),
    Problem(
        "1,024 samples",
        "The layer of problem 1 now computes 1,024 samples on the same GPU. How long does it take, and what bounds it?",
        point(Setting(width=N, batch=1024), device).seconds,
        Step("FLOP: 2 b n²", work(1024), "FLOP"),
        Step("Bytes: 2 (n² + 2 b n)", moved(1024), "B"),
        Step("Time of the memory traffic: m / B", moved(1024) / bandwidth, "s"),
        Step(
            "Time of the arithmetic: (w + w½) / (e P), which is longer: compute-bound",
            arithmetic(1024),
            "s",
        ),
        Step("The longer of the two, plus the launch", arithmetic(1024) + launch, "s"),
    ),
    Problem(
        "A ridge point",
        f"An A100 has a peak of {show(float(a100.peak['fp16']), 'FLOP/s')} in 16 bits and"
        f" {show(float(a100.memory_bandwidth), 'B/s', 4)}."
        " What arithmetic intensity does a layer need at least to reach the peak?",
        roof(a100)[1],
        Step(
            "Peak over bandwidth: P / B",
            float(a100.peak["fp16"]) / float(a100.memory_bandwidth),
            "FLOP/B",
        ),
    ),
    Problem(
        "A message",
        f"A link has a latency of {show(ALPHA, 's')} and a bandwidth of {show(1 / BETA, 'B/s')}. How long does a"
        f" message of {show(SIZE, 'B')} take?",
        message(SIZE),
        Step("Time to send its bytes: n β", SIZE * BETA, "s"),
        Step("Plus the latency: α + n β", ALPHA + SIZE * BETA, "s"),
        kind=WORKED,
    ),
    Problem(
        "A short message",
        f"What share of that link's bandwidth does a message of {show(SMALL, 'B')} reach?",
        100 * SMALL * BETA / message(SMALL),
        Step("Time to send its bytes: n β", SMALL * BETA, "s"),
        Step("Time of the message: α + n β", ALPHA + SMALL * BETA, "s"),
        Step("The first over the second", 100 * SMALL * BETA / (ALPHA + SMALL * BETA), "%"),
        kind=FADED,
    ),
    Problem(
        "In pieces",
        f"The message of {show(SIZE, 'B')} goes over the same link in {PIECES} equal pieces, one after another. How"
        " many times as long does that take?",
        PIECES * message(SIZE / PIECES) / message(SIZE),
        Step("A piece", ALPHA + SIZE / PIECES * BETA, "s"),
        Step("All pieces", PIECES * ALPHA + SIZE * BETA, "s"),
        Step("Over one message", (PIECES * ALPHA + SIZE * BETA) / (ALPHA + SIZE * BETA)),
        traps=[
            Trap(
                PIECES,
                "Only the latency is paid for each piece. Each of them has fewer bytes to send.",
            )
        ],
    ),
    Problem(
        "Fused neighbors",
        f"An A100 moves {show(MEMORY, 'B/s', 4)} and starts a kernel in {show(STARTED, 's')}. Three consecutive layers"
        f" without matmuls process an activation of {TOKENS:,} tokens of {WIDTH:,} numbers in 16 bits. In the forward"
        " pass each layer is one kernel, which reads and writes all of it; in the backward pass each layer has twice"
        " as many kernels and moves twice the bytes. A compiler fuses the three layers into one, whose forward and"
        " backward passes cost as much as those of a single layer. How much time does that save in a step?",
        chain_seconds(False) - chain_seconds(True),
        Step("Bytes of one layer, forward: 2 × tokens × width × 2 B", ONCE, "B"),
        Step("Saved, two layers forward and backward: 2 × 3 times as many", 6 * ONCE, "B"),
        Step("These bytes over the bandwidth", 6 * ONCE / MEMORY, "s"),
        Step("Plus the 2 × 3 launches saved", 6 * ONCE / MEMORY + 6 * STARTED, "s"),
    ),
    Problem(
        "Read a data sheet",
        f"An {NEWER[0]} is advertised with about {2 * top / 1e12:,.0f} TFLOP/s for tensor cores in 16 bits, *with"
        f" sparsity*: twice what dense matmuls can reach. Its memory moves {show(read_, 'B/s')}. What arithmetic"
        " intensity does a dense matmul need at least to reach its peak?",
        roof(newer)[1],
        Step("Dense peak: half of the advertised one", top, "FLOP/s"),
        Step("Dense peak over bandwidth", top / read_, "FLOP/B"),
        traps=[
            Trap(
                2 * top / read_,
                "That is for matrices in which two of every four weights are zero. A dense matmul has half that peak.",
            ),
            Trap(
                top / read_ / 2,
                "That is in FLOP per number of 2 bytes. Arithmetic intensity is in FLOP per byte.",
            ),
        ],
    ),
    Problem(
        "Find the mistake: a faster GPU",
        f"A dense layer with {WIDE:,} inputs and outputs, in 16 bits, computes one sample. An A100 has"
        f" {show(float(a100.peak['fp16']), 'FLOP/s')} and {show(float(a100.memory_bandwidth), 'B/s', 4)}, an {NEWER[0]}"
        f" has {show(top, 'FLOP/s')} and {show(read_, 'B/s')}; a launch takes {show(float(newer.launch), 's')} on both."
        " A plan takes the ratio of the peaks as the speedup. How many times as fast is the layer really on the newer"
        " GPU?",
        point(Setting("a100-sxm-40gb", width=WIDE), a100).seconds
        / point(Setting(NEWER[1], width=WIDE), newer).seconds,
        Step("Bytes, nearly all of them weights", 2 * (WIDE**2 + 2 * WIDE), "B"),
        Step("Time on the A100", single(a100), "s"),
        Step(f"Time on the {NEWER[0]}", single(newer), "s"),
        Step("The first over the second", single(a100) / single(newer)),
        traps=[
            Trap(
                top / float(a100.peak["fp16"]),
                "That is the plan. One sample needs all weights from memory, and the ALUs are idle most of the time.",
            )
        ],
    ),
]
