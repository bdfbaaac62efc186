"""Diagrams of the slides of module 01: what a roof leaves of the peak, and the parameters of a machine."""

from lib_dlhpc.costs import peak_rate
from lib_dlhpc.explore.one_step import here, kernels, passes
from lib_dlhpc.explore.one_step.machines import example, precision_of
from lib_dlhpc.explore.slides import diagram as kit
from lib_dlhpc.explore.slides.parts import stacked
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.units import format_plain as plain
from lib_dlhpc.spec.units import format_quantity as show


def roof() -> kit.Diagram:
    """Return the FLOP/s within reach of layers with more and more FLOP for each byte, below the peak."""
    device = example().device
    peak = float(peak_rate(device, precision_of(device)))
    bandwidth = float(device.memory_bandwidth)
    ridge = peak / bandwidth
    rows = [
        kit.Lane(
            f"{plain(at)} FLOP/B",
            [kit.Bar(0, min(peak, at * bandwidth), show(min(peak, at * bandwidth), "FLOP/s"))],
        )
        for at in (ridge / 4, ridge / 2, ridge, 2 * ridge)
    ]
    return kit.lanes(rows, "FLOP/s within reach", (peak, f"peak: {show(peak, 'FLOP/s')}"))


def machine() -> kit.Diagram:
    """Return two cores with what was measured of them and of the message between them."""
    own = example()
    device, link = own.device, own.intra_node
    peak = show(float(peak_rate(device, precision_of(device))), "FLOP/s")
    core = f"peak {peak}"
    nodes = {
        "core 0": kit.Node(0.17, 0.25, f"core 0\n{core}", wide=0.34, high=0.28),
        "core 1": kit.Node(0.83, 0.25, f"core 1\n{core}", wide=0.34, high=0.28),
        "memory": kit.Node(0.5, 0.85, "memory", kit.ORANGE, 0.3),
    }
    words = [
        kit.Shape(0.35, 0.02, 0.3, 0.2, f"latency {show(float(link.latency), 's')}"),
        kit.Shape(0.35, 0.27, 0.3, 0.2, f"then {show(float(link.bandwidth), 'B/s')}"),
        kit.Shape(0.36, 0.5, 0.28, 0.22, f"{show(float(device.memory_bandwidth), 'B/s')} a core"),
    ]
    return kit.linked(
        nodes, [("core 0", "core 1"), ("core 0", "memory"), ("core 1", "memory")], words, both=True
    )


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


DIAGRAMS = {
    "Where does one training step's time go on my machine?": roof,
    "How fast is your machine?": machine,
    "What does fusing kernels remove?": fusion,
    "blocked_passes": blocks,
    "share_of_the_allreduce: answer": launches,
}
