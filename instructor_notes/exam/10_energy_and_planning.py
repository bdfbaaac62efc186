"""Exam questions of module 10, energy and planning."""

from lib_dlhpc.costs import clock
from lib_dlhpc.explore.energy_planning.to_accuracy import Setting as Run
from lib_dlhpc.explore.energy_planning.to_accuracy import by_cause, runs
from lib_dlhpc.teaching.problems import Step
from lib_dlhpc.teaching.questions import Draw, Open, Question

ends = runs(Run().target).named
fastest, cheapest = by_cause(ends["fastest"]), by_cause(ends["cheapest"])
grown = max(fastest, key=lambda cause: fastest[cause] - cheapest[cause])
arithmetic = max(cheapest, key=lambda cause: cheapest[cause])


def half_the_gpus(draw: Draw) -> Question:
    """The joules of the same run on half of the GPUs."""
    gpus, longer = 2 * draw.between(16, 256, 8), draw.between(1.5, 1.95, 0.05)
    energy = draw.between(130, 900, 10)
    return Question(
        "half the gpus",
        f"On {gpus} GPUs, a run to a given accuracy takes {energy} kWh. On {gpus // 2} instead of {gpus} GPUs, the run"
        f" takes {longer:.2f} times as long to the same accuracy; a GPU draws about the same power in both. About how"
        " much energy does it take?",
        f"{energy * longer / 2:.0f} kWh",
        {
            f"{energy / 2:.0f} kWh": "Half the GPUs halve the energy.",
            f"{energy * longer:.0f} kWh": "Energy grows with the time.",
            f"{energy / 2**0.5:.0f} kWh": "Energy falls with the root of the GPUs.",
        },
        "Energy is proportional to GPUs times time: the computation takes the same joules, and only waiting is saved.",
        [
            Step("GPUs times time, relative to before", longer / 2),
            Step("Times the energy", energy * longer / 2, "kWh"),
        ],
    )


def lowest_limit(draw: Draw) -> Question:
    """A power limit below the best one."""
    busy, host = draw.between(250, 400, 10), draw.between(110, 260, 10)
    limit, slower = round(busy * draw.between(0.4, 0.5, 0.05)), draw.between(60, 115, 5)
    grown = (limit + host) * (1 + slower / 100) / (busy + host)
    return Question(
        "lowest limit",
        f"A GPU draws {busy} W, and its share of host and switches {host} W, which no power limit changes. With a"
        f" power limit of {limit} W for the GPU, a run takes {slower}% longer. How does its energy change?",
        f"{100 * (grown - 1):.1f}% more than without a limit",
        {
            f"{100 * (busy - limit) / (busy + host):.1f}% less": "A lower limit always saves.",
            f"{100 * (1 - limit * (1 + slower / 100) / busy):.1f}% less": "Only GPUs draw power.",
            f"{slower:.1f}% more": "Energy grows with the time.",
        },
        "Hosts, switches and the static part of the GPU's power are on for longer.",
        [
            Step("New power over old power", (limit + host) / (busy + host)),
            Step("Times the time", grown),
            Step("More than 1 by", 100 * (grown - 1), "%"),
        ],
    )


def more_replicas(draw: Draw) -> Question:
    """The number of GPUs from which a step gets longer."""
    compute, fixed = draw.between(600, 2600, 20), draw.between(7, 15, 1)
    each = draw.between(0.1, 0.4, 0.01)
    best = (compute / each) ** 0.5
    knee = compute / fixed  # computing takes as long as what no number of GPUs changes
    return Question(
        "more replicas",
        f"A step computes for {compute} ms divided by the number of GPUs, and exchanges for {fixed} ms plus"
        f" {1000 * each:.0f} µs per GPU, on a slow link; nothing overlaps. On how many GPUs is a step the fastest?",
        f"{best:.0f}",
        {
            "As many as there are": "More GPUs are never slower.",
            f"{knee:.0f}": "The knee is the best run.",
            f"{((fixed**2 + 4 * each * compute) ** 0.5 - fixed) / 2 / each:.0f}": (
                "The best run is where both parts take equally long."
            ),
        },
        "It is the root of the computation over the exchange per GPU: beyond it, more replicas lengthen the exchange"
        f" by more than they shorten the computation. The knee, where computing takes as long as the constant {fixed}"
        " ms, is not the optimum.",
        [
            Step("Computation over the exchange per GPU", round(compute / each)),
            Step("Its root", best),
        ],
    )


def limit_and_clock(draw: Draw) -> Question:
    """The clock that a power limit leaves."""
    busy, idle = draw.between(300, 700, 20), draw.between(40, 90, 5)
    share = draw.between(0.55, 0.8, 0.05)
    limit = round(busy * share)
    slower = 100 * (1 / float(clock(limit, busy, idle)) - 1)
    low = idle + 0.3 * (busy - idle)
    return Question(
        "limit and clock",
        f"A GPU draws {busy} W when it computes, {idle} W when idle. Idle power and three tenths of the rest remain at"
        " any clock; the other seven tenths fall with the fourth power of the clock. By how much does a power limit"
        f" of {limit} W slow down arithmetic?",
        f"{slower:.1f}%",
        {
            f"{100 * (busy / limit - 1):.1f}%": "A tenth less power is a tenth less speed.",
            f"{100 * (1 - limit / busy):.1f}%": "A tenth less power is a tenth more time.",
            f"{100 * ((busy / limit) ** 0.25 - 1):.1f}%": "All power falls with the fourth power of the clock.",
        },
        "Only the dynamic part falls with the fourth power of the clock.",
        [
            Step("Power that remains at any clock", idle + 0.3 * (busy - idle), "W"),
            Step("The rest, over what the limit leaves for it", (busy - low) / (limit - low)),
            Step("Its fourth root, less 1", slower, "%"),
        ],
    )


def free_joules(draw: Draw) -> Question:
    """What slack saves in a pipeline."""
    share, clocked = draw.between(24, 60, 2), draw.between(75, 95, 5)
    idle, f = draw.between(11, 40, 1), clocked / 100
    left = 0.7 * f**3 + 0.3 / f
    return Question(
        "free joules",
        f"The stages of a pipeline are idle for {idle}% of the time. Passes that have slack take {share}% of its"
        f" energy; they are slowed to {clocked}% of the clock. Three tenths of their power remain at any clock, seven"
        " tenths fall with its fourth power. How much of the energy is saved?",
        f"{share * (1 - left):.1f}%",
        {
            f"{idle:.1f}%": "All idle time is energy that can be saved.",
            f"{share * (1 - f**3):.1f}%": "All of the power falls with the clock.",
            f"{share * (1 - 0.7 * f**4 - 0.3):.1f}%": "A slowed pass takes as long as before.",
        },
        "Energy is power times time: the energy of the dynamic part falls with the third power of the clock, that of"
        " the static part grows.",
        [
            Step("Energy of a slowed pass: 0.7 f³ + 0.3 / f", left),
            Step("Saved, as a share of such a pass", 100 * (1 - left), "%"),
            Step("Times the share of such passes", share * (1 - left), "%"),
        ],
    )


def more_compute(draw: Draw) -> Question:
    """The compute-optimal size of a larger budget."""
    weights, times = draw.between(2, 9, 0.5), draw.between(5, 15, 1)
    alpha, beta = 0.35, 0.37
    best = weights * times ** (beta / (alpha + beta))
    return Question(
        "more compute",
        f"The loss of a language model is E + A/N^{alpha} + B/D^{beta} for N weights and D tokens, and training takes"
        f" 6ND FLOP. For some budget of FLOP, {weights:g} billion weights are compute-optimal. How many are optimal"
        f" for {times} times that budget?",
        f"{best:.1f} billion",
        {
            f"{weights * times:.1f} billion": "All of the compute goes into weights.",
            f"{weights * times**0.73:.1f} billion": (
                "Weights grow with the power 0.73 of compute (Kaplan et al. 2020)."
            ),
            f"{weights:.1f} billion": "All of the compute goes into tokens.",
        },
        "Weights grow with the power β/(α + β) of the compute, tokens with α/(α + β): both by about the root.",
        [
            Step("β/(α + β)", beta / (alpha + beta)),
            Step("Times the weights", times ** (beta / (alpha + beta))),
            Step("Weights, in billions", best),
        ],
    )


def served_tokens(draw: Draw) -> Question:
    """The FLOP of serving beside those of training."""
    trained, more = draw.between(200, 800, 10), draw.between(1.3, 1.7, 0.01)
    served = round(trained * more)
    share = 2 * served / (6 * trained + 2 * served)
    return Question(
        "served tokens",
        f"A decoder trains on {trained} billion tokens, and then serves {served} billion. Training takes 6 FLOP per"
        " weight and token, serving 2. What share of all FLOP goes into serving?",
        f"{100 * share:.1f}%",
        {
            f"{100 * served / (trained + served):.1f}%": "A served token costs as much as a trained one.",
            f"{100 * served / (3 * trained):.1f}%": "The share is serving over training.",
            f"{100 * 2 / (6 + 2):.1f}%": "Serving takes two of eight FLOP, however many tokens there are.",
        },
        "The share is 2S / (6D + 2S) for D trained and S served tokens; the weights cancel. The more tokens are"
        " served, the more a smaller model saves.",
        [
            Step("FLOP per weight: 6 D, in billions", 6 * trained),
            Step("2 S, in billions", 2 * served),
            Step("2 S over the sum of both", 100 * share, "%"),
        ],
    )


def power_swing(draw: Draw) -> Question:
    """The swing of a facility, hosts included."""
    gpus, hosts = draw.between(4, 24, 2), draw.between(0.3, 0.5, 0.05)
    busy, idle, part = draw.between(600, 1000, 50), draw.between(60, 100, 10), 0.3
    waits = idle + part * (busy - idle)
    return Question(
        "power swing",
        f"In a facility, {gpus},000 GPUs train one network in lockstep. A GPU draws {busy} W when it computes, {idle}"
        f" W when idle, and {part:.0%} of the way from idle to busy while it polls during the exchange; hosts and"
        f" switches draw {hosts * 1000:.0f} W per GPU all the time. By how many MW does the power fall in each"
        " exchange, without cooling?",
        f"{gpus * (busy - waits) / 1e3:.2f} MW",
        {
            f"{gpus * (busy - idle) / 1e3:.2f} MW": "A GPU that waits is idle.",
            f"{gpus * (busy + hosts * 1e3) / 1e3:.2f} MW": "All power falls when all GPUs wait.",
            f"{gpus * waits / 1e3:.2f} MW": "The power falls by what a polling GPU draws.",
        },
        "Polling GPUs still draw part of their power, and hosts draw as much as before.",
        [
            Step("Power of a GPU that polls", waits, "W"),
            Step(
                "The difference from busy, for all GPUs, in MW", gpus * (busy - waits) / 1e3, "MW"
            ),
        ],
    )


OPEN = Open(
    "A center has to spend 20% less energy on training next year. One proposal is a power limit on all GPUs, another"
    " is to halve the GPUs of each run, and a third is a larger batch. Judge the three, and say what you would"
    " measure before you recommend one.",
    "A moderate limit saves energy, since power falls faster than the clock, until the longer draw of hosts and"
    " static power outweighs that. Half the GPUs save only energy spent waiting. A larger batch may need more epochs,"
    " which nobody has measured. Measure the energy to the same accuracy, hosts and switches included, at several"
    " limits.",
    {
        "judges the limit: what falls, what remains, and that there is a best one": 2,
        "judges half the GPUs by GPUs times time": 1,
        "refuses the larger batch without a measurement of epochs": 1,
        "measures energy to an accuracy, with hosts and idle power": 2,
    },
)

QUESTIONS = [
    Question(
        "the fastest run",
        "Of all runs of ResNet-50 to 76% on 32 to 2,048 P100s, the fastest takes more than twice the energy of the"
        " cheapest. Which part of the energy has grown most?",
        grown.capitalize(),
        {
            arithmetic.capitalize()
            if arithmetic != grown
            else "Arithmetic": "The fastest run costs the most because it works the hardest.",
            "Reading the data set": "More GPUs read the data set more often.",
            "Cooling, out of proportion": "A full machine is cooled less efficiently.",
        },
        "Both do the same work. In the fastest run, more devices wait or are merely switched on, and draw power for"
        " nothing.",
    ),
    half_the_gpus,
    lowest_limit,
    Question(
        "twice the batch",
        "A planner finds that GPT-3 with twice the batch takes 10% less time and energy per epoch. May the planner"
        " recommend that batch?",
        "No: the epochs of that batch are not known",
        {
            "Yes, it is better in both": "A larger batch is a free choice of the planner.",
            "Yes, if the learning rate is doubled": "Linear scaling of the rate always works.",
            "No: a larger batch always needs more energy": "More samples per step are more work per sample.",
        },
        "An epoch is not a result. The planner may change only what leaves the arithmetic unchanged.",
    ),
    more_replicas,
    Question(
        "a slower clock",
        "When does a lower clock save energy without costing time?",
        "In a pass with slack, while others are waited for",
        {
            "In any pass, since power falls faster than the clock": "Slowing down saves energy.",
            "In no pass, since a slower one makes the step longer": "Every pass is on the critical path.",
            "In a pass whose clock is already below its nominal one": "The lower the clock, the larger the gain.",
        },
        "Even then, only down to some clock: below it, static power costs more than the slower arithmetic saves.",
    ),
    limit_and_clock,
    free_joules,
    more_compute,
    served_tokens,
    power_swing,
]
