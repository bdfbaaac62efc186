"""What module 08 asks: the figures and the numbers of lesson.toml."""

from typing import Any

import numpy as np

from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.numeric import Drawn
from lib_dlhpc.explore.memory_wall import adapters, ledger, live, outside, ways
from lib_dlhpc.explore.memory_wall.charts import Way
from lib_dlhpc.explore.memory_wall.outside import Setting as Away
from lib_dlhpc.explore.memory_wall.ways import Setting as Step
from lib_dlhpc.spec.units import format_quantity as show

FAST, MIDDLE = Step(network="eight 200 Gb/s InfiniBand"), Step(network="one 100 Gb/s Ethernet")
COMPARED = {
    "vgg16": ledger.Setting("vgg16", 32, "fp32"),
    "resnet50": ledger.Setting("resnet50", 32, "fp32"),
    "cosmoflow": ledger.Setting("cosmoflow-512", 1),
    "gpt3": ledger.Setting("gpt3-175b", 1),
}
KNOWN = ("recompute all", "ZeRO 3 + recompute all", "pipeline + ZeRO 1", "offload activations")


def term(place: int, **changes: Any) -> str:
    """Return the largest term of GPT-2, or the one at another place."""
    terms = ledger.fullest(ledger.Setting(**changes)).terms
    name = sorted(terms, key=lambda each: -terms[each])[place]
    return f"{name}, {show(terms[name], 'B')}"


def peak_layer() -> str:
    """Return what is computed at the peak of GPT-2."""
    course = ledger.in_time(ledger.Setting())
    at = int(course.bytes.argmax())
    return f"{course.what[at]} of {course.layer[at]}"


def zero(level: int) -> str:
    """Return memory and time of a step with ZeRO."""
    found = ways.way(Step(), f"ZeRO {level}")
    return f"{show(found.memory, 'B')} and {step(found)}"


def step(way: Way) -> str:
    """Return the time of a step."""
    return show(way.seconds, "s")


def cost(name: str) -> float:
    """Return by which share a way is slower than the run as it is."""
    return ways.way(Step(), name).seconds / ways.way(Step(), "as it is").seconds - 1


def required(*setting: Any) -> str:
    """Return the bandwidth that hides everything."""
    return show(outside.needed(Away(*setting)).required, "B/s")


def exposed(batch: int) -> float:
    """Return the share of a step that is exposed, VGG-16 with weights and state offloaded."""
    setting = Away("vgg16", batch, "all")
    return outside.needed(setting).exposed / outside.seconds(setting, "prefetched")


def megabytes(offload: str = "none") -> float:
    """Return the peak by the ledger of the run under a cap."""
    return live.ledger(live.experiment(live.Setting(), offload)) / 1e6


def bandwidth(draw: np.random.Generator) -> Drawn:
    """Return a forward pass of one learner, and the GB/s that hide its activations."""
    gigabytes, forward = int(draw.integers(8, 40)), 50 * int(draw.integers(2, 9))
    answer, passes = 1e3 * gigabytes / forward, 3  # of the forward's length, both together
    wrong = {"backward": answer / 2, "both_ways": answer * 2 / passes, "once": answer / passes}
    return {"gigabytes": gigabytes, "forward": forward}, answer, wrong


FULL, LORA = {"recompute": "full"}, {"lora": adapters.RANK}
ADAPTED = {
    "full_state": lambda: show(adapters.state(adapters.tuned()), "B"),
    "full_activations": lambda: show(float(adapters.tuned().memory["activations"]), "B"),
    "lora_state": lambda: show(adapters.state(adapters.tuned(**LORA)), "B"),
    "lora_activations": lambda: show(float(adapters.tuned(**LORA).memory["activations"]), "B"),
    "all_activations": lambda: show(
        float(adapters.tuned(**LORA, adapted="all").memory["activations"]), "B"
    ),
    "frozen_16": lambda: show(adapters.frozen(), "B"),
    "frozen_4": lambda: show(adapters.frozen(adapters.NF4), "B"),
    "nf4": adapters.NF4,
    "lora_held": lambda: show(float(adapters.tuned(**LORA).memory_total), "B"),
    "lora_full": lambda: show(float(adapters.tuned(**LORA, **FULL).memory_total), "B"),
    "full_time": lambda: show(float(adapters.tuned().step_time), "s"),
    "lora_time": lambda: show(float(adapters.tuned(**LORA).step_time), "s"),
    "lora_full_time": lambda: show(float(adapters.tuned(**LORA, **FULL).step_time), "s"),
}
lesson = Lesson.read(
    __file__,
    outcomes={
        "activations": (lambda: ledger.shares(ledger.Setting())[2] / 1e9, ledger.the_ledger),
        "fastest_way": (lambda: ways.fastest(Step(), KNOWN), ways.four_ways),
        "hiding_bandwidth": (lambda: outside.needed(Away()).required / 1e9, outside.out_of_core),
        "adapters": (
            lambda: float(adapters.tuned(**LORA).memory["activations"]) / 1e9,
            adapters.lora_table,
        ),
        "out_of_core_peak": (lambda: megabytes("all"), live.train_under_a_cap),
    },
    numbers={
        "weights": lambda: ledger.shares(ledger.Setting())[0] / 1e9,
        "stored": lambda: ledger.fullest(ledger.Setting()).terms["activations"] / 1e9,
        "batch": ledger.Setting().batch,
        "second": lambda: term(1),
        "peak_layer": peak_layer,
        "first_of_one": lambda: term(0, batch=1),
        **{
            f"{name}_{part}": lambda setting=setting, k=k: show(ledger.shares(setting)[k], "B")
            for name, setting in COMPARED.items()
            for k, part in ((1, "state"), (2, "activations"))
        },
        "memory": Step().memory / 1e9,
        **{f"zero_{level}": lambda level=level: zero(level) for level in (1, 3)},
        "best_of_100g": lambda: ways.fitting(MIDDLE)[0].name,
        "best_time": lambda: step(ways.fitting(MIDDLE)[0]),
        **{f"fast_zero_{n}": lambda n=n: step(ways.way(FAST, f"ZeRO {n}")) for n in (1, 3)},
        "scores": lambda: cost("recompute scores"),
        "all": lambda: cost("recompute all"),
        "left_of_24": lambda: ", ".join(each.name for each in ways.fitting(Step(memory=24e9))),
        "step": lambda: outside.seconds(Away(), "in core") * 1e3,
        "forward": lambda: outside.forward_share(Away()),
        "offloaded": lambda: outside.needed(Away()).moved / 2e9,
        "required": required,
        "required_8": lambda: required("gpt2-1.5b", 8),
        "required_vgg16": lambda: required("vgg16", 64),
        "required_resnet50": lambda: required("resnet50", 64),
        **{f"exposed_{batch}": lambda batch=batch: exposed(batch) for batch in (1, 64)},
        **{f"required_{n}": lambda n=n: required("vgg16", n, "all") for n in (1, 64)},
        **{
            f"pages_{n}": lambda page=page: show(
                outside.seconds(Away(page=page), "page by page"), "s"
            )
            for n, page in enumerate(outside.PAGES.values())
        },
        **ADAPTED,
        "in_core": megabytes,
        "cap": live.Setting().cap / 1e6,
        "times": lambda: ways.sent(3, 4) / ways.sent(0, 4),
    },
    draws={"own_bandwidth": bandwidth},
)
ask = lesson.ask
