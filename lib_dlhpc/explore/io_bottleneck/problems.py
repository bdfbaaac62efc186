"""Problems of module 07, I/O bottlenecks."""

from math import log

from lib_dlhpc.explore.io_bottleneck import nodes, writes
from lib_dlhpc.explore.io_bottleneck.limits import Setting, experiment, found
from lib_dlhpc.prediction.storage.caching import least_recently_used
from lib_dlhpc.prediction.validation.definitions import file_operations
from lib_dlhpc.prediction.validation.validate import results
from lib_dlhpc.teaching.problem_texts import Numbers, written
from lib_dlhpc.teaching.problems import PAGE, Cases

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

PROBLEMS = written(
    globals(),
    files=Numbers(
        float(found(OWN).rate), metadata=operations / 3, by_bandwidth=bandwidth / OWN.size
    ),
    lru=Numbers(
        100 * float(least_recently_used(CACHED)),
        log=log(1 - CACHED),
        product=(1 - CACHED) * log(1 - CACHED),
        hits=100 * (CACHED + (1 - CACHED) * log(1 - CACHED)),
    ),
    held=Numbers(float(nodes.held(nodes.Setting(data=IMAGES, ssd=SSD))[eight]), node=SIZE / 8),
    remote=Numbers(
        100 * nodes.remote(nodes.Setting(nodes=NODES)),
        own_share=100 / NODES,
        remote=100 * (1 - 1 / NODES),
    ),
    checkpoint=Numbers(writes.seconds(shared)[writes.WAYS[0]], time=writes.CHECKPOINT / lower),
    longer_requests=Numbers(
        writes.seconds(longer)[writes.WAYS[0]], time=writes.CHECKPOINT / higher
    ),
    every_target=Numbers(
        writes.seconds(longer)[writes.WAYS[0]]
        / writes.seconds(longer._replace(stripe_count=writes.COUNT))[writes.WAYS[0]],
        speedup=widest / higher,
        targets=writes.COUNT,
    ),
    cache_share=Numbers(
        (1 - hits) / (1 - CACHED),
        hit_rate=100 * hits,
        misses=(1 - hits) / (1 - CACHED),
        of_hits=CACHED / hits,
    ),
    published=Numbers(
        file_operations(FILES, EPOCHS) * 1e3 * MEAN / (3600 * HOURS),
        millions=FILES / 1e6,
        files=FILES * EPOCHS,
        bytes=FILES * EPOCHS * MEAN * 1e3,
        rate=FILES * EPOCHS * MEAN * 1e3 / (3600 * HOURS),
        one_epoch=FILES * MEAN * 1e3 / (3600 * HOURS),
        one_gpu=FILES * EPOCHS * MEAN * 1e3 / (3600 * HOURS) / 64,
    ),
)
