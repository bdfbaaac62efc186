"""Case of module 03: the bus bandwidth of a cluster, and a bucket for it."""

import numpy as np

from lib_dlhpc.prediction.communication.collectives import bus_bandwidth
from lib_dlhpc.prediction.communication.overlap import exposed_time
from lib_dlhpc.prediction.validation.validate import results
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.cases import Case, Choice, Draw, Line, Option, Plan, Reading, Step, Table

MIB, RANKS = 2**20, 32
SIZES = (MIB // 32, MIB, 4 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB)
BUS = {size: 1e9 * float(results()[f"arb32-{size}"]["value"]) for size in SIZES}
SHARE = 2 * (RANKS - 1) / RANKS


def seconds(size: int) -> float:
    """Return the time of a published allreduce."""
    return float(bus_bandwidth(size, 1.0, RANKS)) / BUS[size]


def exposed(size: int, backward: float) -> float:
    """Return the s that are exposed of 256 MiB in equal buckets, which backward fills at a steady rate."""
    count = SIZES[4] // size
    ready = backward * np.arange(1, count + 1) / count
    return float(exposed_time(ready, np.full(count, seconds(size)), backward))


def case(draw: Draw) -> Case:
    """Return a version: millions of parameters, and the ms of backward."""
    millions, (slow, fast) = draw.of([100, 150, 250]), draw.any([(20, 10), (24, 11)])
    whole = 2e6 * millions
    buckets = dict(zip(("1 MiB", "4 MiB", "64 MiB", "256 MiB"), SIZES[1:5], strict=True))
    when = {
        "1 MiB": "",
        "4 MiB": (
            "Exposes the least while backward is longer than all allreduces together, which the team must check after"
            " each change of GPU or precision."
        ),
        "64 MiB": "Nearly as good now, and better as soon as backward gets shorter than the allreduces of small"
        " buckets: the choice of a team that expects faster GPUs.",
        "256 MiB": "",
    }
    return Case(
        "A benchmark, a plan and a bucket",
        Table(
            f"Allreduce on {RANKS} ranks in four nodes of 8 GPUs (ml-engineering, network benchmarks, 2025). The bus"
            " bandwidth of n bytes in t seconds is 2 (p - 1) / p · n / t.",
            ("bytes", "bus bandwidth, GB/s"),
            [(f"{size:,}", f"{BUS[size] / 1e9:g}") for size in SIZES],
        ),
        [
            Reading(
                "How long does an allreduce of 1 MiB take, and one of 64 MiB?",
                [Step("1 MiB", seconds(SIZES[1]), "s"), Step("64 MiB", seconds(SIZES[3]), "s")],
                "The time is 2 (p - 1) / p · n over the bus bandwidth.",
            ),
            Reading(
                "From 1 MiB to 64 MiB, bytes grow by a factor of 64. By which factor does the time grow, and what"
                " does that say about the short message?",
                [Step("Factor", seconds(SIZES[3]) / seconds(SIZES[1]))],
                "Most of the short message's time does not depend on its bytes.",
            ),
            Reading(
                "Which share of the largest bus bandwidth does a bucket of 4 MiB reach?",
                [Step("4 MiB over 1 GiB", 100 * BUS[SIZES[2]] / BUS[SIZES[5]], "%")],
                "It reaches less than half: a bandwidth without its message size says little.",
            ),
        ],
        Plan(
            f"A team allreduces the gradients of {millions} million parameters in 16 bits on this cluster.",
            [
                Line(f"The gradients take {show(whole, 'B')}."),
                Line(f"In a ring, each rank sends {show(SHARE * whole, 'B', 4)} of them."),
                Line(
                    f"At the {BUS[SIZES[4]] / 1e9:g} GB/s measured with 256 MiB, the allreduce takes"
                    f" {show(whole / BUS[SIZES[4]], 's')}.",
                    "Bus bandwidth counts what a rank sends, 2 (p - 1) / p times the buffer.",
                    [Step("Time", SHARE * whole / BUS[SIZES[4]], "s")],
                ),
                Line(
                    f"One message of 32 KiB takes {show(seconds(SIZES[0]), 's')}, which is mostly latency."
                ),
                Line(
                    "In buckets of 1 MiB, the allreduces take just as long in total, since they move the same bytes.",
                    "A bucket of 1 MiB has a lower bus bandwidth, since each bucket pays its fixed time.",
                    [Step("All buckets", whole / MIB * seconds(SIZES[1]), "s")],
                ),
            ],
        ),
        Choice(
            f"Another network has 256 MiB of gradients. Backward takes {slow} ms and fills buckets at a steady rate;"
            " each bucket is sent when it is full, one after another. A new GPU, which may arrive this year, halves"
            f" backward to about {fast} ms. Which bucket size do you set? Use the table.",
            [
                Option(
                    name,
                    [
                        Step("All allreduces", SIZES[4] // size * seconds(size), "s"),
                        Step(f"Exposed, backward of {slow} ms", exposed(size, slow / 1e3), "s"),
                        Step(f"Exposed, backward of {fast} ms", exposed(size, fast / 1e3), "s"),
                    ],
                    when[name],
                )
                for name, size in buckets.items()
            ],
            {
                "computes the exposed time of three buckets or more": 2,
                "chooses one that no other beats at both lengths of backward, and names the next best, with a"
                " number": 1,
                "names the length of backward at which the choice changes, or a measurement that decides": 1,
            },
        ),
    )
