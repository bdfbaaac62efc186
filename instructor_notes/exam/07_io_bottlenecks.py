"""Exam questions of module 07, I/O bottlenecks."""

from lib_dlhpc.explore.io_bottleneck import limits, nodes
from lib_dlhpc.explore.io_bottleneck.cache import hit_rate
from lib_dlhpc.explore.io_bottleneck.limits import Setting, found
from lib_dlhpc.explore.io_bottleneck.nodes import Setting as Spread
from lib_dlhpc.prediction.caching import best, least_recently_used
from lib_dlhpc.spec.units import format_plain
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.questions import Draw, Question

packed = found(Setting(format="packed")).limit
FLEETS = [
    ("reactor status, 65 GB", 32),
    ("reactor status, 65 GB", 256),
    ("neural images, 455 GB", 128),
]


def bytes_a_second(draw: Draw) -> Question:
    """What a file system reads if its metadata servers are the limit."""
    size, operations = draw.of([60, 90, 150, 240]), draw.of([24, 45, 75])
    bandwidth = draw.of([30, 50]) * 1e9
    read = operations * 1e3 / 3 * size * 1e3
    demand = 3 * operations * 1e3
    return Question(
        "bytes per second",
        f"GPUs that could train {demand:,.0f} samples per second read images of {size} KB, a file each, from a file"
        f" system of {show(bandwidth, 'B/s')} whose metadata servers do {operations} thousand operations per second. A"
        " file takes three. How much do they read?",
        show(read, "B/s"),
        {
            show(bandwidth, "B/s"): "I/O is bandwidth.",
            show(demand * size * 1e3, "B/s"): "GPUs get what they can compute.",
            show(read * 3, "B/s"): "A file is one operation.",
        },
        f"Operations limit the files per second: {operations * 1e3 / 3:,.0f}.",
    )


def more_readers(draw: Draw) -> Question:
    """Readers where metadata servers are the limit."""
    gpus, few, times = draw.of([8, 16, 24]), draw.of([4, 5]), draw.of([2, 3, 6])
    rate = draw.of([7.2, 8.4, 9.6, 10.8])
    return Question(
        "more readers",
        f"Metadata servers of a file system are saturated by {4 * gpus} GPUs with {few} readers each, which get"
        f" {rate:.1f} thousand samples per second. How many thousand do they get with {few * times} readers each?",
        f"{rate:.1f} thousand",
        {
            f"{rate * times:.1f} thousand": "More readers always help.",
            f"{rate * times**0.5:.1f} thousand": "Readers help with their root.",
            f"{rate / times:.1f} thousand": "Readers disturb each other in proportion.",
        },
        "Readers were not the limit: they wait longer for the same servers.",
    )


def more_nodes(draw: Draw) -> Question:
    """Nodes where metadata servers are the limit."""
    size, few = draw.of([16e3, 48e3, 300e3]), draw.of([10, 12])
    epochs = draw.of([30, 50, 120])
    hours = [
        epochs / 90 * limits.hours(Setting(size=size, nodes=n)).time / 3600 for n in (few, 2 * few)
    ]
    return Question(
        "more nodes",
        f"{few} nodes saturate the metadata servers of a file system: {epochs} epochs take {hours[0]:.2f} h. On"
        f" {2 * few} nodes?",
        f"{hours[1]:.2f} h",
        {
            f"{hours[0] / 2:.2f} h": "More nodes always help.",
            f"{hours[0] * 2:.2f} h": "Twice the nodes halve the share of each, and their speed.",
            f"{hours[0] / 2**0.5:.2f} h": "Half of the time is computation.",
        },
        "Both use the same metadata servers, which are saturated.",
    )


def lru(draw: Draw) -> Question:
    """Hits of LRU in a new random order."""
    share = draw.of([0.4, 0.6, 0.7, 0.8])
    return Question(
        "lru",
        f"One reader reads a data set once per epoch, each time in a new random order. {100 * share:.0f} % of it fit"
        " into an LRU cache. The hit rate?",
        f"{100 * least_recently_used(share):.1f} %",
        {
            f"{100 * best(share):.1f} %": "A cache of half the data hits half.",
            f"{100 * (1 + share) / 2:.1f} %": "Most of what was read lately is read again soon.",
            f"{100 * share * share:.1f} %": "Half of the data, half of the time.",
        },
        "LRU evicts what was read early in the last epoch, before it is read again: hits come early in an"
        " epoch, then none.",
    )


def best_policy(draw: Draw) -> Question:
    """The most that any policy hits."""
    share = draw.of([0.3, 0.45, 0.6, 0.65])
    return Question(
        "best policy",
        f"One reader reads a data set once per epoch, each time in a new random order. {100 * share:.0f} % of it fit"
        " into a cache. What is the highest hit rate of any replacement policy, one that knows the order included?",
        f"{100 * best(share):.1f} %",
        {
            f"{100 * 0.98:.1f} %": "A smarter cache helps random access more.",
            f"{100 * least_recently_used(share):.1f} %": "LRU is near the best for any access.",
            f"{100 * hit_rate('belady', share, nodes=16):.1f} %": (
                "What holds for one of many nodes holds for one reader."
            ),
        },
        "Each sample is read once per epoch: only what was cached since the last epoch can hit.",
    )


def remote_reads(draw: Draw) -> Question:
    """Reads from the memory of other nodes."""
    data, count = draw.of(FLEETS)
    setting = Spread(count, data)
    at = nodes.NODES.index(count)
    reached = 100 * float(nodes.curves(setting)["FanStore"][1][at])
    far = 100 * (1 - 1 / count)
    return Question(
        "remote reads",
        f"{count} nodes hold a data set together ({data}), each a part: {far:.1f} % of the reads are remote. With"
        " prefetching, which efficiency do they reach?",
        f"{reached:.1f} %",
        {
            f"{100 - far:.1f} %": "Reading from other nodes must be slow.",
            f"{100 * 2 / 3:.1f} %": "Remote memory is as slow as the shared file system.",
            f"{100 * 0.5:.1f} %": "Every remote read doubles the time of a sample.",
        },
        "A few MB/s per node on a NIC of several GB/s: fetched ahead, they cost nothing.",
    )


def compression(draw: Draw) -> Question:
    """Samples a second from compressed files."""
    ssd, size, readers = draw.of([0.6, 0.9, 1.2]), draw.of([2.0, 2.5, 3.0]), draw.of([12, 16])
    ratio, unpacked = 4, 35e6
    plain = ssd * 1e9 / (size * 1e6)
    slow = readers * unpacked / (size * 1e6)
    return Question(
        "compression",
        f"A node's SSD reads {show(ssd * 1e9, 'B/s')}, a sample has {size} MB: {format_plain(plain)} samples per"
        " second,"
        f" which is all that its GPUs wait for. Compressed {ratio} : 1, each of {readers} readers decompresses"
        f" {show(unpacked, 'B/s')} of the original. How many samples per second?",
        format_plain(slow),
        {
            format_plain(ratio * plain): "Compression always helps.",
            format_plain(ratio * slow): "More compression is faster than less.",
            format_plain(plain): "Compression saves room, not time.",
        },
        "The SSD was the limit; now decompression occupies the readers.",
    )


def size_of_a_file(draw: Draw) -> Question:
    """The size from which on bytes are the limit."""
    operations, bandwidth = draw.of([36e3, 48e3, 150e3]), draw.of([12e9, 24e9, 60e9, 80e9])
    return Question(
        "size of a file",
        f"A file system does {operations / 1e3:.0f} thousand metadata operations per second and"
        f" {show(bandwidth, 'B/s')}."
        " A sample is a file: looked up, opened, closed. From which file size on are bytes the limit?",
        show(3 * bandwidth / operations, "B"),
        {
            show(bandwidth / operations, "B"): "A file is one operation.",
            show(bandwidth / operations / 3, "B"): "Three operations make a file a third as large.",
            show(
                9 * bandwidth / operations, "B"
            ): "Each of three operations waits for the other two.",
        },
        "Operations / 3 files per second, each so large that they fill the bandwidth.",
    )


QUESTIONS = [
    bytes_a_second,
    more_readers,
    more_nodes,
    lru,
    best_policy,
    Question(
        "no new order",
        "One reader reads a data set once per epoch, always in the same order. Half of it fits into a cache."
        " What does LRU hit?",
        "Nothing",
        {
            "Half of the reads": "A cache of half the data hits half.",
            "As many as in a random order": "The order makes no difference to a cache.",
            "All reads": "A known order can be cached perfectly by any policy.",
        },
        "Each sample is evicted just before it comes again.",
    ),
    remote_reads,
    compression,
    size_of_a_file,
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
