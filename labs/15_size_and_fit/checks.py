"""Checks of lab 15: are the bytes of fine-tuning right, and is the model size the best for the budget?

In the notebook:   task(NAME), check_tuning(adapters, bits, tuning, state, NAME), check_size(tokens, choose, NAME),
                   gap(NAME), arguments(NAME), hand_in(NAME, all six)
In a terminal:     python checks.py step.py "your name"     all seven, on hidden networks and budgets too
"""

from pathlib import Path

from lib_dlhpc.explore.labs.lab import save_and_check, say, show
from lib_dlhpc.labs.findings import seed_of
from lib_dlhpc.labs.program import check_file, end_together
from lib_dlhpc.labs.size_and_fit import size_laws, tuning_laws
from lib_dlhpc.labs.size_and_fit.size_laws import size_findings, sized_of
from lib_dlhpc.labs.size_and_fit.tuning_laws import saved, tuned_of, tuning_findings

HERE = Path(__file__).parent
NAMES = ("adapters", "bits", "tuning", "state", "tokens", "choose")
# Not in the cell of the guess, which it would give away.
FROZEN = (
    "QLoRA stores little more than half a byte per frozen weight, not 16 bytes per trained one; the embedding stays in"
    " 16 bits."
)


def task(name):
    """Return the learner's networks and budgets in words."""
    seed = seed_of(name)
    return say("\n\n".join(own.words + "." for own in (*tuned_of(seed), *sized_of(seed))))


def gap(name):
    """Return how many times as much full training stores as LoRA with frozen weights in NF4, on the first network."""
    return saved(tuned_of(seed_of(name))[0])


def arguments(name):
    """Return what the checks of the notebook call the functions with: a list of arguments by each function's name."""
    seed = seed_of(name)
    return {**tuning_laws.arguments(tuned_of(seed)), **size_laws.arguments(sized_of(seed))}


def check_tuning(adapters, bits, tuning, state, name):
    """Return the findings on the bytes for the page."""
    found = tuning_findings(adapters, bits, tuning, state, tuned_of(seed_of(name)))
    return show(found, "Your bytes")


def check_size(tokens, choose, name):
    """Return the findings on the budget for the page."""
    return show(size_findings(tokens, choose, sized_of(seed_of(name))), "Your size")


def findings(given, name):
    """Return what holds for all that is handed in, on hidden networks and budgets as well: functions by their names."""
    adapters, bits, tuning, state, tokens, choose = (given[each] for each in NAMES)
    seed, both = seed_of(name), (False, True)
    tuned = [own for hidden in both for own in tuned_of(seed, hidden)]
    sized = [own for hidden in both for own in sized_of(seed, hidden)]
    return [
        *tuning_findings(adapters, bits, tuning, state, tuned),
        *size_findings(tokens, choose, sized),
    ]


def hand_in(name, *functions):
    """Save the cells as step.py and say what of all holds."""
    return save_and_check(HERE, NAMES, findings, name, functions)


def main():
    """Check step.py."""
    check_file(NAMES, findings)


if __name__ == "__main__":
    end_together(main)
