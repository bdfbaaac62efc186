"""What another choice would change.

advice.py       the one change that shortens a run the most, or the fewest that let it run
difference.py   two predictions in words: fields, step, terms
gains.py        choices that do not pay
no_effect.py    settings without effect
resplit.py      another degree of one kind of parallelism on the same devices, or another batch
sensitivity.py  which improvement of the machine helps most
"""
