"""Lab 12: a language model in shards, its sequences on a ring of ranks, and its layout on 64 devices.

sharded_units.py    units of a decoder whose weights are sharded; a learner's step on them, against one rank
sharded_laws.py     what is wrong with such a step: of which unit, rank and step
ring_attention.py   causal attention of a sequence on a ring of ranks, in zig-zag order
layouts.py          a model on 64 devices: the legal layouts, the ledger's bytes, the fastest layout
layout_laws.py      a learner's bytes term by term, and a learner's layout beside the fastest
step_laws.py        a learner's time of a step beside the prediction, term by term
"""
