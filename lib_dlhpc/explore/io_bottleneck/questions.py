"""What module 07 asks: the figures and the numbers of lesson.toml."""

from typing import Any

import numpy as np

from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.numeric import Drawn
from lib_dlhpc.explore.io_bottleneck import batch, limits, live, nodes, writes
from lib_dlhpc.explore.io_bottleneck.cache import hit_rate, the_cache
from lib_dlhpc.explore.io_bottleneck.limits import Setting, demand, found
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.storage.caching import best, least_recently_used
from lib_dlhpc.spec.units import format_plain
from lib_dlhpc.spec.units import format_quantity as show

V100, IMAGES = "four V100 (what if)", "neural images, 455 GB"


def bound(**changes: Any) -> str:
    """Say how many samples per second input allows, and by which limit."""
    limit = found(Setting(**changes))
    return f"{format_plain(float(limit.rate))} samples per second, limited by the {limit.limit}"


def from_size() -> str:
    """Return the file size from which on bandwidth is the limit."""
    large = (s for s in limits.SIZES if found(Setting(size=s)).limit != "metadata servers")
    return limits.size_words(next(large))


def behind(**changes: Any) -> str:
    """Say how efficient 512 nodes are on the shared file system, and on FanStore."""
    lines = nodes.curves(nodes.Setting(**changes))
    ours, theirs = (lines[way][1][-1] for way in ("FanStore", "shared file system"))
    return f"efficiency at 512 nodes is {theirs:.0%}, compared with {ours:.0%} with FanStore"


def holding(copies: int) -> int:
    """Return how many nodes hold the neural images on SSDs of 60 GB."""
    setting = nodes.Setting(data=IMAGES, ssd=60e9, copies=copies)
    return nodes.NODES[int(np.argmax(nodes.held(setting) <= 60e9))]


def fed(stored: str) -> str:
    """Return the samples a second of 64 nodes of four V100."""
    setting = nodes.Setting(64, IMAGES, V100, stored=stored)
    return format_plain(float(nodes.rates(setting, "FanStore")[nodes.NODES.index(64)]))


def step(model: str) -> str:
    """Say what a step sends and reads."""
    each = batch.each_device(batch.Setting(model=model))
    read, sent = (show(float(size[batch.BATCHES.index(64)]), "B") for size in each)
    return f"{sent} sent, {read} read"


def written(way: int = 0, **changes: Any) -> str:
    """Say how long a checkpoint takes, and what limits it."""
    setting, name = writes.Setting(**changes), writes.WAYS[way]
    return f"{show(writes.seconds(setting)[name], 's')}, limited by the {writes.limits_of(setting)[name]}"


def crossing(draw: np.random.Generator) -> Drawn:
    """Return a file system of one learner, and from which kB of a file on bandwidth is its limit."""
    operations, bandwidth = int(draw.integers(2, 13)) * 15, int(draw.integers(1, 21)) * 10
    own, files = {"operations": operations, "bandwidth": bandwidth}, operations / 3
    wrong = {
        "one_operation": 1e3 * bandwidth / operations,
        "three_times": 1e3 * bandwidth / (3 * operations),
    }
    return own, 1e3 * bandwidth / files, wrong


lesson = Lesson.read(
    __file__,
    outcomes={
        "bytes_a_second": (lambda: limits.bytes_read(Setting()) / 1e9, limits.the_hours),
        "lru": (lambda: 100 * least_recently_used(0.5), the_cache),
        "remote_reads": (lambda: nodes.cost_of_remote(nodes.Setting()), nodes.fanstore),
        "twice_the_batch": (batch.grows, batch.the_batch),
        "default_stripes": (
            lambda: writes.shared_rate(writes.Setting()) / 1e9,
            writes.the_checkpoint,
        ),
        "requests_at_once": (lambda: live.requests(64), live.read_them),
    },
    numbers={
        "rate": lambda: found(Setting()).rate,
        "limit": lambda: found(Setting()).limit,
        "read": lambda: limits.bytes_read(Setting()) / 1e9,
        "bound": bound,
        "bound_16_readers": lambda: bound(readers=16),
        "bound_packed": lambda: bound(format="packed"),
        "bound_packed_1": lambda: bound(format="packed", readers=1),
        **{f"hours_{n}": lambda n=n: limits.hours(Setting(nodes=n)).time / 3600 for n in (8, 16)},
        "from_size": from_size,
        "demand": lambda: format_plain(demand(Setting())),
        "demand_h100": lambda: format_plain(demand(Setting(device="h100-sxm-80gb"))),
        "copied": lambda: predict(limits.experiment(Setting(access="stage"))).walls[0],
        **{name: lambda name=name: hit_rate(name, 0.5) for name in ("keep", "belady")},
        **{f"{p}_16": lambda p=p: hit_rate(p, 0.5, nodes=16) for p in ("lru", "keep", "belady")},
        "lru_again": lambda: hit_rate("lru", 0.5, fresh=False),
        "usual": least_recently_used(0.5),
        "best": best(0.5),
        "remote": lambda: nodes.remote(nodes.Setting()),
        "behind": behind,
        "behind_v100": lambda: behind(device=V100),
        **{f"hold_{copies}": lambda copies=copies: holding(copies) for copies in (1, 2)},
        **{
            f"fed_{way}": lambda stored=stored: fed(stored)
            for way, stored in zip(("plain", "fast", "slow"), nodes.STORED, strict=True)
        },
        **{model: lambda model=model: step(model) for model in ("alexnet", "resnet50")},
        "requests": live.requests(1),
        **{f"stripes_{n}": lambda n=n: written(stripe_count=n) for n in (4, 16)},
        "small": lambda: written(stripe_count=16, transfer=4e3),
        **{
            f"few_{n}": lambda n=n: written(2, stripe_count=16, transfer=4e3, aggregators=n)
            for n in (1, 16, 32, 64)
        },
        **{f"files_{n}": lambda n=n: written(1, ranks=n, transfer=4e6) for n in (40, 64)},
    },
    draws={"own_crossing": crossing},
    tables={"published": limits.profile_table, "demand": limits.demand_table},
)
ask = lesson.ask
