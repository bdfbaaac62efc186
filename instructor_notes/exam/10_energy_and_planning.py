"""Exam questions of module 10, energy and planning."""

from lib_dlhpc.costs import clock
from lib_dlhpc.explore.energy_planning.pipeline_slack import Setting as Pipe
from lib_dlhpc.explore.energy_planning.pipeline_slack import found
from lib_dlhpc.explore.energy_planning.to_accuracy import Setting as Run
from lib_dlhpc.explore.energy_planning.to_accuracy import by_cause, cost, runs
from lib_dlhpc.teaching.questions import Draw, Question

ends = runs(Run().target).named
fastest, cheapest = by_cause(ends["fastest"]), by_cause(ends["cheapest"])
grown = max(fastest, key=lambda cause: fastest[cause] - cheapest[cause])
arithmetic = max(cheapest, key=lambda cause: cheapest[cause])


def half_the_gpus(draw: Draw) -> Question:
    """The joules of the same run on half of the GPUs."""
    gpus, batch = draw.of([(128, 4096), (512, 8192), (64, 4096), (1024, 8192)])
    few, many = (cost(Run(gpus=each, batch=batch)) for each in (gpus // 2, gpus))
    return Question(
        "half the gpus",
        f"ResNet-50 to 76 %, batch {batch:,}, on {gpus // 2} instead of {gpus} P100: it takes"
        f" {few.seconds / many.seconds:.2f} times as long. About what share of the energy does it take?",
        f"{100 * few.joules / many.joules:.1f} %",
        {
            f"{100 / 2:.1f} %": "Half the GPUs halve the energy.",
            f"{100 * 2:.1f} %": "Twice the time takes twice the energy.",
            f"{100 / 2**0.5:.1f} %": "Energy falls with the root of the GPUs.",
        },
        "The computation takes the same joules; only what waited is saved: GPUs times time.",
    )


def lowest_limit(draw: Draw) -> Question:
    """A power limit below the best one."""
    gpus, limit = draw.of([64, 512, 1024]), draw.of([110, 115])
    plain, some, low = (cost(Run(gpus, 8192, each)) for each in (0, 200, limit))
    saved, more = (100 * (1 - some.joules / plain.joules), 100 * (low.joules / plain.joules - 1))
    return Question(
        "lowest limit",
        f"ResNet-50 to 76 % on {gpus:,} P100. A power limit of 200 W saves {saved:.1f} % of the energy. What does one"
        f" of {limit} W do?",
        f"{more:.1f} % more than without a limit",
        {
            f"{2 * saved:.1f} % less": "A lower limit always saves.",
            f"{saved:.1f} % less": "Below some limit the clock stays, and so do the joules.",
            f"{100 * (low.seconds / plain.seconds - 1):.1f} % more": "Energy grows with the time.",
        },
        "Hosts, switches and the static part of the GPU draw power for longer.",
    )


def more_replicas(draw: Draw) -> Question:
    """The number of GPUs from which a step gets longer."""
    compute, fixed, each = (
        draw.of([640, 1200, 2560]),
        draw.of([7, 11]),
        draw.of([0.1, 0.16, 0.25, 0.4]),
    )
    best = (compute / each) ** 0.5
    return Question(
        "more replicas",
        f"A step computes for {compute} ms divided by the number of GPUs, and exchanges for {fixed} ms and"
        f" {1000 * each:.0f} µs for each GPU, on a slow link; nothing overlaps. On how many GPUs is it the fastest?",
        f"{best:.0f}",
        {
            "As many as there are": "More GPUs are never slower.",
            f"{best / 2:.0f}": "The knee is the best run.",
            f"{compute / fixed:.0f}": "The best is where both parts take equally long.",
        },
        "The root of computing over the exchange of a GPU: on slow links more replicas lengthen the exchange by more"
        " than they shorten the computation.",
    )


def limit_and_clock(draw: Draw) -> Question:
    """The clock that a power limit leaves."""
    busy, idle = draw.of([(700, 70), (400, 50), (500, 60)])
    share = draw.of([0.55, 0.6, 0.75, 0.8])
    limit = round(busy * share)
    slower = 100 * (1 / float(clock(limit, busy, idle)) - 1)
    return Question(
        "limit and clock",
        f"A GPU draws {busy} W when it computes, {idle} W idle; what remains at any clock is idle power and"
        f" three tenths of the rest; the other seven fall with the fourth power of the clock. A limit of {limit} W:"
        " by how much is arithmetic slower?",
        f"{slower:.1f} %",
        {
            f"{100 * (busy / limit - 1):.1f} %": "Time grows as watts fall.",
            f"{100 * (1 - limit / busy):.1f} %": "A tenth less power is a tenth less speed.",
            f"{0:.1f} %": "A limit is only for peaks.",
        },
        "The dynamic part falls with the fourth power of the clock.",
    )


def free_joules(draw: Draw) -> Question:
    """What slack saves in a pipeline."""
    stages, microbatches = draw.of([(8, 4), (4, 4), (8, 16), (4, 8)])
    own, gpipe = (
        found(Pipe(stages=stages, microbatches=microbatches, schedule=each))
        for each in ("1f1b", "gpipe")
    )
    idle = 100 * (stages - 1) / (microbatches + stages - 1)
    return Question(
        "free joules",
        f"A pipeline of {stages} stages and {microbatches} microbatches is idle for {idle:.0f} % of the time. With"
        " 1F1B, passes that have slack are slowed. About how much energy is saved?",
        f"{100 * own.saving:.1f} %",
        {
            f"{idle:.1f} %": "What is idle can be saved.",
            f"{100 * gpipe.saving:.1f} %": "All schedules have the same slack.",
            f"{0:.1f} %": "A pipeline without idle stages in its middle has no slack.",
        },
        "Idle stages draw little power; slack lowers the clock of some passes only.",
    )


def epochs(draw: Draw) -> Question:
    """A larger batch that needs more epochs."""
    more, faster = draw.of([1.8, 2.4, 3.2, 4.5]), draw.of([1.3, 1.5, 1.6])
    return Question(
        "epochs",
        f"A larger batch needs {more} times the epochs to the same accuracy, and an epoch is {faster} times as fast."
        " How many times as long does the run take?",
        f"{more / faster:.2f}",
        {
            f"{more:.2f}": "An epoch takes equally long with any batch.",
            f"{more * faster:.2f}": "Both factors lengthen the run.",
            f"{1 / faster:.2f}": "A larger batch is faster, whatever the target.",
        },
        "An epoch is faster with the larger batch, by less than it needs more of them.",
    )


QUESTIONS = [
    Question(
        "the fastest run",
        "Of all runs of ResNet-50 to 76 % on 32 to 2,048 P100, the fastest takes more than twice the energy of"
        " the cheapest. Which part has grown most?",
        grown.capitalize(),
        {
            arithmetic.capitalize()
            if arithmetic != grown
            else "Arithmetic": "The fastest run costs the most because it works the hardest.",
            "Reading the data set": "More GPUs read the data set more often.",
            "Cooling, out of proportion": "A machine that is full is cooled less efficiently.",
        },
        "It does the same work. What waits, and what is only switched on, draws power for nothing.",
    ),
    half_the_gpus,
    lowest_limit,
    Question(
        "knee",
        "A front of time and energy has a knee. Why may it not be the run to choose?",
        "It moves with the range of runs that one looks at; a deadline or a budget decides",
        {
            "It is always the run to choose": "The knee is the best run.",
            "It is never on the front": "A compromise is dominated by both ends.",
            "It has the mean of time and energy": "The knee is the middle of the front.",
        },
        "Add more GPUs at either end, and it moves, though no run has changed.",
    ),
    Question(
        "twice the batch",
        "A planner finds that GPT-3 with twice the batch takes 10 % less time and energy per epoch. May it"
        " offer that?",
        "No: nobody has measured how many epochs that batch needs",
        {
            "Yes, it is better in both": "A larger batch is a free choice of the planner.",
            "Yes, if the learning rate is doubled": "Linear scaling of the rate always works.",
            "No: a larger batch always needs more energy": "More samples per step are more work per sample.",
        },
        "An epoch is not a result. The planner may change what leaves the arithmetic alone.",
    ),
    more_replicas,
    Question(
        "a slower clock",
        "When does a lower clock save energy without costing time?",
        "Where a pass has slack: somebody else is waited for anyway",
        {
            "Always, since power falls faster than the clock": "Slowing down saves energy.",
            "Never, since a slower pass makes the step longer": "Every pass is on the critical path.",
            "Where the clock is already low": "The lower the clock, the more there is to gain.",
        },
        "And only down to some clock: below it the static part costs more than the slower arithmetic saves.",
    ),
    limit_and_clock,
    free_joules,
    epochs,
]
