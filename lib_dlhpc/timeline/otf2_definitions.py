"""Who is who in an OTF2 archive: the rank and the stream of each location, the ranks of a communicator.

a rank      is a place in MPI's group of locations, else a process (location group) in its order; an
            accelerator is of the process that created it
a stream    is compute; with an accelerator, whose work is on compute, the processor's is on stream host
"""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from lib_dlhpc.timeline.otf2 import COMM, OURS, WORLD


def about(definitions: Any) -> dict[str, str]:
    """Return what `write_otf2` noted of the timeline; nothing in an archive of another program."""
    roots = [node for node in definitions.system_tree_nodes if node.class_name == OURS]
    return {key: roots[0][key] for key in ("source", "ranks", "zero")} if roots else {}


def ranks(otf2: Any, definitions: Any) -> dict[Any, int]:
    """Return the rank of each location that has one."""
    groups, places = list(definitions.location_groups), dict[Any, int]()
    kind = otf2.GroupType.COMM_LOCATIONS, otf2.Paradigm.MPI
    for group in definitions.groups:
        if (group.group_type, group.paradigm) == kind:
            for place, location in enumerate(group.members):
                places.setdefault(location.group, place)
    if not places:
        process = otf2.LocationGroupType.PROCESS
        processes = (group for group in groups if group.location_group_type == process)
        places = {group: place for place, group in enumerate(processes)}
    for group in groups:
        if group not in places and group.creating_location_group in places:
            places[group] = places[group.creating_location_group]
    return {
        location: places[location.group]
        for location in definitions.locations
        if location.group in places
    }


def streams(otf2: Any, rank_of: Mapping[Any, int], ours: bool) -> dict[Any, str]:
    """Return the stream of each location: in an archive of ours it is written there."""
    if ours:
        return {location: location["stream"] for location in rank_of}
    thread = otf2.LocationType.CPU_THREAD
    helped = {rank for location, rank in rank_of.items() if location.type != thread}
    return {
        location: "host" if rank in helped and location.type == thread else "compute"
        for location, rank in rank_of.items()
    }


def communicators(
    otf2: Any, definitions: Any, rank_of: Mapping[Any, int], everyone: Sequence[int], ours: bool
) -> dict[Any, tuple[int, Sequence[int] | None]]:
    """Return the number of each communicator, 0 for that of all ranks, and who is on it; None: each alone."""
    members: dict[Any, Sequence[int] | None] = {}
    for comm in definitions.comms:
        group = getattr(comm, "group", None)  # none: between two groups
        alone = group is not None and group.group_type == otf2.GroupType.COMM_SELF
        on_it = [rank_of[location] for location in group.members] if group and not alone else []
        members[comm] = None if alone else on_it
    named = [comm for comm in members if comm.name == WORLD]
    world = next(iter(named + [comm for comm in members if members[comm] == everyone]), None)
    numbers = count(1)
    if ours:
        number = {comm: int(comm.name.removeprefix(COMM)) for comm in members if comm is not world}
    else:
        number = {comm: next(numbers) for comm in members if comm is not world}
    return {comm: (number.get(comm, 0), on_it) for comm, on_it in members.items()}
