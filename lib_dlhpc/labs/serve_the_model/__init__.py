"""Lab 11: a learner's price of a step, scheduler and plan of a service, judged by the library's decoder and simulator.

tasks.py      a model, a node, a load and a latency; what the simulator says of each plan
formulas.py   the bytes of the cache and the seconds of a step, beside the real decoder and the library's prices
batching.py   a scheduler, driven step by step
plans.py      a forecast and a choice of devices and batch, with a few simulations
"""
