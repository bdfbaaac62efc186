"""The tree of versions as text: a line a version, children below their parents, a branch beside the trunk."""

from collections.abc import Collection, Iterable, Mapping

from lib_dlhpc.storage.snapshots.version import SHORT, Version


def tree(
    versions: Iterable[Version], labels: Mapping[str, Iterable[str]], damaged: Collection[str] = ()
) -> list[str]:
    """Return the lines; `labels` are the names of branches and tags by a version's id.

    damaged: the ids of versions that have a file which cannot be read.
    """
    known = {version.id: version for version in versions}
    children: dict[str, list[Version]] = {}
    for version in sorted(known.values(), key=lambda version: version.number):
        children.setdefault(version.parent if version.parent in known else "", []).append(version)
    lines: list[str] = []
    stack = [(root, "", "") for root in reversed(children.get("", []))]
    while stack:
        version, first, rest = stack.pop()
        cut = version.parent and version.parent not in known
        if cut:
            bad = f"version {version.parent[:SHORT]}, the one before, is damaged"
            gone = "what came before was removed"
            lines.append(f"{rest}⋮  {bad if version.parent in damaged else gone}")
        lines.append(f"{first}● {described(version, labels.get(version.id, ()))}")
        below = children.get(version.id, [])
        trunk = next((each for each in below if each.branch == version.branch), below and below[0])
        stack += [(trunk, rest, rest)] if trunk else []
        aside = [each for each in below if each is not trunk]
        stack += [(each, f"{rest}├─", f"{rest}│ ") for each in reversed(aside)]
    return lines


def described(version: Version, labels: Iterable[str] = ()) -> str:
    """Return a version in one line: number, id, step, metrics, names."""
    names = "".join(f"  [{label}]" for label in labels)
    metrics = "".join(f"  {name} {value:.4g}" for name, value in version.metrics.items())
    return f"{version.number:<3} {version.short}  step {version.step}{metrics}{names}"
