"""One layout of the devices, predicted: its seconds and its bytes by part, and the bars that show them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lib_dlhpc.explore.blocks.bars import Rows, stacks
from lib_dlhpc.explore.blocks.bench import amount
from lib_dlhpc.explore.blocks.charts import State, columns
from lib_dlhpc.prediction import Breakdown
from lib_dlhpc.results import palette

TERMS = {
    "compute": palette.BACKWARD,
    "recomputation": palette.BACKWARD,
    "tensor allreduces": palette.COLLECTIVES,
    "experts' all-to-all": palette.EXPERTS,
    "halos": palette.NEIGHBORS,
    "stage to stage": palette.STAGES,
    "gradients": palette.GRADIENTS,
    "pipeline bubble": palette.BUBBLE,
    "waiting": palette.IDLE,
    "input stall": palette.INPUT,
}
HATCHED = ("pipeline bubble", "waiting", "recomputation")  # a device is idle, or computes anew
NONE = "No layout is possible."
HELD = {
    "activations": palette.FORWARD,
    "weights and state": palette.BACKWARD,
    "messages": palette.COLLECTIVES,
    "samples": palette.INPUT,
    "driver": palette.IDLE,
}
LEDGER = {  # what each of HELD is in the ledger
    "activations": ("activations", "working set"),
    "weights and state": ("weights", "master weights", "gradients", "optimizer state"),
    "messages": ("communication buffer",),
    "samples": ("input batch",),
    "driver": ("driver and workspace",),
}


class Way(NamedTuple):
    """One layout of the devices, predicted. seconds: 0 where there is no such way."""

    tensor: int
    pipeline: int
    spatial: int
    data: int
    seconds: float = 0.0  # of a step
    memory: float = 0.0  # B, of the fullest device
    capacity: float = 0.0  # B
    illegal: str = ""  # why there is no such way
    parts: Sequence[float] = ()  # s, by TERMS
    held: Sequence[float] = ()  # B, by HELD

    @property
    def fits(self) -> bool:
        """Whether it can run."""
        return not self.illegal and self.memory <= self.capacity

    @property
    def terms(self) -> dict[str, float]:
        """Seconds of a step by part."""
        return dict(zip(TERMS, self.parts, strict=True))

    @property
    def holds(self) -> dict[str, float]:
        """Bytes of the fullest device by part."""
        return dict(zip(HELD, self.held, strict=True))


def way_of(step: Breakdown) -> Way:
    """Return a layout with its prediction."""
    strategy, device = step.experiment.strategy, step.experiment.machine.device
    tensor, pipeline, spatial = map(int, (strategy.tensor, strategy.pipeline, strategy.spatial))
    data = int(step.experiment.devices) // (tensor * pipeline * spatial)
    time, memory, there = map(float, (step.step_time, step.memory_total, device.memory))
    parts, held = tuple(parts_of(step).values()), tuple(held_by(step).values())
    return Way(tensor, pipeline, spatial, data, time, memory, there, "", parts, held)


def best_of(ways: Sequence[Way]) -> Way | None:
    """Return the fastest way that fits."""
    return min((way for way in ways if way.fits), key=lambda way: way.seconds, default=None)


def parts_of(step: Breakdown) -> dict[str, float]:
    """Return the seconds of a predicted step by TERMS; they add up to the step."""
    exposed = step.exposed
    found = {
        "compute": step.compute - step.recomputation,
        "recomputation": step.recomputation,
        "tensor allreduces": exposed.get("tensor", 0.0),
        "experts' all-to-all": exposed.get("experts", 0.0),
        "halos": exposed.get("halo", 0.0),
        "stage to stage": exposed.get("pipeline", 0.0),
        "gradients": exposed["data"],
        "pipeline bubble": max(0.0, step.pipeline_bubble),  # rounding may leave less than nothing
        "waiting": step.straggler_wait,
        "input stall": step.input_stall,
    }
    return {name: float(seconds) for name, seconds in found.items()}


def held_by(step: Breakdown) -> dict[str, float]:
    """Return the bytes that the fullest device holds by HELD."""
    return {part: float(sum(step.memory[term] for term in terms)) for part, terms in LEDGER.items()}


def terms_state(rows: Rows) -> State:
    """Seconds of a step by part, for each combination, the first the chosen one."""
    if not rows:
        return stacks(rows, TERMS, "s"), NONE
    sums = {row: sum(values.values()) for row, values in rows.items()}
    least, longest = (pick(sums, key=sums.__getitem__) for pick in (min, max))
    name, first = next(iter(rows.items()))
    most = sorted(first, key=lambda part: -first[part])[:3]
    named = ", ".join(f"{part} {first[part] / sums[name]:.0%}" for part in most if first[part] > 0)
    seconds = amount("s")
    ends = (
        f"The shortest step takes {seconds(sums[least])} ({least}),"
        f" the longest {seconds(sums[longest])} ({longest}). "
    )
    words = {row: seconds(total) for row, total in sums.items()}
    return stacks(rows, TERMS, "s", words=words), ends * (len(rows) > 1) + f"Of {name}: {named}."


def memory_state(rows: Rows, capacity: float) -> State:
    """Bytes of the fullest device by part, for each combination, and the memory of a device."""
    bytes_, sums = amount("B"), {row: sum(values.values()) for row, values in rows.items()}
    words = {
        row: bytes_(total) + (" ✓" if total <= capacity else " ✗") for row, total in sums.items()
    }
    data = stacks(rows, HELD, "B", capacity, words)
    end = 1.06 * max([capacity, *data["sums"].get("stop", ())])
    wall = {"capacity": capacity, "end": end, "words": f"has {bytes_(capacity)}"}
    data["wall"] = columns([{**wall, "side": "right" if capacity > 0.6 * end else "left"}])
    return data, _fitting(sums, capacity)


def _fitting(sums: Mapping[str, float], capacity: float) -> str:
    """Return how many of some combinations fit, and the two next to the limit, in words."""
    if not sums:
        return NONE
    show, fit = amount("B"), {row: size for row, size in sums.items() if size <= capacity}
    over, ends = [row for row in sums if row not in fit], []
    if fit:
        row = max(fit, key=fit.__getitem__)
        ends.append(f"the largest that fits takes {show(fit[row])} ({row})")
    if over:
        row = min(over, key=sums.__getitem__)
        which = "smallest that does not" if fit else "smallest"
        ends.append(f"the {which} takes {show(sums[row])} ({row})")
    return f"{len(fit)} of {len(sums)} fit in {show(capacity)}: {', '.join(ends)}."
