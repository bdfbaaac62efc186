"""Diagrams of the slides of module 01: what a roof leaves of the peak, and the parameters of a machine."""

from lib_dlhpc.costs import peak_rate
from lib_dlhpc.explore.one_step import here, kernels, passes
from lib_dlhpc.explore.one_step.machines import example, precision_of
from lib_dlhpc.explore.slides import diagram as kit
from lib_dlhpc.explore.slides.parts import stacked
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.units import format_plain as plain
from lib_dlhpc.spec.units import format_quantity as show

OWN = example()
PEAK = float(peak_rate(OWN.device, precision_of(OWN.device)))


def roof() -> kit.Diagram:
    """Return the FLOP/s within reach of layers with more and more FLOP for each byte, below the peak."""
    bandwidth = float(OWN.device.memory_bandwidth)
    ridge = PEAK / bandwidth
    rows = [
        kit.Lane(
            f"{plain(at)} FLOP/B",
            [kit.Bar(0, min(PEAK, at * bandwidth), show(min(PEAK, at * bandwidth), "FLOP/s"))],
        )
        for at in (ridge / 4, ridge / 2, ridge, 2 * ridge)
    ]
    return kit.lanes(rows, "FLOP/s within reach", (PEAK, f"peak: {show(PEAK, 'FLOP/s')}"))


def launches() -> kit.Diagram:
    """Return what launches, arithmetic with memory, and the allreduce take of a step on the catalog's laptop."""
    own = here.experiment(here.Setting())
    step, free = predict(own), predict(own.set({"machine.device.launch": 0.0}))
    launched = float(step.compute - free.compute)
    parts = {
        "launches": launched,
        "arithmetic, memory": float(step.compute) - launched,
        "allreduce": float(step.exposed_communication),
    }
    inks = {"launches": kit.GRAY, "arithmetic, memory": kit.BLUE, "allreduce": kit.ORANGE}
    return stacked({"a step": parts}, inks, "s", "time")


def fusion() -> kit.Diagram:
    """Return the bytes of GPT-2's norms and elementwise layers, one kernel each, and fused with their neighbors."""
    setting = kernels.Setting(attention="on")
    light = ("normalization", "elementwise")
    inks = dict(zip(light, (kit.ORANGE, kit.GREEN), strict=True))
    rows = {
        words: {name: kernels.operators(own)[name].moved for name in light}
        for words, own in (
            ("one kernel per layer", setting),
            ("fused", setting._replace(fused=True)),
        )
    }
    return stacked(rows, inks, "B", "bytes to and from memory")


def blocks() -> kit.Diagram:
    """Return the bytes that eight passes move through memory, over the whole array and block by block."""
    own = passes.Setting()
    through = {"whole array": 2.0 * own.passes * own.array, "block by block": 2.0 * own.array}
    rows = [kit.Lane(name, [kit.Bar(0, size, show(size, "B"))]) for name, size in through.items()]
    return kit.lanes(rows, "bytes through memory")


DIAGRAMS = kit.written(globals()) | {
    "Where does one training step's time go on my machine?": roof,
    "What does fusing kernels remove?": fusion,
    "blocked_passes": blocks,
    "share_of_the_allreduce: answer": launches,
}
