"""Checks of lab 11: does the step hold, is the scheduler fair and full, and does the plan meet its latency?

In the notebook:   task(NAME), check_step(cache, step, NAME), check_schedule(schedule, NAME),
                   check_forecast(forecast, NAME), check_choice(choose, NAME), hand_in(NAME, all five)
In a terminal:     python checks.py step.py "your name"     all fifteen, no clock
"""

from pathlib import Path

from lib_dlhpc.explore.labs.lab import save_and_check, say, show
from lib_dlhpc.labs.findings import seed_of
from lib_dlhpc.labs.program import check_file, end_together
from lib_dlhpc.labs.serve_the_model.batching import loads_of, schedule_findings
from lib_dlhpc.labs.serve_the_model.formulas import cache_finding, step_findings
from lib_dlhpc.labs.serve_the_model.plans import BUDGET, MARGIN, forecast_findings, plan_findings
from lib_dlhpc.labs.serve_the_model.tasks import BATCHES, NODE, gpu_of, served, size_of, tasks_of
from lib_dlhpc.spec.units import format_quantity as show_quantity

HERE = Path(__file__).parent
NAMES = ("cache", "step", "schedule", "forecast", "choose")


def task_of(name):
    """Return the service that the learner sees."""
    return tasks_of(seed_of(name))[0]


def task(name):
    """Return the learner's service in words."""
    own = task_of(name)
    size, gpu = size_of(own), gpu_of(own)
    return say(
        f"Model: {own.model}, {size['layers']} layers, hidden size {size['hidden']}, {size['heads']} heads,"
        f" {size['kv_heads']} of keys and values; {show_quantity(size['weights'], '')} weights in bf16.\n"
        f"Node: {NODE} devices of {own.machine}; each computes {show_quantity(gpu['flops'], 'FLOP/s')} and reads"
        f" {show_quantity(gpu['bandwidth'], 'B/s')}; {show_quantity(gpu['memory'], 'B')} of it are for weights and"
        " cache.\n"
        f"Load: requests always wait; on average {own.prompt} prompt tokens and {own.answer} answer tokens.\n"
        f"Target: a token takes at most {show_quantity(own.limit, 's')} for 99 of 100 requests, and the node generates"
        f" within {MARGIN:.0%} of the most tokens per second. Budget: {BUDGET} simulations."
    )


def growth(name):
    """Return how many times as many tokens a second the largest batch gives as the smallest, on one replica of 8."""
    own = task_of(name)
    few, many = (served(own, NODE, batch).tokens_per_second for batch in (BATCHES[0], BATCHES[-1]))
    return many / few


def check_step(cache, step, name):
    """Return the findings on the bytes of the cache and the seconds of a step for the page."""
    return show(step_laws(cache, step, name), "Your step")


def check_schedule(schedule, name):
    """Return the findings on the scheduler for the page."""
    return show(schedule_findings(schedule, loads_of(seed_of(name))), "Your scheduler")


def check_forecast(forecast, name):
    """Return the findings on the forecast for the page."""
    return show(forecast_findings(forecast, task_of(name)), "Your forecast")


def check_choice(choose, name):
    """Return the findings on the choice for the page, on the service that is shown."""
    return show(plan_findings(choose, tasks_of(seed_of(name))), "Your plan")


def step_laws(cache, step, name):
    """Return what holds for the bytes of the cache and the seconds of a step."""
    own = task_of(name)
    return [cache_finding(cache, own), *step_findings(step, own)]


def findings(given, name):
    """Return what holds for all that is handed in, on a hidden service as well: functions by their names in NAMES."""
    cache, step, schedule, forecast, choose = (given[each] for each in NAMES)
    seed = seed_of(name)
    found = step_laws(cache, step, name) + schedule_findings(schedule, loads_of(seed))
    found += forecast_findings(forecast, task_of(name))
    return found + plan_findings(choose, tasks_of(seed), tasks_of(seed, hidden=True))


def hand_in(name, *functions):
    """Save the cells as step.py and say what of all holds."""
    return save_and_check(HERE, NAMES, findings, name, functions)


def main():
    """Check step.py."""
    check_file(NAMES, findings)


if __name__ == "__main__":
    end_together(main)
