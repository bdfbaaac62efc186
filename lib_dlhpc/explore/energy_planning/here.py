"""Two plans for real, on this machine: two batches trained to an accuracy, with epochs, time and energy predicted."""

from functools import lru_cache
from math import ceil
from typing import Annotated, NamedTuple

from lib_dlhpc.explore.blocks.bench import Dropdown, Slider
from lib_dlhpc.explore.blocks.live_run import Came, Train, on_ranks, one_step
from lib_dlhpc.explore.blocks.panels import table_html
from lib_dlhpc.explore.blocks.workbench import verdict_html
from lib_dlhpc.launch.energy import counters, run_energy
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import count
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.studies.large_batch_results import stored_steps
from lib_dlhpc.studies.large_batch_steps import STUDY, TARGET
from lib_dlhpc.timeline import Timeline

BATCHES = (16, 32, 64, 128, 256, 512, 1024)
RANKS = (1, 2)
SHOWN = 5  # the step on the chart: the first ones fill caches
SURE = {"the median": 0, "the upper end of 90%": 2}  # of what the law says of epochs


class Setting(NamedTuple):
    """Two plans: batches of all ranks together. sure: which number of the law they trust."""

    one: Annotated[int, Slider("Batch, plan A", "Its rate calibrates", BATCHES)] = 32
    other: Annotated[int, Slider("Batch, plan B", "Predicted from plan A", BATCHES)] = 512
    sure: Annotated[int, Dropdown("Epochs", "Of the fitted law, rounded up", SURE)] = 2
    ranks: Annotated[int, Slider("Ranks", "One process each", RANKS)] = 1
    seed: Annotated[int, Slider("Seed", "Other first weights, another order", range(5))] = 0


class Ran(NamedTuple):
    """A run: samples/s, s, accuracy at its end, J and where they are from."""

    rate: float
    seconds: float
    accuracy: float
    joules: float
    source: str


def problem_of(setting: Setting) -> str:
    """Say why two such plans cannot be compared, or nothing."""
    return "Both plans have the same batch: choose two." * (setting.one == setting.other)


def asked_words(setting: Setting) -> str:
    """Say what the law expects of both batches."""
    said = []
    for name, batch in (("A", setting.one), ("B", setting.other)):
        median, low, high = epochs(setting, batch)
        said.append(
            f"plan {name}, batch {batch:,}: {median:.3g} epochs, {low:.3g} to {high:.3g} in 90% of runs"
        )
    plans = [experiment(setting, batch) for batch in (setting.one, setting.other)]
    takes = " and ".join(count(int(plan.run.epochs), "epoch") for plan in plans)
    times = " and ".join(show(float(predict(plan).time_to_train), "s") for plan in plans)
    return (
        f"To {TARGET:.0%} of the test samples the law expects for {'; '.join(said)}. They will train {takes},"
        f" from seed {setting.seed}: {times} on the catalog's laptop, {count(setting.ranks, 'rank')}."
    )


@on_ranks(Setting(), asked_words, refused=problem_of)
def two_plans(setting: Setting, train: Train) -> Came:
    """Look for whether the plan with more epochs is the slower one, and how far off its prediction is."""
    one, _ = train_one(setting, "A", setting.one, train)
    other, timeline = train_one(setting, "B", setting.other, train)
    said, result = words_of(one, other), result_html(setting, one, other)
    return Came(one_step(timeline, SHOWN), said, result)


def train_one(setting: Setting, name: str, batch: int, train: Train) -> tuple[Ran, Timeline]:
    """Train a plan; return what came out, and its timeline."""
    own, before = experiment(setting, batch), counters()
    out, timeline = train(own, f"Plan {name} is training ...")
    spent = run_energy(own, out, before, counters())
    rate = out["samples"] / out["seconds"]
    ran = Ran(rate, out["seconds"], out["accuracy"], spent["joules"], spent["source"])
    return ran, timeline


def epochs(setting: Setting, batch: int) -> tuple[float, float, float]:
    """Return the epochs to the target by the fitted law, and their interval."""
    found = predict(_planned(batch, setting.ranks, setting.seed)).to_accuracy.epochs
    return float(found.epochs), float(found.low), float(found.high)


def experiment(setting: Setting, batch: int) -> Experiment:
    """Return the run of a plan: as many epochs as the law says, rounded up."""
    own = _planned(batch, setting.ranks, setting.seed)
    return own.set({"run.epochs": float(ceil(epochs(setting, batch)[setting.sure]))})


@lru_cache(maxsize=64)
def _planned(batch: int, ranks: int, seed: int) -> Experiment:
    rate = next(run.rate for run in stored_steps() if run.batch == batch)
    strategy = {"devices_per_node": ranks, "batch": batch // ranks, "optimizer": "momentum"}
    return Experiment(
        model={"family": "mlp", "widths": list(STUDY.widths)},
        dataset=STUDY.dataset,
        machine="laptop",
        strategy=strategy,
        training={"rate": rate, "weight_decay": 5e-4},
        run={"target": TARGET, "seed": seed},
    )


def more_epochs(setting: Setting) -> float:
    """Return how many times as many epochs plan B trains as plan A."""
    one, other = (experiment(setting, batch) for batch in (setting.one, setting.other))
    return float(other.run.epochs / one.run.epochs)


def times_as_long(setting: Setting) -> float:
    """Return how many times as long plan B is predicted to take as plan A, on the catalog's laptop."""
    one, other = (
        predict(experiment(setting, b)).time_to_train for b in (setting.one, setting.other)
    )
    return float(other / one)


def expected(setting: Setting, batch: int, rate: float) -> tuple[float, float]:
    """Return the s of a plan and the J of its ranks, predicted from the samples/s of plan A."""
    known = {"calibration.rate": rate, "calibration.devices": setting.ranks}
    known["calibration.batch"] = setting.one // setting.ranks
    found = predict(experiment(setting, batch).set(known))
    step = sum(float(j) for cause, j in found.energy.items() if cause.startswith("devices"))
    return float(found.steps * found.step_time), float(found.steps) * step


def words_of(one: Ran, other: Ran) -> str:
    """Say which plan was faster, and whether both met the target."""
    quick, ratio = "A", other.seconds / one.seconds
    if ratio < 1:
        quick, ratio = "B", 1 / ratio
    met = " and ".join(
        f"{name} {ran.accuracy:.1%}{'' if ran.accuracy >= TARGET else ', missed'}"
        for name, ran in (("A", one), ("B", other))
    )
    return verdict_html(f"<b>Plan {quick} was {ratio:.3g} times as fast.</b> Accuracy: {met}.")


def result_html(setting: Setting, one: Ran, other: Ran) -> str:
    """Return what both plans took and were predicted to take, and why that differs."""
    lines = [
        ["", "epochs", "time, predicted", "measured", "energy, predicted", "energy", "accuracy"]
    ]
    for name, batch, ran in (("A", setting.one, one), ("B", setting.other, other)):
        seconds, joules = expected(setting, batch, one.rate)
        trained = f"{experiment(setting, batch).run.epochs:g}"
        both = [
            show(seconds, "s"),
            show(ran.seconds, "s"),
            show(joules, "J"),
            show(ran.joules, "J"),
        ]
        lines.append([f"plan {name}, batch {batch:,}", trained, *both, f"{ran.accuracy:.1%}"])
    off = expected(setting, setting.other, one.rate)[0] / other.seconds - 1
    said = (
        f"<b>Error.</b> The time of plan B is predicted from the samples/s of plan A, {off:+z.0%} off. <b>Why they"
        " differ.</b> The measured times include evaluations after each epoch, and suffer from other processes on these"
        " cores; how matmuls speed up with the batch is taken from the catalog's laptop. <b>Accuracy</b> is that at"
        " the end; the law counts the first evaluation that met the target, after which a run may fall below it."
        f" <b>Energy</b> is that of ranks alone, {other.source}. Where it is modeled, measured energy follows from"
        " measured time: it confirms nothing."
    )
    return table_html(lines) + verdict_html(said)
