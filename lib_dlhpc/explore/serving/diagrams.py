"""Diagrams of the slides of module 13: two phases, a full memory, batching, prefixes, replicas, pools, drafts."""

from lib_dlhpc.explore.serving import drafts, lengths, memory, pools, prefixes
from lib_dlhpc.explore.serving.load import BATCHINGS, CONTINUOUS, STATIC
from lib_dlhpc.explore.serving.phases import Setting as Phases
from lib_dlhpc.explore.serving.replicas import SHAPES
from lib_dlhpc.explore.serving.served import service
from lib_dlhpc.explore.slides import diagram as kit
from lib_dlhpc.serving import simulate_service
from lib_dlhpc.spec.units import format_quantity as show

CACHES, EIGHT = 3, 8
PROMPT, ALIKE = Phases().prompt, prefixes.Setting()
POOLS = pools.Setting()
DECODE, CACHE = pools.REPLICAS - POOLS.pool, pools.cache(POOLS)  # B of a prompt


def filled() -> kit.Diagram:
    """Return a GPU with the weights of Llama 2 13B, and the caches of its first sequences."""
    setting = memory.Setting(network="llama2-13b")
    own = memory.fit(setting, memory.heads_of(setting))
    weights = own.memory["weights"]
    rest = own.memory["activations"] + own.memory["driver and workspace"]
    parts = [
        (f"weights {show(weights, 'B')}", weights, kit.ORANGE),
        ("", rest, kit.GRAY),
        *[("", own.sequence, kit.GREEN)] * CACHES,
    ]
    row, total = kit.Lane("memory", kit.in_turn(parts)), float(own.prices.device.memory)
    key = f"green: cache of a sequence: {show(own.sequence, 'B')}"
    return kit.lanes([row], key, (total, f"full: {show(total, 'B')}"), side=0.14)


def batched() -> kit.Diagram:
    """Return three requests in a batch of two, static and continuous, as simulated."""
    load = {"rate": 1e3, "prompt": 64, "answer": 32, "answer_spread": 1.0, "count": 3, "seed": 4}
    rows = list[kit.Lane]()
    for name in (STATIC, CONTINUOUS):
        found = simulate_service(service("llama3-8b", "h100-pod", load, batch=2, **BATCHINGS[name]))
        rows += [
            kit.Lane(
                f"{name.split()[0]}, request {each.number + 1}",
                [
                    kit.Bar(each.arrival, each.first, "", kit.GRAY),
                    kit.Bar(each.first, each.end, "", kit.GREEN),
                ],
            )
            for each in found.requests
        ]
    return kit.lanes(rows, "time; gray: waits, green: answer; two at once", side=0.34, unfolds=True)


def divided() -> kit.Diagram:
    """Return eight GPUs as replicas of more and more tensor-parallel ranks."""
    fills = (kit.BLUE, kit.GREEN)
    shapes = list[kit.Shape]()
    for row, (size, name) in enumerate(SHAPES.items()):
        top = 0.02 + row * 0.98 / len(SHAPES)
        high = 0.9 / len(SHAPES)
        shapes.append(kit.Shape(0, top, 0.18, high, name, align="right"))
        for replica in range(EIGHT // size):
            wide = 0.8 * size / EIGHT
            words = (
                f"1/{size} of the weights each"
                if size > 2
                else f"1/{size} each"
                if size > 1
                else "all"
            )
            shapes.append(
                kit.Shape(0.2 + replica * wide, top, wide - 0.01, high, words, fills[replica % 2])
            )
    said = [f"{name}: each GPU has 1/{size} of the weights" for size, name in SHAPES.items()]
    return kit.Diagram(tuple(shapes), words="; ".join(said))


def ahead() -> kit.Diagram:
    """Return a step with drafts beside steps without, for one sequence."""
    setting = drafts.Setting()
    draft, verify = (float(each.total) for each in drafts.step(setting))
    each, plain = draft / setting.drafts, float(drafts.plain(1).total)
    large = (f"verify {setting.drafts}, add 1", verify, kit.GREEN)
    rows = [
        kit.Lane("draft model", kit.in_turn([("", each, kit.VIOLET)] * setting.drafts)),
        kit.Lane("large model", kit.in_turn([large], begin=draft)),
        kit.Lane("without drafts", kit.in_turn([("1 token", plain, kit.BLUE)] * 2)),
    ]
    return kit.lanes(
        rows, f"time; {setting.drafts} drafts for one sequence", side=0.24, unfolds=True
    )


def long_ones() -> kit.Diagram:
    """Return what a long sequence leaves in memory, with full attention, and with some full layers."""
    setting, shown = lengths.Setting(), (lengths.FULL, lengths.MIXED, lengths.HYBRID)
    held = {name: lengths.bytes_of(setting, name) for name in shown}
    rows = [
        kit.Lane(name, [kit.Bar(0, size, show(size, "B"), kit.GREEN)])
        for name, size in held.items()
    ]
    return kit.lanes(rows, f"bytes of a sequence of {setting.tokens:,} tokens")


DIAGRAMS = kit.written(globals()) | {
    "How many sequences fit?": filled,
    "How does latency change under load?": batched,
    "What if most layers do not see all tokens?": long_ones,
    "Eight GPUs: one replica, or eight?": divided,
    "Can a small model draft ahead?": ahead,
}
