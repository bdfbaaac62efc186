"""Exam questions of module 07, I/O bottlenecks."""

from lib_dlhpc.explore.io_bottleneck import limits, nodes
from lib_dlhpc.explore.io_bottleneck.cache import hit_rate
from lib_dlhpc.explore.io_bottleneck.limits import Setting, demand, found
from lib_dlhpc.explore.io_bottleneck.nodes import Setting as Spread
from lib_dlhpc.prediction.caching import best, least_recently_used
from lib_dlhpc.spec.units import format_plain
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.questions import Question

IMAGES, V100 = "neural images, 455 GB", "four V100 (what if)"
read = limits.bytes_read(Setting())
hours = {n: limits.hours(Setting(nodes=n)).time / 3600 for n in (8, 16)}
faster = float(found(Setting(readers=16)).rate / found(Setting()).rate)
lines = nodes.curves(Spread())
OPERATIONS, BANDWIDTH = 90e3, 30e9
packed = found(Setting(format="packed")).limit


def fed(stored: str) -> float:
    """Return the samples a second of 64 nodes of four V100."""
    return float(
        nodes.rates(Spread(64, IMAGES, V100, stored=stored), "FanStore")[nodes.NODES.index(64)]
    )


plain, fast, slow = (fed(stored) for stored in nodes.STORED)

QUESTIONS = [
    Question(
        "bytes a second",
        "64 GPUs in 16 nodes read images of 108 KB, a file each, from a file system of 20 GB/s whose metadata"
        " servers do 20 thousand operations"
        " a second. A file takes three. How much do they read?",
        show(read, "B/s"),
        {
            show(20e9, "B/s"): "I/O is bandwidth.",
            show(demand(Setting()) * Setting().size, "B/s"): "GPUs get what they can compute.",
            show(read * 3, "B/s"): "A file is one operation.",
        },
        f"Operations limit the files a second: {format_plain(float(found(Setting()).rate))}.",
    ),
    Question(
        "more readers",
        "Metadata servers of a file system are saturated by 64 GPUs with 4 readers each. With 16 readers each,"
        " how many times as many samples arrive?",
        f"{faster:.1f}",
        {
            f"{16 / 4:.1f}": "More readers always help.",
            f"{(16 / 4) ** 0.5:.1f}": "Readers help with their root.",
            f"{4 / 16:.2f}": "Readers disturb each other in proportion.",
        },
        "Readers were not the limit: they wait longer for the same servers.",
    ),
    Question(
        "more nodes",
        f"8 nodes saturate the metadata servers of a file system: 90 epochs take {hours[8]:.1f} h. On 16 nodes?",
        f"{hours[16]:.1f} h",
        {
            f"{hours[8] / 2:.1f} h": "More nodes always help.",
            f"{hours[8] * 2:.1f} h": "Twice the nodes halve the share of each, and their speed.",
            f"{hours[8] / 2**0.5:.1f} h": "Half of the time is computation.",
        },
        "Both use the same metadata servers, which are saturated.",
    ),
    Question(
        "lru",
        "One reader reads a data set once an epoch, each time in a new random order. Half of it fits into an"
        " LRU cache. The hit rate?",
        f"{100 * least_recently_used(0.5):.0f} %",
        {
            f"{100 * best(0.5):.0f} %": "A cache of half the data hits half.",
            f"{100 * hit_rate('belady', 0.5, nodes=16):.0f} %": "Most of what was read lately is read again soon.",
            f"{100 * 0.5 * 0.5:.0f} %": "Half of the data, half of the time.",
        },
        "LRU evicts what was read early in the last epoch, before it is read again: hits come early in an"
        " epoch, then none.",
    ),
    Question(
        "best policy",
        "One reader reads a data set once an epoch, each time in a new random order. Half of it fits into a"
        " cache. What is the highest hit rate of any replacement policy, one that knows the order included?",
        f"{100 * hit_rate('belady', 0.5):.0f} %",
        {
            f"{100 * 0.98:.0f} %": "A cache helps random access in proportion to its cleverness.",
            f"{100 * least_recently_used(0.5):.0f} %": "LRU is near the best for any access.",
            f"{100 * hit_rate('belady', 0.5, nodes=16):.0f} %": (
                "What holds for one of many nodes holds for one reader."
            ),
        },
        "Each sample is read once an epoch: only what was cached since the last epoch can hit.",
    ),
    Question(
        "no new order",
        "One reader reads a data set once an epoch, always in the same order. Half of it fits into a cache."
        " What does LRU hit?",
        f"{100 * hit_rate('lru', 0.5, fresh=False):.0f} %",
        {
            f"{100 * best(0.5):.0f} %": "A cache of half the data hits half.",
            f"{100 * least_recently_used(0.5):.0f} %": "The order makes no difference to a cache.",
            f"{100 * best(1.0):.0f} %": "A known order can be cached perfectly by any policy.",
        },
        "Each sample is evicted just before it comes again.",
    ),
    Question(
        "remote reads",
        f"512 nodes hold a data set together, each a part: {100 * nodes.remote(Spread()):.1f} % of the reads"
        " are remote. With prefetching, which"
        " efficiency do they reach?",
        f"{100 * lines['FanStore'][1][-1]:.0f} %",
        {
            f"{100 - 100 * nodes.remote(Spread()):.1f} %": "Reading from other nodes must be slow.",
            f"{100 * lines['shared file system'][1][-1]:.0f} %": (
                "Remote memory is as slow as the shared file system."
            ),
            f"{100 * 0.5:.0f} %": "Every remote read doubles the time of a sample.",
        },
        "A few MB/s a node on a card of some GB/s: fetched ahead, they cost nothing.",
    ),
    Question(
        "compression",
        f"64 nodes, each with four V100, one SSD and its images as they are: {format_plain(plain)} samples a"
        " second in all. Compressed 3 : 1, with slow decompression?",
        format_plain(slow),
        {
            format_plain(3 * plain): "Compression always helps.",
            format_plain(fast): "More compression is faster than less.",
            format_plain(plain): "Compression saves room, not time.",
        },
        "The SSD was the limit; now decompression occupies the readers. 2 : 1 with fast decompression gives"
        f" {format_plain(fast)}.",
    ),
    Question(
        "size of a file",
        f"A file system does {OPERATIONS / 1e3:.0f} thousand metadata operations a second and"
        f" {show(BANDWIDTH, 'B/s')}. A sample is a file: looked"
        " up, opened, closed. From which file size on are bytes the limit?",
        show(3 * BANDWIDTH / OPERATIONS, "B"),
        {
            show(BANDWIDTH / OPERATIONS, "B"): "A file is one operation.",
            show(BANDWIDTH / OPERATIONS / 3, "B"): "Three operations make a file a third as large.",
            show(
                9 * BANDWIDTH / OPERATIONS, "B"
            ): "Each of three operations waits for the other two.",
        },
        "Operations / 3 files a second, each so large that they fill the bandwidth.",
    ),
    Question(
        "packed",
        "Images are packed into large records, one file opened instead of thousands; each GPU has 4 readers."
        " What is the limit now?",
        f"The {packed}",
        {
            "The metadata servers": "Each sample needs a metadata operation, wherever it is.",
            "The bandwidth of the file system": "I/O is bandwidth.",
            "The memory of the nodes": "Records have to be in memory as a whole.",
        },
        "The lowest limit is gone, and the next one takes its place: always ask for the second lowest.",
    ),
]
