"""Energy and power of a run.

energy.py       explanations of energy, emissions and price
power_swings.py power of a facility over a step, and what floors, staggered jobs and storage cost
slack.py        passes of a pipeline slowed at no cost in time
"""
