"""Exam questions of module 07, I/O bottlenecks."""

from math import log

from lib_dlhpc.explore.io_bottleneck.cache import hit_rate
from lib_dlhpc.explore.io_bottleneck.limits import Setting, found
from lib_dlhpc.prediction.storage.caching import best, least_recently_used
from lib_dlhpc.spec.units import format_plain
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.problems import Step
from lib_dlhpc.teaching.questions import Draw, Open, Question

packed = found(Setting(format="packed"))
lowest = min(packed.rates, key=lambda limit: packed.rates[limit])
here, files = packed.experiment.machine, packed.experiment.machine.storage["lustre"]


def bytes_a_second(draw: Draw) -> Question:
    """What a file system reads if its metadata servers are the limit."""
    size, operations = draw.between(60, 240, 10), draw.between(24, 90, 3)
    bandwidth = draw.between(6, 30, 2) * 1e9
    read = operations * 1e3 / 3 * size * 1e3
    demand = 3 * operations * 1e3
    return Question(
        "bytes per second",
        f"GPUs that could train {demand:,.0f} samples per second read images of {size} kB, one per file, from a file"
        f" system of {show(bandwidth, 'B/s')} whose metadata servers do {operations} thousand operations per second. A"
        " file takes three. At which rate do the GPUs read?",
        show(read, "B/s"),
        {
            show(bandwidth, "B/s"): "I/O is bandwidth.",
            show(demand * size * 1e3, "B/s"): "GPUs get as many samples as they can train.",
            show(read * 3, "B/s"): "A file is one operation.",
        },
        f"Metadata operations limit the files per second to {operations * 1e3 / 3:,.0f}.",
        [
            Step("Files per second, operations / 3", operations * 1e3 / 3, "files"),
            Step("Times their size", read, "B/s"),
        ],
    )


def more_readers(draw: Draw) -> Question:
    """Readers where metadata servers are the limit."""
    gpus, few, times = draw.between(8, 32, 4), draw.between(3, 8, 1), draw.between(2, 6, 1)
    rate = draw.between(5.2, 14.8, 0.2)
    return Question(
        "more readers",
        f"The metadata servers of a file system are saturated by {4 * gpus} GPUs with {few} readers each, which get"
        f" {rate:.1f} thousand samples per second. How many thousand do the GPUs get with {few * times} readers each?",
        f"{rate:.1f} thousand",
        {
            f"{rate * times:.1f} thousand": "More readers always help.",
            f"{rate * times**0.5:.1f} thousand": "The rate grows with the root of the readers.",
            f"{rate / times:.1f} thousand": "The rate falls in proportion to the readers.",
        },
        "Readers were not the limit: more readers wait longer for the same servers.",
        [Step("The servers were saturated before: as before", rate, "thousand")],
    )


def more_nodes(draw: Draw) -> Question:
    """Nodes where metadata servers are the limit."""
    few, epochs = draw.between(6, 20, 1), draw.between(30, 120, 10)
    hours = draw.between(2.05, 12.0, 0.05)
    return Question(
        "more nodes",
        f"{few} nodes saturate the metadata servers of a file system: {epochs} epochs take {hours:.2f} h. How long do"
        f" they take on {2 * few} nodes?",
        f"{hours:.2f} h",
        {
            f"{hours / 2:.2f} h": "More nodes always help.",
            f"{hours * 2:.2f} h": "Twice the nodes halve the share of each, and their speed.",
            f"{hours * 3 / 4:.2f} h": "Half of the time is computation.",
        },
        "All nodes use the same metadata servers, which are already saturated.",
        [Step("The servers were saturated before: as before", hours, "h")],
    )


def lru(draw: Draw) -> Question:
    """Hits of LRU in a new random order."""
    share, samples = draw.between(0.3, 0.85, 0.05), draw.between(110, 900, 10)
    hit = float(least_recently_used(share))
    return Question(
        "lru",
        f"One reader reads a data set of {samples} thousand samples once per epoch, each time in a new random order."
        f" {100 * share:.0f}% of it fits into an LRU cache. How many thousand reads of an epoch are hits?",
        f"{samples * hit:.1f} thousand",
        {
            f"{samples * share:.1f} thousand": "A cache of half the data hits half.",
            f"{samples * (1 + share) / 2:.1f} thousand": "LRU also hits half of what does not fit.",
            f"{samples * share * share:.1f} thousand": (
                "The share that fits is in the cache for only that share of the time."
            ),
        },
        "LRU evicts what was read early in the last epoch before it is read again: an epoch has hits early on, then"
        " none.",
        [
            Step("Hit rate: s + (1 - s) ln(1 - s)", share + (1 - share) * log(1 - share)),
            Step("Times the samples", samples * (share + (1 - share) * log(1 - share)), "thousand"),
        ],
    )


def best_policy(draw: Draw) -> Question:
    """The most that any policy hits."""
    share, samples = draw.between(0.3, 0.7, 0.05), draw.between(110, 900, 10)

    def hits(rate: float) -> str:
        return f"{samples * rate:.1f} thousand"

    return Question(
        "best policy",
        f"One reader reads a data set of {samples} thousand samples once per epoch, each time in a new random order."
        f" {100 * share:.0f}% of it fits into a cache. How many thousand reads of an epoch can be hits at most, under"
        " any replacement policy, even one that knows the order?",
        hits(float(best(share))),
        {
            hits(share * (2 - share)): "A smarter cache helps random access more.",
            hits(float(least_recently_used(share))): "LRU is near the best for any access.",
            hits(hit_rate("belady", share, nodes=16)): (
                "What holds for one of many nodes holds for one reader."
            ),
        },
        "Each sample is read once per epoch, so only samples that have been in the cache since the last epoch can be"
        " hits. A smarter cache gains no further hits from what does not fit.",
        [Step("The share that fits, of the samples", samples * share, "thousand")],
    )


def remote_reads(draw: Draw) -> Question:
    """Reads from the memory of other nodes."""
    count, link = draw.between(3, 9, 1), draw.between(150, 600, 10)
    needed = draw.between(300, 900, 20)
    far = (1 - 1 / count) * needed
    return Question(
        "remote reads",
        f"{count} nodes together hold a data set, an equal part in the memory of each, and read it in random order."
        f" The GPUs of a node can train {needed} MB of samples per second; its NIC carries {link} MB/s. All samples"
        " are prefetched. Which share of their full speed do the GPUs reach?",
        f"{100 * link / far:.1f}%",
        {
            f"{100 / (1 + far / link):.1f}%": "Reading from other nodes must be slow.",
            f"{100 * link / needed:.1f}%": "All samples come from other nodes.",
            f"{100 / count:.1f}%": "Only the samples that a node holds itself are fast.",
        },
        "Remote samples are fetched while others are trained on: the NIC limits only what crosses it.",
        [
            Step("Remote reads at full speed: 1 - 1 / nodes of all reads", far, "MB/s"),
            Step("Rate of the NIC, over that", 100 * link / far, "%"),
        ],
    )


def compression(draw: Draw) -> Question:
    """Samples a second from compressed files."""
    ssd, size, readers = (
        draw.between(0.6, 1.5, 0.1),
        draw.between(1.5, 4.0, 0.1),
        draw.between(6, 16, 1),
    )
    ratio, unpacked = 4, 35e6
    plain = ssd * 1e9 / (size * 1e6)
    slow = readers * unpacked / (size * 1e6)
    return Question(
        "compression",
        f"A node's SSD reads {show(ssd * 1e9, 'B/s')}, a sample has {size} MB: {format_plain(plain)} samples per"
        f" second, and nothing else limits its GPUs. With samples compressed {ratio} : 1, each of {readers} readers"
        f" produces {show(unpacked, 'B/s')} of decompressed data. How many samples per second do the GPUs get?",
        format_plain(slow),
        {
            format_plain(ratio * plain): "Compression always helps.",
            format_plain(ratio * slow): "The rate of decompression counts compressed bytes.",
            format_plain(plain): "Compression saves room, not time.",
        },
        "The SSD was the limit; now decompression occupies the readers.",
        [
            Step("Decompressed data of all readers", readers * unpacked, "B/s"),
            Step("Over the size of a sample", readers * unpacked / size / 1e6, "samples"),
        ],
    )


def size_of_a_file(draw: Draw) -> Question:
    """The size from which on bytes are the limit."""
    operations, bandwidth = draw.between(30e3, 150e3, 5e3), draw.between(10e9, 80e9, 2e9)
    return Question(
        "size of a file",
        f"A file system does {operations / 1e3:.0f} thousand metadata operations per second and"
        f" {show(bandwidth, 'B/s')}. Each sample is a file, which is looked up, opened and closed. From which file"
        " size on is bandwidth the limit?",
        show(3 * bandwidth / operations, "B"),
        {
            show(bandwidth / operations, "B"): "A file is one operation.",
            show(
                bandwidth / operations / 3, "B"
            ): "Three operations divide the file size by three.",
            show(
                9 * bandwidth / operations, "B"
            ): "Each of three operations waits for the other two.",
        },
        "Operations / 3 files per second must be so large that they fill the bandwidth.",
        [
            Step("Files per second, operations / 3", round(operations / 3), "files"),
            Step("Bandwidth over that", 3 * bandwidth / operations, "B"),
        ],
    )


OPEN = Open(
    "GPUs are idle for half of the time, and input is the suspect. The data set has a million files of 100 kB on a"
    " shared file system; its owner wants to buy a faster network. Describe how you find the limit, and say in which"
    " order you would try the remedies that cost nothing.",
    "Train on data that is in memory: if the GPUs are busy then, input is the limit. Compare files per second with"
    " what the metadata servers do, bytes with the bandwidth, and decoding with the readers. The lowest limit"
    " decides, and the next one bounds the gain. Pack files first, then stage or cache on the nodes, then add"
    " readers.",
    {
        "separates input from computation with a run": 1,
        "compares the limits by numbers: operations, bytes, readers": 3,
        "orders the remedies, and says what the next limit will be": 2,
    },
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
        " How many reads hit with LRU?",
        "None",
        {
            "Half of the reads": "A cache of half the data hits half.",
            "As many as in a random order": "The order makes no difference to a cache.",
            "All reads": "A known order can be cached perfectly by any policy.",
        },
        "Each sample is evicted just before it is read again.",
    ),
    remote_reads,
    compression,
    size_of_a_file,
    Question(
        "packed",
        f"{Setting().nodes} nodes of {here.devices_per_node} GPUs read images of {show(Setting().size, 'B')} from a"
        f" file system of {show(files.bandwidth, 'B/s')}, with {Setting().readers} readers per GPU; a reader takes"
        f" {show(float(sum(packed.reader.values())), 's')} per image. The images are then packed into large records,"
        " so that one file is opened instead of thousands. What is the limit now?",
        f"The {lowest}",
        {
            "The metadata servers": "Each sample needs a metadata operation, wherever it is.",
            "The bandwidth of the file system": "I/O is bandwidth.",
            "The memory of the nodes": "Whole records have to be in memory.",
        },
        f"The former limit is gone, and the next one takes its place. The readers get {packed.rates['readers']:,.0f}"
        f" images per second; the bandwidth is enough for {packed.rates['storage bandwidth']:,.0f}.",
    ),
]
