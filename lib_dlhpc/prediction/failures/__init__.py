"""What failures cost a run.

resilience.py   a run with failures: goodput, expected time, best checkpoint interval
intervals.py    checkpoint intervals: Young, Daly, exact; goodput
spares.py       nodes in repair: waiting for spares, or continuing with fewer replicas
silent.py       silent errors: how often to check, and what is lost
"""
