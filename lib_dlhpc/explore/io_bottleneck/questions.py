"""What module 07 asks, in its order: guesses that uncover experiments, things to try, checks."""

from typing import Any

import ipywidgets
import numpy as np

from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.plain_text import Column, Table
from lib_dlhpc.explore.blocks.question import Card
from lib_dlhpc.explore.io_bottleneck import batch, limits, nodes
from lib_dlhpc.explore.io_bottleneck.batch import grows, the_batch
from lib_dlhpc.explore.io_bottleneck.cache import hit_rate, the_cache
from lib_dlhpc.explore.io_bottleneck.limits import (
    Setting,
    bytes_read,
    demand_table,
    found,
    profile_table,
    the_hours,
)
from lib_dlhpc.explore.io_bottleneck.live import read_them, requests
from lib_dlhpc.explore.io_bottleneck.nodes import Setting as Spread
from lib_dlhpc.explore.io_bottleneck.nodes import cost_of_remote, fanstore, remote
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.caching import best, least_recently_used
from lib_dlhpc.spec.units import format_plain
from lib_dlhpc.spec.units import format_quantity as show

lesson = Lesson()
COPY = "each node's SSD, copied"  # of limits.PLACES


def bytes_a_second() -> Card:
    """Ask how many bytes a second small files give."""
    served = found(Setting())
    return lesson.predict(
        "64 GPUs train from 1.3 million small files on a shared file system that reads large files at 20 GB/s, and they"
        " stall on input. How many GB/s do they read?",
        result=lambda: bytes_read(Setting()) / 1e9,
        unit="GB/s",
        explanation=f"{served.rate:,.0f} files a second, each with three metadata operations: the limit is the"
        f" {served.limit}, long before the bandwidth.",
        then=the_hours(),
    )


def lru() -> Card:
    """Ask for the hit rate of LRU."""
    return lesson.predict(
        "Half of the data set fits into the cache, one reader reads all of it in each epoch, in a new random order, and"
        " the least recently used sample is evicted. What is the hit rate?",
        result=100 * least_recently_used(0.5),
        unit="%",
        explanation="Late in an epoch the cache holds samples that this epoch has already read, and none of them is"
        " reused"
        " before the next one. Hits come early: from the middle of an epoch on there are none.",
        then=the_cache(),
    )


def remote_reads() -> Card:
    """Ask what remote reads cost."""
    return lesson.predict_choice(
        f"On 512 nodes {remote(Spread()):.1%} of a node's reads are remote. How much of the training rate does"
        " that cost?",
        ("nothing", "some 10%", "some 50%", "nearly all"),
        result=lambda: cost_of_remote(Spread()),
        explanation="Each node reads a few MB a second, and its NIC carries thousands: prefetched samples arrive in"
        " time.",
        then=fanstore(),
    )


def twice_the_batch() -> Card:
    """Ask what a larger batch moves."""
    return lesson.predict_choice(
        "Twice the batch: how do the bytes that a GPU moves in one epoch change?",
        ("half read, as much sent", "as much read, half sent", "as much of both", "twice of both"),
        result=grows,
        explanation="Every sample is read once an epoch, whatever the batch; gradients are allreduced once a step.",
        then=the_batch(),
    )


def requests_at_once() -> Card:
    """Ask for the requests of an epoch, and read for real."""
    one, many = requests(1), requests(64)
    return lesson.predict(
        f"Two ranks read 2,000 files, half of which are remote. One file at a time, a rank sends {one}"
        " requests to the other in an epoch. How many if it requests 64 samples at once?",
        result=many,
        unit="requests",
        explanation="One for each batch: the latency of a request is paid that much less often.",
        then=read_them(),
    )


def what_helps() -> Card:
    """Check what helps against metadata."""
    return lesson.choose(
        "A file system of 20 GB/s feeds 0.7 GB/s of small files to 64 GPUs, which are idle half of the time. What"
        " helps?",
        {
            "Twice the bandwidth": "Bandwidth is not the limit: its metadata servers are out of operations.",
            "Packed files": "Yes: one file opened instead of thousands, and an index in memory.",
            "Four times the readers": "They all use the same servers, which are saturated already.",
        },
        right="Packed files",
    )


def best_policy() -> Card:
    """Check the highest hit rate."""
    usual = least_recently_used(0.5)
    return lesson.choose(
        "One reader reads all of a data set in each epoch, in a new random order. Half of it fits into the cache."
        " What is"
        " the highest hit rate of any replacement policy?",
        {
            f"{usual:.0%}": "That is LRU, which keeps what was just read. Look at the other bars.",
            f"{best(0.5):.0%}": "Yes: a hit was cached in the last epoch. Evicting nothing reaches this, LRU"
            f" {usual:.0%}.",
            "Nearly all, if it knows the order": "Each sample is read once an epoch: only what stayed cached can hit.",
        },
        right=f"{best(0.5):.0%}",
    )


def more_readers() -> Card:
    """Check why more readers do not help."""
    return lesson.choose(
        "Each GPU has 4 readers. With 16 nothing is faster. Why?",
        {
            "Readers were not the limit": "Yes: more of them wait longer for the same servers.",
            "16 is still too few": "Look at the bars: the readers' bar was longer before.",
            "The bandwidth is the limit": "Bytes are a hundredth of a reader's time here.",
        },
        right="Readers were not the limit",
    )


def own_crossing(seed: int | None = None) -> Card:
    """Ask each learner from which file size on bandwidth is the limit, for a file system of their own."""
    draw = np.random.default_rng(seed)
    operations, bandwidth = int(draw.integers(2, 13)) * 15, int(draw.integers(1, 21)) * 10
    return lesson.compute(
        f"A file system does {operations} thousand metadata operations a second and {bandwidth} GB/s. Each sample"
        " is a file: looked up, opened, closed. From which size in KB on are bytes the limit?",
        answer=3 * bandwidth * 1e9 / (operations * 1e3) / 1e3,
        unit="KB",
        hint="A file takes three operations: so many files a second, of which size, make the bandwidth?",
    )


def try_hours() -> Column:
    """List things to try with the limits of input."""

    def bound(**changes: Any) -> str:
        setting = Setting(**changes)
        limit = found(setting)
        return f"{format_plain(float(limit.rate))} samples a second, by the {limit.limit}"

    def hours(nodes: int) -> str:
        return f"{limits.hours(Setting(nodes=nodes)).time / 3600:.1f} h"

    def from_size() -> str:
        return limits.size_words(
            next(s for s in limits.SIZES if found(Setting(size=s)).limit != "metadata servers")
        )

    return lesson.steps(
        (
            "With the defaults: which limit binds, and how far from saturated is the bandwidth?",
            lambda: f"{bound()}: {bytes_read(Setting()) / 1e9:.2g} of 20 GB/s.",
        ),
        (
            "Take 8 nodes. How much longer does the run take with half of the GPUs?",
            lambda: f"{hours(8)} in place of {hours(16)}: both use the same metadata servers.",
        ),
        (
            "Take 16 readers for each GPU in place of 4. What gets faster?",
            lambda: f"Nothing: {bound(readers=16)}.",
        ),
        (
            "Take larger files. From which size on is bandwidth the limit?",
            lambda: f"From {from_size()}.",
        ),
        (
            "Take packed files, with 4 readers and with 1.",
            lambda: (
                f"4 readers: {bound(format='packed')}. 1 reader: {bound(format='packed', readers=1)}; the GPUs train"
                f" {format_plain(limits.demand(Setting()))}."
            ),
        ),
        (
            "Read from a copy on each node's SSD. Which wall is that?",
            lambda: (
                f"Capacity: {predict(limits.experiment(Setting(access=limits.PLACES[COPY]))).walls[0]}"
            ),
        ),
        (
            "Take H100. What does it take to feed 64 of them?",
            lambda: (
                f"They train {format_plain(limits.demand(Setting(device='h100-sxm-80gb')))} samples a second: packed"
                " files with 8 readers or more, or FanStore."
            ),
        ),
    )


def try_cache() -> Column:
    """List things to try with a cache."""

    def rate(policy: str, fresh: bool = True, nodes: int = 1) -> str:
        return f"{hit_rate(policy, 0.5, fresh, nodes):.0%}"

    return lesson.steps(
        (
            "Compare the policies. Which hit the cached fraction, and why does evicting nothing?",
            lambda: (
                f"Evicting nothing, {rate('keep')}, and Belady's, {rate('belady')}. The first is not clever: it does"
                " not evict what will be read."
            ),
        ),
        (
            "Why does Belady's policy not help a single reader?",
            "Each sample is read once an epoch, so only samples cached since the last epoch can hit, in any order.",
        ),
        (
            "Take 16 nodes. What is left of the differences?",
            lambda: (
                f"LRU hits {rate('lru', nodes=16)}, evicting nothing {rate('keep', nodes=16)}; only Belady's exceeds"
                f" the fraction, {rate('belady', nodes=16)}."
            ),
        ),
        (
            "Belady's policy evicts what is read last again. How can a loader know that order?",
            "The order of all epochs is drawn from a seed, so it is known before the first read.",
        ),
        (
            "Take the same order in each epoch, one node. Why does any cache smaller than the data set fail?",
            lambda: (
                f"LRU hits {rate('lru', fresh=False)}: it evicts each sample just before it is read again."
            ),
        ),
    )


def try_nodes() -> Column:
    """List things to try with files on the nodes."""

    def shares(**changes: Any) -> str:
        setting = Spread(**changes)
        lines = nodes.curves(setting)
        ours, theirs = (lines[way][1][-1] for way in ("FanStore", "shared file system"))
        return f"at 512 nodes {theirs:.0%} against {ours:.0%}"

    def needed(copies: int) -> int:
        setting = Spread(data="neural images, 455 GB", ssd=60e9, copies=copies)
        return next(
            n for n, held in zip(nodes.NODES, nodes.held(setting), strict=True) if held <= 60e9
        )

    def fed(stored: str) -> str:
        setting = Spread(64, "neural images, 455 GB", "four V100 (what if)", 1, stored)
        return format_plain(float(nodes.rates(setting, "FanStore")[nodes.NODES.index(64)]))

    plain, fast, slow = nodes.STORED
    return lesson.steps(
        (
            "Add nodes. How far does the shared file system fall behind?",
            lambda: f"Two Skylake sockets: {shares()}.",
        ),
        (
            "Take four V100 in each node.",
            lambda: f"Sooner and further: {shares(device='four V100 (what if)')}.",
        ),
        (
            "Take the neural images on SSDs of 60 GB. How many nodes hold them, and with two copies?",
            lambda: f"{needed(1)}, and {needed(2)}.",
        ),
        (
            "64 nodes of four V100, those images, 144 GB: compress 2 : 1 and 3 : 1. Why does the higher ratio gain"
            " less?",
            lambda: (
                f"{fed(plain)} samples a second as it is, {fed(fast)} at 2 : 1, {fed(slow)} at 3 : 1: the SSDs were the"
                " limit, and slow decompression makes the readers the limit."
            ),
        ),
    )


def try_batch() -> Column:
    """List what to compare of a step and an epoch."""

    def of(model: str) -> str:
        read, sent = batch.each_device(batch.Setting(model=model))
        at = batch.BATCHES.index(64)
        return f"{show(float(sent[at]), 'B')} sent, {show(float(read[at]), 'B')} read"

    return lesson.steps(
        (
            "Compare one step and one epoch. Which line is flat?",
            "In a step the gradients sent; in an epoch the samples read.",
        ),
        (
            "Take AlexNet, with few FLOP and many weights. What does it send and read in a step?",
            lambda: f"{of('alexnet')}; ResNet-50: {of('resnet50')}.",
        ),
    )


def try_reading() -> Column:
    """List things to try with the loader."""
    return lesson.steps(
        (
            "Read with the defaults. Which way is the fastest, and which time is far from its prediction?",
            "In memory often the folder: one computer's memory has no queue of hundreds of nodes. Single requests to"
            " another rank are the slowest, and predicted worst.",
        ),
        (
            "Take a copy on each rank. Which time vanishes, and what is left of the difference?",
            "Remote reads. What is left is the Python of the store in each open.",
        ),
        (
            "Read from the disk, where the choice is offered. How does the folder do now?",
            "The store is some times as fast: its few large files are read sequentially.",
        ),
        (
            "Take four ranks.",
            "Where they outnumber the cores, requests wait for a rank without a core, and batches help most.",
        ),
    )


def published() -> Table:
    """Return the published profile beside the library's counts."""
    return profile_table()


def demand() -> Table:
    """Return the input rates of MLPerf Storage."""
    return demand_table()


def surprises() -> ipywidgets.HTML:
    """Return all guesses beside the results."""
    return lesson.surprises()
