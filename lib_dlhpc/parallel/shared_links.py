"""Lines: which messages between the stages of a pipeline use the same links, and for which part of their time.

And which of the links between switches that messages use, gradients use as well.
"""

from collections import defaultdict
from functools import lru_cache, partial
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Floats
from lib_dlhpc.costs import groups
from lib_dlhpc.costs.link_occupancy import SHARED
from lib_dlhpc.costs.network import joined
from lib_dlhpc.costs.platform import NO_LINK, Platform, platform
from lib_dlhpc.costs.switch_contention import shares_links
from lib_dlhpc.keyed import Keyed
from lib_dlhpc.layout import sizes, stride
from lib_dlhpc.program.gradient_contention import Above
from lib_dlhpc.program.ports import Lines, SharedLinks, line_of
from lib_dlhpc.spec.experiment import Experiment

DIGITS = 9  # of loads that are the same


def lines(experiment: Experiment) -> Lines | None:
    """Return the lines of a pipeline, None where none share links.

    Where microbatches enter from both ends, messages leave in pairs, and are taken to be sent one after the other.
    """
    s, many = experiment.strategy, sizes(experiment).pipeline
    if many < 3 or s.mirrored:
        return None
    spacing = stride(experiment, "pipeline")
    far = spacing < groups.near(experiment) or shares_links(experiment.machine)
    where = int(s.nodes), int(experiment.devices_per_node), many, spacing
    machine = id(experiment.machine), id(experiment.calibration)
    return Lines(
        2 * many * far, partial(_meets, Keyed(experiment, machine, where, int(s.chunks) > 1))
    )


@lru_cache(maxsize=64)
def _meets(key: Keyed[Experiment], one_way: bool) -> SharedLinks | None:
    """Return the lines that share links, if any, see Lines; the load of each is that of all ranks of a stage."""
    experiment, s = key.value, key.value.strategy
    many, spacing = sizes(experiment).pipeline, stride(experiment, "pipeline")
    nodes, devices = int(s.nodes), int(experiment.devices_per_node)
    on = platform(*joined(experiment.calibrated_machine, nodes, devices))
    places = range(many if int(s.chunks) > 1 else many - 1)
    pairs = [(place, (place + 1) % many) for place in places]
    ranks, used = np.arange(spacing), {}
    for behind, after in pairs:
        for source, target in ((behind, after), (after, behind)):
            links, seconds = _load(on, source * spacing + ranks, target * spacing + ranks)
            used[line_of(source, behind)] = links, seconds / seconds.max()
    line_counts = [0] * (2 * many)
    others: list[dict[int, list[tuple[int, int, float]]]] = [defaultdict(list) for _ in line_counts]
    for share in _shared(used):
        meeting = [pair for pair in permutations(share, 2) if not one_way or sum(pair) % 2 == 0]
        for each in {line for pair in meeting for line in pair}:
            line_counts[each] += 1
        for line, other in meeting:
            part = share[line] * share[other]
            others[line][other].append((line_counts[line] - 1, line_counts[other] - 1, part))
    if one_way and not any(line_counts):
        return None
    return SharedLinks(tuple(line_counts), tuple(_fixed(other) for other in others))


def above(experiment: Experiment) -> Above | None:
    """Return which links between switches gradients and messages both use; None if there are no messages, or where
    microbatches enter from both ends."""
    s, many = experiment.strategy, sizes(experiment).pipeline
    if many == 1 or s.mirrored:
        return None
    where = int(s.nodes), int(experiment.devices_per_node), many, stride(experiment, "pipeline")
    machine = id(experiment.machine), id(experiment.calibration)
    replicas = sizes(experiment).data, stride(experiment, "data")
    return partial(_above, Keyed(experiment, machine, where, replicas))


@lru_cache(maxsize=256)
def _above(key: Keyed[Experiment]) -> Floats:
    """Return the same, (2, places), for gradients in a ring of replicas; see program/gradient_contention.py."""
    experiment, s = key.value, key.value.strategy
    many, spacing = sizes(experiment).pipeline, stride(experiment, "pipeline")
    on = platform(
        *joined(experiment.calibrated_machine, int(s.nodes), int(experiment.devices_per_node))
    )
    ranks, block = np.arange(spacing), sizes(experiment).data * stride(experiment, "data")
    following = ranks // block * block + (ranks + stride(experiment, "data")) % block
    first = 2 * (on.ranks + on.nodes * on.rails)  # of the links between switches
    loads = np.zeros((2, many, len(on.capacity) - first))  # of gradients, and of messages both ways
    most = 0.0
    for place, after in enumerate(np.roll(np.arange(many), -1).tolist()):
        here, there = place * spacing + ranks, after * spacing + ranks
        ways = (0, here, place * spacing + following), (1, here, there), (1, there, here)
        for what, *ends in ways:
            links, seconds = _load(on, *ends)
            most = max(most, seconds.max(initial=0.0)) if not what else most
            part = seconds / seconds.max(initial=0.0) if what else seconds
            above, link = links >= first, links[links >= first] - first
            loads[what, place, link] = np.maximum(loads[what, place, link], part[above])
    rings = loads[0] / (most or 1.0)
    both = np.stack([rings, np.roll(rings, -1, axis=0)])
    return np.asarray((both * loads[1]).max(axis=-1, initial=0.0))


def _fixed(
    others: dict[int, list[tuple[int, int, float]]],
) -> tuple[tuple[int, tuple[tuple[int, int, float], ...]], ...]:
    return tuple((other, tuple(links)) for other, links in others.items())


def _load(
    on: Platform, source: NDArray[np.int64], target: NDArray[np.int64]
) -> tuple[NDArray[np.int64], Floats]:
    """Return the links from ranks to others, and the s for each byte of a message for which all use each."""
    links, _ = on.routes(source, target)
    used, count = np.unique(links[links != NO_LINK], return_counts=True)
    return used, count / on.capacity[used]


def _shared(
    used: dict[int, tuple[NDArray[np.int64], NDArray[np.float64]]],
) -> list[dict[int, float]]:
    """Return of the links that lines can fill together which part of its time each line uses, equal ones once."""
    line = np.repeat([*used], [len(links) for links, _ in used.values()])
    links, parts = map(np.concatenate, zip(*used.values(), strict=True))
    numbers = np.unique(links, return_inverse=True)[1]
    full = np.bincount(numbers, parts) > SHARED
    # Links of equal loads have the same sum with one random number for each line.
    mark = np.random.default_rng(0).random(max(used) + 1)
    marks = np.where(full, np.bincount(numbers, parts * mark[line]).round(DIGITS), -1.0)
    ones = np.flatnonzero(full)[np.unique(marks[full], return_index=True)[1]]
    masks = (numbers == number for number in ones.tolist())
    return [dict(zip(line[on].tolist(), parts[on].tolist(), strict=True)) for on in masks]
