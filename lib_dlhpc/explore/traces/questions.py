"""What module 11 asks: the figures and the numbers of lesson.toml."""

import numpy as np

from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.numeric import Drawn
from lib_dlhpc.explore.traces import coupled, coupled_here, here, waits
from lib_dlhpc.explore.traces.live import trace_here
from lib_dlhpc.explore.traces.puzzle import find_it
from lib_dlhpc.explore.traces.waits import IN_TURN, NETWORKS, NOBODY, Setting, analyzed
from lib_dlhpc.prediction.communication.coupled import CoupledPrediction
from lib_dlhpc.spec.units import format_quantity as show

LATE = Setting(how="sends late")
PLANTED = here.Setting(how="sends late")
EVEN = coupled.Setting(6, 4, 1, 0.3)


def span(setting: Setting) -> str:
    """Return how long a run takes."""
    return show(analyzed(setting).span, "s")


def way(setting: coupled.Setting) -> CoupledPrediction:
    """Return the placement that a setting chooses."""
    return next(
        one for one in coupled.ways(setting) if coupled.number_of(one) == setting.simulating
    )


def best_of(sampling: int) -> str:
    """Say which placement is the fastest, and what all in turn would take."""
    setting = coupled.Setting(coupled.SHARED, sampling)
    found, turns = coupled.best(setting), way(setting)
    return f"{coupled.named(found)}, {show(found.seconds, 's')}; *all, in turn* takes {show(turns.seconds, 's')}"


def load_balance(draw: np.random.Generator) -> Drawn:
    """Return the compute times of one learner, and their load balance in percent."""
    usual, most = int(draw.integers(20, 31)), int(draw.integers(35, 51))
    wrong = {
        "no_mean": 100 * usual / most,
        "mean_of_two": 100 * (usual + most) / (2 * most),
        "upside_down": 100 * 4 * most / (3 * usual + most),
    }
    return {"usual": usual, "most": most}, 100 * (3 * usual + most) / (4 * most), wrong


lesson = Lesson.read(
    __file__,
    outcomes={
        "ideal_network": (lambda: waits.gain_of_ideal_network(Setting()), waits.read_it),
        "where_to_look": (lambda: "the rank at the other end of the first wait", find_it),
        "best_placement": (lambda: coupled.times_faster(coupled.Setting()), coupled.couple),
        "sends_late": (lambda: here.longer_if_late(PLANTED) * 1e3, trace_here),
        "waiting_training": (
            lambda: coupled_here.waiting_share(coupled_here.Setting()),
            coupled_here.couple_here,
        ),
    },
    numbers={
        "idle": lambda: 1 - analyzed(Setting()).efficiency.parallel,
        "spans": lambda: ", ".join(span(Setting(network=rate)) for rate in NETWORKS.values()),
        "usual": lambda: span(Setting()),
        "late": lambda: span(LATE),
        "late_balance": lambda: analyzed(LATE).efficiency.load_balance,
        "longest": lambda: int(np.argmax(sum(analyzed(LATE).waits.values()))),
        "in_turn": lambda: span(Setting(IN_TURN)),
        "link": lambda: analyzed(Setting(NOBODY, size=4e6, share=0.25)).efficiency.transfer,
        "chosen": lambda: coupled.named(way(coupled.Setting())),
        **{f"best_{n}": lambda n=n: best_of(n) for n in (1, 4, 16)},
        "even": lambda: show(way(EVEN).seconds, "s"),
        "buffered": lambda: show(way(EVEN._replace(depth=8)).seconds, "s"),
        "late_rank": PLANTED.rank,
        "by": PLANTED.by * 1e3,
        "steps": here.STEPS,
    },
    draws={"load_balance": load_balance},
)
ask = lesson.ask
