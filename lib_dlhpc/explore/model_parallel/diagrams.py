"""Diagrams of the slides of module 04: the shards of an MLP, microbatches in stages, stages of unequal layers."""

from lib_dlhpc.explore.model_parallel import live
from lib_dlhpc.explore.model_parallel.cuts import WAYS, Cut, stages
from lib_dlhpc.explore.model_parallel.shards import COLUMNS, MESSAGES, ROWS, SHARDS
from lib_dlhpc.explore.slides import diagram as kit
from lib_dlhpc.explore.slides.parts import of_steps
from lib_dlhpc.prediction import predict
from lib_dlhpc.schedules import PIPELINES, timetable

GPUS, STAGES, MANY, WORK = 2, 3, 4, 4.0
SHARD = {None: "all", COLUMNS: "columns {}/2", ROWS: "rows {}/2"}
NETWORK = "VGG-16"


def product() -> kit.Diagram:
    """Return which GPU has which part of the five matrices of an MLP."""
    fills = (kit.BLUE, kit.ORANGE, kit.BLUE, kit.ORANGE, kit.GREEN)
    rows = [
        kit.Row(name, [SHARD[axis].format(gpu + 1) for gpu in range(GPUS)], fill)
        for name, axis, fill in zip(
            ("X", "A", "Y = GeLU(XA)", "B", "Z = YB"), SHARDS["paired"], fills, strict=True
        )
    ]
    sent = [
        f"{what} {'of Z, ' if after == 'B' else 'for X, '}{when}"
        for after, when, what in MESSAGES["paired"]
    ]
    return kit.held(
        [f"GPU {gpu}" for gpu in range(GPUS)], rows, f"allreduce: {'; '.join(reversed(sent))}"
    )


def filled() -> kit.Diagram:
    """Return a batch in three stages, whole and in four microbatches: the same work."""
    rows = list[kit.Lane]()
    for count, name in ((1, "1 batch"), (MANY, f"{MANY} parts")):
        each = WORK / count
        spans = timetable(PIPELINES["gpipe"](STAGES, count), forward=each, backward=2 * each)
        rows += kit.passes(spans, f"{name}, stage", numbered=False)
    return kit.lanes(rows, "time; light: forward, dark: backward", side=0.25, unfolds=True)


def uneven() -> kit.Diagram:
    """Return the work of stages with equal numbers of layers."""
    found = stages(Cut(NETWORK, way=WAYS[0]))
    firsts = (0, *found.ends[:-1])
    rows = [
        kit.Lane(
            f"stage {number}", [kit.Bar(0, float(work), f"layers {first + 1} to {end}", kit.BLUE)]
        )
        for number, (first, end, work) in enumerate(
            zip(firsts, found.ends, found.work, strict=True)
        )
    ]
    return kit.lanes(rows, f"time of a microbatch of {NETWORK}")


def quickest() -> kit.Diagram:
    """Return a step of the perceptron on one rank, and on two in each way."""
    settings = {"one rank": live.ALONE}
    settings |= {way: live.Setting(way, 2) for way in live.WAYS}
    return of_steps({name: predict(live.experiment(each)) for name, each in settings.items()})


DIAGRAMS = {
    "How do you split one network?": product,
    "How large is the bubble?": filled,
    "Where to cut?": uneven,
    "quickest_way: answer": quickest,
}
