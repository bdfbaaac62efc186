"""Lab 14: a learner's matmul, softmax and attention on a chip that counts what it reads and writes.

chip.py             tiles on a chip with room for a few numbers, matrices in HBM
runs.py             a learner's kernel on a fresh chip, and what its results look like
tile_laws.py        the tiled matmul, and softmax with a running maximum
attention_laws.py   fused attention, with and without a causal mask
backward_laws.py    its backward, as an extra
time_laws.py        seconds of both forms of attention on a device, and where one does not fit
"""
