"""Problems of module 01, one step."""

from lib_dlhpc.costs import by_operator, flat
from lib_dlhpc.explore.one_step.machines import Mine
from lib_dlhpc.explore.one_step.roofline import Setting, device_of, point, roof
from lib_dlhpc.prediction.communication.collectives import ALGORITHMS
from lib_dlhpc.spec.experiment import read_model
from lib_dlhpc.spec.machine import Device
from lib_dlhpc.teaching.problem_texts import Numbers, written
from lib_dlhpc.teaching.problems import PAGE, Cases

draw: Cases = globals().get("draw", PAGE)

mine = Mine()
device = device_of(Setting(), mine)
peak, bandwidth, launch = (
    float(device.peak["fp16"]),
    float(device.memory_bandwidth),
    float(device.launch),
)
half, large = float(device.half_work), float(device.efficiency)
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
    return float(gpu.launch) + 2 * (WIDE**2 + 2 * WIDE) / (
        float(gpu.memory_bandwidth) * (gpu.streaming or 1.0)
    )


def message(size: float) -> float:
    """Return the seconds of a message."""
    return float(ALGORITHMS["recursive_doubling"](size, flat(2, ALPHA, BETA)).total)


PROBLEMS = written(
    globals(),
    one_sample=Numbers(
        point(Setting(width=N), device).seconds,
        flop=work(1),
        bytes=moved(1),
        computes=arithmetic(1),
        moves=moved(1) / bandwidth,
        total=moved(1) / bandwidth + launch,
    ),
    many_samples=Numbers(
        point(Setting(width=N, batch=1024), device).seconds,
        flop=work(1024),
        bytes=moved(1024),
        moves=moved(1024) / bandwidth,
        computes=arithmetic(1024),
        total=arithmetic(1024) + launch,
    ),
    ridge=Numbers(roof(a100)[1], intensity=float(a100.peak["fp16"]) / float(a100.memory_bandwidth)),
    message=Numbers(message(SIZE), rate=1 / BETA, bytes=SIZE * BETA, total=ALPHA + SIZE * BETA),
    short_message=Numbers(
        100 * SMALL * BETA / message(SMALL),
        bytes=SMALL * BETA,
        total=ALPHA + SMALL * BETA,
        share=100 * SMALL * BETA / (ALPHA + SMALL * BETA),
    ),
    pieces=Numbers(
        PIECES * message(SIZE / PIECES) / message(SIZE),
        piece=ALPHA + SIZE / PIECES * BETA,
        all_of_them=PIECES * ALPHA + SIZE * BETA,
        ratio=(PIECES * ALPHA + SIZE * BETA) / (ALPHA + SIZE * BETA),
    ),
    fused_neighbors=Numbers(
        chain_seconds(False) - chain_seconds(True),
        saved=6 * ONCE,
        moves=6 * ONCE / MEMORY,
        total=6 * ONCE / MEMORY + 6 * STARTED,
    ),
    data_sheet=Numbers(
        roof(newer)[1],
        advertised=2 * top / 1e12,
        intensity=top / read_,
        sparse=2 * top / read_,
        per_number=top / read_ / 2,
    ),
    faster_gpu=Numbers(
        point(Setting("a100-sxm-40gb", width=WIDE), a100).seconds
        / point(Setting(NEWER[1], width=WIDE), newer).seconds,
        bytes=2 * (WIDE**2 + 2 * WIDE),
        old=single(a100),
        new=single(newer),
        speedup=single(a100) / single(newer),
        of_peaks=top / float(a100.peak["fp16"]),
    ),
)
