"""Case of module 09: what interrupted Llama 3, a plan for checkpoints, and one measure against failures."""

from functools import lru_cache
from math import sqrt

from lib_dlhpc.explore.failures.interval import LLAMA_MTBF, SPELL
from lib_dlhpc.prediction.validation.validate import results
from lib_dlhpc.spec.units import DAY
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.cases import Case, Choice, Draw, Line, Option, Plan, Reading, Step, Table
from lib_dlhpc.teaching.designs import begun, varied

GPUS, NODES, MORE = 16_384, 2_048, 4  # and how many times as many nodes next year
EVERY, UNEXPECTED = (
    int(results()[f"llama3-{row}"]["value"]) for row in ("interruptions", "unexpected")
)
# Table 5 of the paper, the rows noted in lib_dlhpc/catalog/published/results.csv.
CAUSES = {"a faulty GPU": 148, "memory of a GPU (HBM3)": 72, "software": 54}
CAUSES |= {"network switch or cable": 35}
EFFECTIVE = float(results()["llama3-effective-time"]["value"])  # %, at least
TOML = """
[model]
name = "llama3-405b"

[dataset]
samples = 1_900_000_000
bytes = 6e13

[machine]
name = "h100-pod"
node_mtbf = NODE       # s
restart_time = 600         # s

[machine.storage.tectonic]
write_bandwidth = "RATE GB/s"

[storage]
tier = "tectonic"

[strategy]
nodes = 2048
batch = 16
microbatches = 16
tensor = 8
pipeline = 16
sequence_parallel = true
zero = 1
precision = "bf16"
optimizer = "adam"

[run]
checkpoint = "synchronous"
checkpoint_writers = "all"
checkpoint_interval = 1800
"""
MEASURES = {  # of the file
    "only the best interval": {},
    "a file system of 2 TB/s": {"machine__storage.tectonic.write_bandwidth": 2e12},
    "asynchronous checkpoints": {"run__checkpoint": "asynchronous"},
    "asynchronous checkpoints, written by the first replica": {
        "run__checkpoint": "asynchronous",
        "run__checkpoint_writers": "first",
    },
    "spare nodes that are ready: a restart in 2 min": {"machine__restart_time": 120.0},
}
WHEN = {
    "asynchronous checkpoints": "The highest goodput this year: the choice if the larger machine is not certain,"
    " since a software change can be followed by spare nodes.",
    "spare nodes that are ready: a restart in 2 min": "The highest goodput on the larger machine, where restarts are"
    " the largest loss and no checkpoint shortens them: the choice if that machine is what the money is for.",
}


def of_rate(rate: int) -> str:
    """Return the file with that many GB/s of the file system."""
    return TOML.replace("NODE", f"{LLAMA_MTBF:.0f}").replace("RATE", f"{rate}")


@lru_cache
def best(measure: str, rate: int, times: int) -> tuple[float, float]:
    """Return the best goodput in %, and its interval in s, if nodes fail that many times as often."""
    fields = {"machine__node_mtbf": LLAMA_MTBF / times} | MEASURES[measure]
    found = varied(begun(of_rate(rate))[0], **fields).resilience
    return 100 * float(found.best_goodput), float(found.best)


def readings() -> list[Reading]:
    """Return the questions on the table."""
    of_gpus = CAUSES["a faulty GPU"] + CAUSES["memory of a GPU (HBM3)"]
    return [
        Reading(
            "What is the MTBF of the job, and of one GPU with its share of all causes?",
            [
                Step("The job", SPELL / UNEXPECTED, "s"),
                Step("A GPU", SPELL / UNEXPECTED * GPUS / DAY, "days"),
            ],
            "Only unexpected ones count: planned ones are no failures. Nearly six years become three hours.",
        ),
        Reading(
            "Suppose that neither GPUs nor their memory failed. What would the MTBF of the job be?",
            [
                Step("Interruptions left", UNEXPECTED - of_gpus),
                Step("MTBF", SPELL / (UNEXPECTED - of_gpus), "s"),
            ],
            "Without the two largest causes the MTBF is only twice as long: the others have rates of their own.",
        ),
        Reading(
            f"More than {EFFECTIVE:g}% of the time was effective training. How long did an interruption of any kind"
            " take at most, on average, with its restart and repeated work, if nothing else took time?",
            [
                Step("Time that was not effective, at most", (1 - EFFECTIVE / 100) * SPELL, "s"),
                Step("An interruption", (1 - EFFECTIVE / 100) * SPELL / EVERY, "s"),
            ],
            "Checkpoints took a part of it as well: so restarts are automatic, and intervals short.",
        ),
    ]


def plan(stall: int) -> Plan:
    """Return the plan for checkpoints that stall training for that many seconds."""
    mtbf = LLAMA_MTBF / NODES
    lost = [100 * sqrt(2 * each / mtbf) for each in (stall, stall / 4)]
    return Plan(
        f"A job on {NODES:,} nodes fails once in {show(mtbf, 's')}; a checkpoint stalls training for {stall} s. To"
        " first order, restarts aside:",
        [
            Line(f"A node fails once in {LLAMA_MTBF / DAY:.0f} days."),
            Line(f"The best interval is {show(sqrt(2 * stall * mtbf), 's')}."),
            Line("At the best interval, checkpoints take as much time as work that is repeated."),
            Line(
                f"On {MORE} times the nodes, with the same stall, the best interval is a quarter of that.",
                "The interval is the root of 2 C M, and only M is a quarter.",
                [Step("Best interval", sqrt(2 * stall * mtbf / MORE), "s")],
            ),
            Line(
                "A file system that is four times as fast reduces the loss to a quarter.",
                "With its own best interval the loss is the root of 2 C / M: half.",
                [Step("Lost now", lost[0], "%"), Step("With a quarter of the stall", lost[1], "%")],
            ),
        ],
    )


def option(measure: str, rate: int) -> Option:
    """Return a measure with its numbers."""
    now, later = best(measure, rate, 1), best(measure, rate, MORE)
    return Option(
        measure,
        [
            Step("Goodput", now[0], "%"),
            Step("Its interval", now[1], "s"),
            Step(f"Goodput, {MORE} times the failures", later[0], "%"),
            Step("Its interval", later[1], "s"),
        ],
        WHEN.get(measure, ""),
    )


def case(draw: Draw) -> Case:
    """Return a version: the stall of the plan, the GB/s of the file system."""
    stall, rate = draw.of([45, 30, 60]), draw.any([200, 160, 250])
    return Case(
        "Interruptions in print, a plan, and one measure",
        Table(
            f"Training of Llama 3 405B on {GPUS:,} GPUs in nodes of 8, {SPELL / DAY:.0f} days (Grattafiori et al. 2024,"
            " arXiv:2407.21783, section 3.3.4).",
            ("interruptions", "number"),
            [
                ("planned", f"{EVERY - UNEXPECTED}"),
                *((cause, f"{many}") for cause, many in CAUSES.items()),
                ("other unexpected ones", f"{UNEXPECTED - sum(CAUSES.values())}"),
            ],
        ),
        readings(),
        plan(stall),
        Choice(
            f"Llama 3 405B on {NODES:,} nodes; {rate} GB/s of the file system are left for its checkpoints. Next year"
            f" the job may have {MORE} times the nodes: predict that with `node_mtbf` divided by {MORE}. You can afford"
            " one measure. `dlhpc predict start.toml --explain` has goodput and best interval; set the interval to it."
            " Choose, and say for which year.",
            [option(measure, rate) for measure in MEASURES],
            {
                "has the goodput of three measures or more, in both years, each at its best interval": 2,
                "chooses one that no other beats in both years, and names the largest loss that is left": 1,
                "names the number of nodes, or the rate of failures, at which the choice would change": 1,
            },
            of_rate(rate),
        ),
    )
