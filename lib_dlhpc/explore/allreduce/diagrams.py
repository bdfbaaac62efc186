"""Diagrams of the slides of module 03: messages of a rank, steps of a ring, a shared NIC, an emulated network."""

import numpy as np

from lib_dlhpc.explore.allreduce.bus import points
from lib_dlhpc.explore.allreduce.rounds import capitalized
from lib_dlhpc.explore.slides import diagram as kit
from lib_dlhpc.explore.slides.parts import stacked
from lib_dlhpc.schedules import price, schedule
from lib_dlhpc.spec.units import format_quantity

FEW, ELEMENTS, SLOW = 4, 64, "100 Mbit/s, 1 ms"
SHOWN = {"ring": kit.BLUE, "recursive_doubling": kit.GREEN, "rabenseifner": kit.ORANGE}
SENT = (1_000, 10_000, 50_000, 200_000, 1_000_000)  # B
LONG = 4_000_000  # B
GAP = ELEMENTS / 40  # between two messages


def messages() -> kit.Diagram:
    """Return what rank 0 of four sends in each round, as long as it has bytes."""
    rows = []
    for name, fill in SHOWN.items():
        at, bars = 0.0, list[kit.Bar]()
        for part in schedule(name, FEW, ELEMENTS).rounds():
            size = float(np.sum(part.count[part.source == 0]))
            share = f"1/{ELEMENTS / size:.0f}" if size < ELEMENTS else "all"
            bars.append(kit.Bar(at, at + size, share, fill))
            at += size + GAP
        rows.append(kit.Lane(capitalized(name), bars))
    return kit.lanes(
        rows,
        f"what rank 0 of {FEW} sends, round after round (of the buffer)",
        side=0.24,
        unfolds=True,
    )


def steps() -> kit.Diagram:
    """Return what each of four ranks sends in each round of a reduce-scatter: in a ring, and by halving."""
    rows = []
    for name, take, fill in (
        ("ring", FEW - 1, kit.BLUE),
        ("rabenseifner", int(np.log2(FEW)), kit.ORANGE),
    ):
        for number, part in zip(range(take), schedule(name, FEW, FEW).rounds(), strict=False):
            cells = [""] * FEW
            for rank, to, first, count in zip(
                part.source, part.target, part.offset, part.count, strict=True
            ):
                blocks = f"{first}" if count == 1 else f"{first} to {first + count - 1}"
                cells[rank] = f"{blocks}\n→ rank {to}"
            label = "ring" if name == "ring" else "halving"
            rows.append(kit.Row(f"{label}, round {number + 1}", cells, fill))
    return kit.held([f"rank {rank} sends" for rank in range(FEW)], rows, unfolds=True)


def bus() -> kit.Diagram:
    """Return a published bus bandwidth beside alpha-beta and NCCL's protocols, by message."""
    shown = points()[1::2] + points()[-1:]
    sizes = [format_quantity(round(point.size, -4), "B") for point in shown]
    rows = [
        kit.Row("published", [f"{point.published / 1e9:.3g}" for point in shown], kit.GREEN),
        kit.Row("alpha-beta", [f"{point.line / 1e9:.3g}" for point in shown], kit.BLUE),
        kit.Row(
            "its error",
            [f"{point.line / point.published - 1:+z.0%}" for point in shown],
            kit.ORANGE,
        ),
        kit.Row("NCCL's\nprotocols", [f"{point.protocols / 1e9:.3g}" for point in shown], kit.BLUE),
    ]
    return kit.held(sizes, rows)


def emulated() -> kit.Diagram:
    """Return ranks in network namespaces of one machine, each behind a slow link."""
    texts = (f"rank {rank}\nin its own namespace" for rank in range(FEW))
    ranks = kit.across(texts, 0.22, wide=0.23, high=0.34)
    bridge = {"bridge": kit.Node(0.5, 0.86, "Linux, one machine", kit.ORANGE, 0.5)}
    words = [kit.Shape(0, 0.68, 0.24, 0.3, f"each link: {SLOW}")]
    return kit.linked(ranks | bridge, [(rank, "bridge") for rank in ranks], words, both=True)


def textbook() -> kit.Diagram:
    """Return what two algorithms take on the slow links by the textbook, for messages around their crossover."""
    rows = []
    for name in ("recursive_doubling", "rabenseifner"):
        costs = [price(schedule(name, FEW, size // 4), 1e-3, 8 / 100e6).total for size in SENT]
        rows.append(
            kit.Row(capitalized(name), [f"{1e3 * cost:.3g} ms" for cost in costs], SHOWN[name])
        )
    return kit.held([format_quantity(size, "B") for size in SENT], rows)


def alike() -> kit.Diagram:
    """Return what a ring and Rabenseifner's algorithm pay for latency and for bytes: 4 MB, 4 ranks, 5 µs, 5 GB/s."""
    rows = {}
    for name in ("ring", "rabenseifner"):
        cost = price(schedule(name, FEW, LONG // 4), 5e-6, 1 / 5e9)
        rows[capitalized(name)] = {"latency": float(cost.latency), "bytes": float(cost.bandwidth)}
    inks = {"latency": kit.ORANGE, "bytes": kit.BLUE}
    return stacked(rows, inks, "s", "time of an allreduce", 0.24)


DIAGRAMS = kit.written(globals()) | {
    "Which algorithm, when?": messages,
    "How does a schedule sum?": steps,
    "bus": bus,
    "A network slow enough to see": emulated,
    "slow_network": emulated,
    "slow_network: answer": textbook,
    "ring_or_rabenseifner: answer": alike,
}
