"""Problems of module 07, I/O bottlenecks."""

from math import log

from lib_dlhpc.explore.io_bottleneck import nodes, writes
from lib_dlhpc.explore.io_bottleneck.limits import Setting, experiment, found
from lib_dlhpc.prediction.caching import least_recently_used
from lib_dlhpc.prediction.definitions import file_operations
from lib_dlhpc.prediction.validate import results
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.problems import FADED, PAGE, WORKED, Cases, Problem, Step, Trap

draw: Cases = globals().get("draw", PAGE)

IMAGES = draw.any(["neural images, 455 GB", "ImageNet, 140 GB"])
SIZE, SSD = nodes.DATA[IMAGES][1], 60e9
OWN = draw.any([Setting(), Setting(size=16e3), Setting(size=48e3)])
tier = experiment(Setting()).machine.storage["lustre"]
operations, bandwidth = float(tier.metadata_rate), float(tier.bandwidth)
CACHED, NODES = draw.any([0.5, 0.3, 0.4, 0.6, 0.7]), draw.any([128, 64, 160, 256])
eight = nodes.NODES.index(8)
STRIPES, REQUEST, RANKS = draw.any([(8, 4e3, 1024), (4, 16e3, 64), (2, 8e3, 128), (8, 4e3, 512)])
shared = writes.Setting(stripe_count=STRIPES, transfer=REQUEST, ranks=RANKS)
disks = writes.targets()
own = REQUEST / (disks.latency + REQUEST / disks.client)
lower = min(RANKS * own, STRIPES * disks.bandwidth)
LONGER = 64 * REQUEST
longer = shared._replace(transfer=LONGER)
quick = LONGER / (disks.latency + LONGER / disks.client)
higher, widest = (min(RANKS * quick, count * disks.bandwidth) for count in (STRIPES, writes.COUNT))

# Slides of FanStore (Zhang et al. 2018): files, epochs, their mean size, hours.
FILES, EPOCHS = 1.3e6, 90
MEAN, HOURS = (float(results()[f"fanstore18-{name}"]["value"]) for name in ("files", "8h"))
hits = float(least_recently_used(CACHED))

PROBLEMS = [
    Problem(
        "Files per second",
        f"A file system performs {operations:,.0f} metadata operations per second and reads {show(bandwidth, 'B/s')}."
        f" A sample is a file of {show(OWN.size, 'B')}, which is looked up, opened and closed. How many samples per"
        " second does the file system deliver at most?",
        float(found(OWN).rate),
        Step("Limit of the metadata servers: operations / 3", operations / 3, "samples/s"),
        Step("Limit of the bandwidth: B / size", bandwidth / OWN.size, "samples/s"),
        Step("The lower of the two", operations / 3, "samples/s"),
    ),
    Problem(
        "An LRU cache",
        "One reader reads the whole data set once per epoch, in a new random order, and a share"
        f" r = {CACHED} of it fits in the cache. With LRU the hit rate is r + (1 - r) ln(1 - r). How much is that?",
        100 * float(least_recently_used(CACHED)),
        Step("ln(1 - r)", log(1 - CACHED)),
        Step("(1 - r) ln(1 - r)", (1 - CACHED) * log(1 - CACHED)),
        Step("Hit rate", 100 * (CACHED + (1 - CACHED) * log(1 - CACHED)), "%"),
    ),
    Problem(
        "How much a node holds",
        f"One copy of {show(SIZE, 'B')} of images is spread evenly over 8 nodes, each with an SSD of {show(SSD, 'B')}."
        " How many bytes does a node hold?",
        float(nodes.held(nodes.Setting(data=IMAGES, ssd=SSD))[eight]),
        Step("Size over nodes, which fits on the SSD", SIZE / 8, "B"),
    ),
    Problem(
        "Remote reads",
        f"One copy of a data set is spread evenly over {NODES} nodes. What share of a node's random reads is remote?",
        100 * nodes.remote(nodes.Setting(nodes=NODES)),
        Step("Share that the node itself holds: 1 / nodes", 100 / NODES, "%"),
        Step("Remote share: all other reads", 100 * (1 - 1 / NODES), "%"),
    ),
    Problem(
        "A checkpoint in one file",
        f"{RANKS:,} ranks write {show(writes.CHECKPOINT, 'B')} into one shared file, striped over {STRIPES} targets of"
        f" {show(disks.bandwidth, 'B/s')} each. A rank writes requests of {show(REQUEST, 'B')} one after another: each"
        f" has a latency of {show(disks.latency, 's')} and then moves its bytes at {show(disks.client, 'B/s')}. How"
        " long does the checkpoint take?",
        writes.seconds(shared)[writes.WAYS[0]],
        Step("Rate of one rank: the size of a request over its time", own, "B/s"),
        Step("The lower of two rates: all ranks together, all targets together", lower, "B/s"),
        Step("Bytes of the checkpoint over that rate", writes.CHECKPOINT / lower, "s"),
        kind=WORKED,
    ),
    Problem(
        "Longer requests",
        f"The ranks write requests of {show(LONGER, 'B')} instead. How long does the checkpoint take?",
        writes.seconds(longer)[writes.WAYS[0]],
        Step("Rate of one rank: the size of a request over its time", quick, "B/s"),
        Step("The lower of two rates: all ranks together, all targets together", higher, "B/s"),
        Step("Bytes of the checkpoint over that rate", writes.CHECKPOINT / higher, "s"),
        kind=FADED,
    ),
    Problem(
        "Every target",
        f"With these requests, the file is striped over {writes.COUNT} targets instead. How many times as fast is the"
        " checkpoint as before?",
        writes.seconds(longer)[writes.WAYS[0]]
        / writes.seconds(longer._replace(stripe_count=writes.COUNT))[writes.WAYS[0]],
        Step("Rate with the targets of before, the lower of the two", higher, "B/s"),
        Step(f"With {writes.COUNT} targets", widest, "B/s"),
        Step("The second over the first", widest / higher),
        traps=[Trap(writes.COUNT, f"That compares with one target. Before, there were {STRIPES}.")],
    ),
    Problem(
        "Find the mistake: a cache of a share",
        f"For the reader of problem 2, a plan expects a share r = {CACHED} of all reads to hit the cache. How many"
        " times as many reads go to the file system as planned?",
        (1 - hits) / (1 - CACHED),
        Step("Hit rate: r + (1 - r) ln(1 - r)", 100 * hits, "%"),
        Step("Misses over the misses that the plan expects", (1 - hits) / (1 - CACHED)),
        traps=[
            Trap(
                CACHED / hits,
                "That is planned hits over actual hits. The reads that go to the file system are the misses.",
            )
        ],
    ),
    Problem(
        "Read published numbers",
        f"According to the FanStore slides (Zhang et al. 2018), 64 GPUs read {FILES / 1e6:g} million files of"
        f" {MEAN:.0f} kB on average in each of {EPOCHS} epochs, in about {HOURS:.0f} h altogether. At which rate do"
        " the 64 GPUs together read?",
        file_operations(FILES, EPOCHS) * 1e3 * MEAN / (3600 * HOURS),
        Step("Files read in all epochs", FILES * EPOCHS),
        Step("Their bytes", FILES * EPOCHS * MEAN * 1e3, "B"),
        Step("Bytes over the time", FILES * EPOCHS * MEAN * 1e3 / (3600 * HOURS), "B/s"),
        traps=[
            Trap(
                FILES * MEAN * 1e3 / (3600 * HOURS),
                "That counts one epoch. Each epoch reads all files again.",
            ),
            Trap(
                FILES * EPOCHS * MEAN * 1e3 / (3600 * HOURS) / 64,
                "That is the rate of one GPU. The question is about all 64 together.",
            ),
        ],
    ),
]
