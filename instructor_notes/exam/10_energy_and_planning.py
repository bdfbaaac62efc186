"""Exam questions of module 10, energy and planning."""

from lib_dlhpc.costs import clock
from lib_dlhpc.explore.energy_planning import budget, here
from lib_dlhpc.explore.energy_planning.budget import planned
from lib_dlhpc.explore.energy_planning.here import Setting as Here
from lib_dlhpc.explore.energy_planning.pipeline_slack import Setting as Pipe
from lib_dlhpc.explore.energy_planning.pipeline_slack import found
from lib_dlhpc.explore.energy_planning.to_accuracy import LIMITS, by_cause, cost, runs
from lib_dlhpc.explore.energy_planning.to_accuracy import Setting as Run
from lib_dlhpc.teaching.questions import Question

ends = runs(Run().target).named
fastest, cheapest = by_cause(ends["fastest"]), by_cause(ends["cheapest"])
grown = max(fastest, key=lambda cause: fastest[cause] - cheapest[cause])
arithmetic = max(cheapest, key=lambda cause: cheapest[cause])
half = cost(Run(gpus=128)).joules / cost(Run()).joules
plain, lowest = cost(Run()), cost(Run(limit=LIMITS[-1]))
at_175 = cost(Run(limit=175))
slow = planned(budget.Setting().network)
quickest = budget.gpus(slow.best)
saving = {
    name: 100 * found(Pipe(**changes)).saving
    for name, changes in {"1f1b": {}, "gpipe": {"schedule": "gpipe"}, "two": {"stages": 2}}.items()
}
BUSY, IDLE, LIMIT = 300, 30, 200
slower = 100 * (1 / float(clock(LIMIT, BUSY, IDLE)) - 1)
epochs, time = here.more_epochs(Here()), here.times_as_long(Here())


def more(setting: Run) -> float:
    """Return by how many percent more joules a run takes than without a limit."""
    return 100 * (cost(setting).joules / plain.joules - 1)


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
    Question(
        "half the gpus",
        "ResNet-50 to 76 %, batch 8,192, on 128 instead of 256 P100. What share of the energy does it take?",
        f"{100 * half:.0f} %",
        {
            f"{100 * 128 / 256:.0f} %": "Half the GPUs halve the energy.",
            f"{100 * 256 / 128:.0f} %": "Twice the time takes twice the energy.",
            f"{100 * (128 / 256) ** 0.5:.0f} %": "Energy falls with the root of the GPUs.",
        },
        "The computation takes the same joules; only what waited is saved.",
    ),
    Question(
        "lowest limit",
        f"ResNet-50 to 76 % on 256 P100. A power limit of 175 W saves {-more(Run(limit=175)):.0f} % of the"
        f" energy. What does one of {LIMITS[-1]} W do?",
        f"{more(Run(limit=LIMITS[-1])):.0f} % more than without a limit",
        {
            f"{-more(Run(limit=175)) * 2:.0f} % less": "A lower limit always saves.",
            f"{-more(Run(limit=175)):.0f} % less": "Below some limit the clock stays, and so do the joules.",
            f"{100 * (lowest.seconds / plain.seconds - 1):.0f} % more": "Energy grows with the time.",
        },
        "Hosts, switches and the static part of the GPU draw power for longer.",
    ),
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
        "A planner finds that GPT-3 with twice the batch takes 10 % less time and energy an epoch. May it"
        " offer that?",
        "No: nobody has measured how many epochs that batch needs",
        {
            "Yes, it is better in both": "A larger batch is a free choice of the planner.",
            "Yes, if the learning rate is doubled": "Linear scaling of the rate always works.",
            "No: a larger batch always needs more energy": "More samples a step are more work a sample.",
        },
        "An epoch is not a result. The planner may change what leaves the arithmetic alone.",
    ),
    Question(
        "all 64",
        "GPT-2 on up to 64 GPUs with two 25 Gb/s links a node. How many GPUs does the fastest layout use?",
        f"{quickest}",
        {
            f"{64}": "More GPUs are never slower.",
            f"{quickest // 2}": "The knee is the best run.",
            f"{quickest // 4}": "The cheapest layout is the fastest.",
        },
        "On slow links more replicas lengthen the exchange by more than they shorten the computation.",
    ),
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
    Question(
        "limit and clock",
        f"A GPU draws {BUSY} W when it computes, {IDLE} W idle; what remains at any clock is idle power and"
        f" three tenths of the rest; the other seven fall with the fourth power of the clock. A limit of {LIMIT} W:"
        " by how much is arithmetic slower?",
        f"{slower:.0f} %",
        {
            f"{100 * (BUSY / LIMIT - 1):.0f} %": "Time grows as watts fall.",
            f"{100 * (1 - LIMIT / BUSY):.0f} %": "A third less power is a third less speed.",
            f"{0:.0f} %": "A limit is only for peaks.",
        },
        "The dynamic part falls with the fourth power of the clock.",
    ),
    Question(
        "free joules",
        "A pipeline of 8 stages and 8 microbatches is busy for half of the time. With 1F1B, passes that have"
        " slack are slowed. How much energy is saved?",
        f"{saving['1f1b']:.0f} %",
        {
            f"{100 * 0.49:.0f} %": "What is idle half of the time can save half.",
            f"{saving['gpipe']:.0f} %": "All schedules have the same slack.",
            f"{0:.0f} %": "A pipeline without idle stages in its middle has no slack.",
        },
        "Idle stages draw little power; slack lowers the clock of some passes only.",
    ),
    Question(
        "epochs",
        f"On one core batch {Here().other} needs {epochs:.1f} times the epochs of batch {Here().one} to the"
        " same accuracy. How many times as long does it take?",
        f"{time:.1f}",
        {
            f"{epochs:.1f}": "An epoch takes equally long with any batch.",
            f"{epochs * Here().one / Here().other:.2f}": (
                "A larger batch makes fewer steps, and steps are all that counts."
            ),
            f"{1 / epochs:.2f}": "A larger batch is faster, whatever the target.",
        },
        "An epoch is faster with the larger batch, by less than it needs more of them.",
    ),
]
