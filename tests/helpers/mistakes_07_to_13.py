"""What misconceptions behind the options of exams 07 to 13 compute.

Of each item: n are all numbers of its text, in SI units; each misconception with what it computes from them.
"""

from collections.abc import Mapping
from math import log, sqrt

from mistaken import Formula, crossing

MISTAKES: Mapping[tuple[str, str], Mapping[str, Formula]] = {
    ("07", "bytes per second"): {
        "I/O is bandwidth.": lambda n: n[2],
        "GPUs get as many samples as they can train.": lambda n: n[0] * n[1],
        "A file is one operation.": lambda n: n[3] * 1e3 * n[1],
    },
    ("07", "more readers"): {
        "More readers always help.": lambda n: n[2] * n[3] / n[1],
        "The rate grows with the root of the readers.": lambda n: n[2] * sqrt(n[3] / n[1]),
        "The rate falls in proportion to the readers.": lambda n: n[2] * n[1] / n[3],
    },
    ("07", "more nodes"): {
        "More nodes always help.": lambda n: n[2] / 2,
        "Twice the nodes halve the share of each, and their speed.": lambda n: 2 * n[2],
        "Half of the time is computation.": lambda n: n[2] / 2 + n[2] / 2 / 2,
    },
    ("07", "lru"): {
        "A cache of half the data hits half.": lambda n: n[0] * n[1] / 100,
        "LRU also hits half of what does not fit.": (
            lambda n: n[0] * (n[1] + (100 - n[1]) / 2) / 100
        ),
        "The share that fits is in the cache for only that share of the time.": lambda n: (
            n[0] * (n[1] / 100) ** 2
        ),
    },
    ("07", "best policy"): {
        "A smarter cache helps random access more.": lambda n: n[0] * (1 - (1 - n[1] / 100) ** 2),
        "LRU is near the best for any access.": (
            lambda n: n[0] * (n[1] / 100 + (1 - n[1] / 100) * log(1 - n[1] / 100))
        ),
    },
    ("07", "remote reads"): {
        "Reading from other nodes must be slow.": (
            lambda n: 100 / (1 + (1 - 1 / n[0]) * n[1] / n[2])
        ),
        "All samples come from other nodes.": lambda n: 100 * n[2] / n[1],
        "Only the samples that a node holds itself are fast.": lambda n: 100 / n[0],
    },
    ("07", "compression"): {
        "Compression always helps.": lambda n: n[3] * n[2],
        "The rate of decompression counts compressed bytes.": lambda n: n[5] * n[6] / (n[1] / n[3]),
        "Compression saves room, not time.": lambda n: n[2],
    },
    ("07", "size of a file"): {
        "A file is one operation.": lambda n: n[1] / (n[0] * 1e3),
        "Three operations divide the file size by three.": lambda n: n[1] / (n[0] * 1e3) / 3,
        "Each of three operations waits for the other two.": lambda n: n[1] / (n[0] * 1e3 / 3 / 3),
    },
    ("08", "activations"): {
        "Activations are small.": lambda n: n[3],
        "Attention stores nothing of its own.": lambda n: n[0] * n[5] * 34 * n[6] * n[1],
        "Only the activations of one layer are stored.": (
            lambda n: n[5] * (34 * n[6] * n[1] + 5 * n[2] * n[6] ** 2)
        ),
    },
    ("08", "whole state"): {
        "A model of 3 GB needs 3 GB.": lambda n: n[0],
        "Training adds only a gradient for each weight.": lambda n: 2 * n[0],
        "Adam's moments have 16 bits, like the weights.": lambda n: n[0] / 2 * (2 + 2 + 4 + 2 + 2),
    },
    ("08", "adapters"): {
        "Frozen layers store no activations.": lambda n: 2e9 * n[0],
        "Frozen weights change nothing about activations.": lambda n: 2e9 * n[0] + n[1],
        "Frozen weights still have gradients and moments.": (
            lambda n: 16e9 * n[0] + n[1] * (1 - n[2] / 100)
        ),
    },
    ("08", "zero 3"): {
        "ZeRO costs nothing.": lambda n: n[1],
        "Weights are gathered once per step.": lambda n: n[1] * 3 / 2,
        "Each microbatch allreduces once.": lambda n: n[0] * n[1],
    },
    ("08", "recomputation on a slow network"): {
        "Recomputation costs a third.": lambda n: 100 * n[0] / (n[0] + n[1]),
        "Forward is half of the computation.": lambda n: 50,
        "All that is computed twice takes twice the time.": lambda n: 100 * n[0] / n[3],
    },
    ("08", "offload hidden"): {
        "The whole step can hide the transfers.": lambda n: n[1] / (3 * n[0]),
        "The transfer back, in the longer pass, decides.": lambda n: n[1] / (2 * n[0]),
        "Both directions have to fit into forward.": lambda n: 2 * n[1] / n[0],
    },
    ("08", "larger batch"): {
        "A larger batch needs a faster link.": lambda n: 2 * n[0],
        "A longer step hides more.": lambda n: n[0] / 2,
        "Bytes grow faster than time.": lambda n: n[0] * 2**1.5 / 2,
    },
    ("08", "too slow"): {
        "Out of core is hopelessly slow.": lambda n: 1 + 2 * n[2] / 100 * n[0] / n[1],
        "The step slows down by the same factor as the link.": lambda n: n[0] / n[1],
        "Whatever is prefetched is hidden, however slow the link is.": lambda n: 1,
    },
    ("09", "which interval"): {
        "Save once for each expected failure.": lambda n: n[1] * 3600,
        "Failures are rare, so ignore them.": lambda n: 2 * n[1] * 3600,
    },
    ("09", "as often as you can"): {
        "A checkpoint is saved once per hour.": lambda n: 100 * n[0] / 3600,
        "The share is relative to the training between two checkpoints.": lambda n: (
            100 * n[0] / (60 * n[1])
        ),
        "Each checkpoint is also read back.": lambda n: 100 * 2 * n[0] / (2 * n[0] + 60 * n[1]),
    },
    ("09", "stall"): {
        "A checkpoint stops training for as long as it takes to write.": (
            lambda n: n[0] * 1e9 * n[1] / n[2] / n[5]
        ),
        "The eight GPUs of a node copy one after another.": (
            lambda n: n[0] * 1e9 * n[1] / n[2] / n[4]
        ),
        "Only the weights in 16 bits are copied.": lambda n: n[0] * 1e9 * 2 / n[2] / n[3] / n[4],
    },
    ("09", "asynchronous loss"): {
        "Then asynchronous saving removes the loss.": lambda n: n[3],
        "Writing costs the same, no matter who waits.": lambda n: n[2],
        "With the state in memory, there are no restarts.": lambda n: n[2] - n[3],
    },
    ("09", "mtbf of a machine"): {
        "Failures add like noise.": lambda n: n[1] / sqrt(n[2]),
        "Each of the 8 GPUs of a node fails as often as the node.": lambda n: n[1] / (n[0] * n[2]),
        "The mean is the time by which half of them have failed.": lambda n: log(2) * n[1] / n[2],
    },
    ("09", "off the optimum"): {
        "You must hit the optimum.": lambda n: 2 * n[0],
        "The loss grows with the square of the interval.": lambda n: n[0] * 2**2,
        "Half as many checkpoints lose half as much.": lambda n: n[0] / 2,
    },
    ("09", "young"): {
        "All nodes fail as often as one.": lambda n: sqrt(2 * n[2] * n[1]),
        "The interval is the root of cost times MTBF.": lambda n: sqrt(n[2] * n[1] / n[0]),
        "Save halfway between two failures.": lambda n: n[1] / n[0] / 2,
    },
    ("09", "bytes of a version"): {
        "A version is a copy of everything.": lambda n: n[0] * 4e3,
        "The versions share the storage equally.": lambda n: n[0] * 4e3 / n[1],
        "The layer is written again for each version.": lambda n: 4 * (n[2] + 1) * n[3] * n[1],
    },
    ("10", "half the gpus"): {
        "Half the GPUs halve the energy.": lambda n: n[1] / 2,
        "Energy grows with the time.": lambda n: n[1] * n[4],
        "Energy falls with the root of the GPUs.": lambda n: n[1] / sqrt(2),
    },
    ("10", "lowest limit"): {
        "A lower limit always saves.": lambda n: 100 * (1 - (n[2] + n[1]) / (n[0] + n[1])),
        "Only GPUs draw power.": lambda n: 100 * (1 - n[2] * (1 + n[3] / 100) / n[0]),
        "Energy grows with the time.": lambda n: n[3],
    },
    ("10", "more replicas"): {
        "The knee is the best run.": lambda n: crossing(lambda p: p - n[0] / n[1]),
        "The best run is where both parts take equally long.": (
            lambda n: crossing(lambda p: n[1] + n[2] * p - n[0] / p)
        ),
    },
    ("10", "limit and clock"): {
        "A tenth less power is a tenth less speed.": lambda n: 100 * (n[0] / n[2] - 1),
        "A tenth less power is a tenth more time.": lambda n: 100 * (1 - n[2] / n[0]),
        "All power falls with the fourth power of the clock.": (
            lambda n: 100 * ((n[0] / n[2]) ** 0.25 - 1)
        ),
    },
    ("10", "free joules"): {
        "All idle time is energy that can be saved.": lambda n: n[0],
        "All of the power falls with the clock.": (
            lambda n: n[1] * (1 - (n[2] / 100) ** 4 * 100 / n[2])
        ),
        "A slowed pass takes as long as before.": lambda n: n[1] * 0.7 * (1 - (n[2] / 100) ** 4),
    },
    ("10", "more compute"): {
        "All of the compute goes into weights.": lambda n: n[2] * n[3],
        "Weights grow with the power 0.73 of compute (Kaplan et al. 2020).": (
            lambda n: n[2] * n[3] ** 0.73
        ),
        "All of the compute goes into tokens.": lambda n: n[2],
    },
    ("10", "served tokens"): {
        "A served token costs as much as a trained one.": lambda n: 100 * n[1] / (n[0] + n[1]),
        "The share is serving over training.": lambda n: 100 * n[3] * n[1] / (n[2] * n[0]),
        "Serving takes two of eight FLOP, however many tokens there are.": (
            lambda n: 100 * n[3] / (n[2] + n[3])
        ),
    },
    ("10", "power swing"): {
        "A GPU that waits is idle.": lambda n: n[0] * (n[1] - n[2]) / 1e6,
        "All power falls when all GPUs wait.": lambda n: n[0] * (n[1] + n[4]) / 1e6,
        "The power falls by what a polling GPU draws.": (
            lambda n: n[0] * (n[2] + n[3] / 100 * (n[1] - n[2])) / 1e6
        ),
    },
    ("11", "ideal network"): {
        "Communication time is network time.": lambda n: 100 - n[1] * n[2] * n[3] / 1e4,
        "Half of the time in MPI is on the wire.": lambda n: (100 - n[1] * n[2] * n[3] / 1e4) / 2,
        "All waiting for messages is due to the network.": lambda n: 100 - n[2] * n[3] / 100,
    },
    ("11", "faster network"): {
        "A faster network removes waits.": lambda n: n[1] * n[2] / n[3],
        "Without the network's delay nobody is late.": lambda n: n[1] / (1 + n[0] / 100),
        "Half of any run is communication.": lambda n: n[1] * (1 / 2 + 1 / 2 * n[2] / n[3]),
    },
    ("11", "sends late"): {
        "Balance the average and waits vanish.": lambda n: n[0],
        "Half of a delay is hidden behind computing.": (
            lambda n: n[0] + (n[0] / n[3] * 100 - n[0]) / 2
        ),
        "The lost time is a share of the computing time.": lambda n: (
            n[0] * (1 + (100 - n[3]) / 100)
        ),
    },
    ("11", "each in turn"): {
        "Balance the average and waits vanish.": lambda n: n[3],
        "Being late in turn halves the wait.": lambda n: n[3] + (n[2] - n[3]) / 2,
        "Four ranks share the delay.": lambda n: n[3] * (1 + n[1] / 100 / 4),
    },
    ("11", "load balance"): {
        "Load balance compares the least with the most.": lambda n: 100 * n[1] / n[2],
        "Load balance is the busiest rank's share.": lambda n: 100 * n[2] / (n[0] * n[1] + n[2]),
        "Only one rank loses time.": lambda n: 100 * (1 - (n[2] - n[1]) / n[2] / (n[0] + 1)),
    },
    ("11", "product"): {
        "The smallest factor is the efficiency.": lambda n: min(n),
        "Factors are averaged.": lambda n: sum(n) / 3,
        "Losses are added.": lambda n: 100 - sum(100 - each for each in n),
    },
    ("12", "fsdp alone"): {
        "FSDP alone is enough if it fits.": lambda n: n[3],
        "Only bytes count, since messages are large.": lambda n: 3 * 2e9 * n[0] / 8 / n[7],
        "FSDP gathers each weight matrix separately.": (
            lambda n: 3 * (4 * n[1] * (n[4] - 1) * n[8] + 2e9 * n[0] / 8 / n[7])
        ),
    },
    ("12", "zero bubble"): {
        "A zero-bubble pipeline has no bubble.": lambda n: n[1] * sum(n[2:5]),
        "The order of passes does not change the bubble.": (
            lambda n: (n[1] + n[0] - 1) * sum(n[2:5])
        ),
        "All three passes take equally long, so a third of the bubble is left.": (
            lambda n: (n[1] + (n[0] - 1) / 3) * sum(n[2:5])
        ),
    },
    ("12", "half the stages"): {
        "The share of the bubble is proportional to the stages.": lambda n: n[2] * n[3] / n[0],
        "Only the number of microbatches determines the bubble.": lambda n: n[2],
        "The bubble over the work is its share of the step.": lambda n: 100 * (n[3] - 1) / n[1],
    },
    ("12", "far ring"): {
        "Overlap hides a ring, whatever its length.": lambda n: n[1] / 16,
        "Computing and sending take turns.": lambda n: n[1] / 16 + n[2] / 4 * n[3] / n[5],
        "All 8 GPUs of a node send through its NIC at once.": lambda n: 8 * n[2] / 4 * n[3] / n[5],
    },
    ("12", "fp8"): {
        "fp8 halves the step.": lambda n: 50,
        "Arithmetic in fp8 is free.": lambda n: n[0],
        "The bubble does not depend on the arithmetic.": lambda n: n[0] * n[1] / 100 / 2,
    },
    ("12", "four bits"): {
        "Half the bits, twice the speed.": lambda n: 2,
        "All matmuls of a step move to 4 bits.": lambda n: 100 / (100 - n[0] / 2 + n[2]),
        "Casts and transforms are free.": lambda n: 100 / (100 - n[0] * n[1] / 100 / 2),
    },
    ("12", "recomputed"): {
        "MFU counts all arithmetic.": lambda n: n[2],
        "A GPU that computes more is used better.": lambda n: n[2] * 4 / 3,
        "Recomputation doubles the step.": lambda n: n[2] / 2,
    },
    ("13", "one user"): {
        "Peak FLOP/s predicts time.": lambda n: n[-3] / n[-1],
        "The gain counts twice, in prefill and in decode.": lambda n: n[-3] / n[-1] ** 2,
        "Faster arithmetic waits longer for memory.": lambda n: n[-3] * n[-1],
    },
    ("13", "which phase"): {
        "The prompt is the long part of an answer.": lambda n: n[-2],
        "The prompt is processed once more for the answer.": lambda n: n[-2] + n[-1] * n[-3],
        "The tokens of a prompt are decoded one by one, too.": lambda n: (n[-4] + n[-1]) * n[-3],
    },
    ("13", "a batch"): {
        "A larger batch makes every token slower in proportion.": lambda n: n[2],
        "Cost grows with the root of the batch.": lambda n: sqrt(n[2]),
        "Half of a step reads weights, and half the caches.": lambda n: 1 / 2 + n[2] / 2,
    },
    ("13", "what fills it"): {
        "Weights and caches take turns in memory.": lambda n: (n[-2] + n[-5]) / n[-1] / n[-3],
        "Keys are stored, values are not.": lambda n: n[-2] / (n[-1] / 2) / n[-3],
    },
    ("13", "twice the ranks"): {
        "Twice the GPUs hold twice the sequences.": lambda n: 2 * n[-4],
        "Each GPU has the caches of all sequences.": lambda n: n[-4],
        "Memory grows with the square of the ranks.": lambda n: n[-4] * 2**2,
    },
    ("13", "more requests"): {
        "Time grows with the requests.": lambda n: n[2] / n[1],
        "A busy service is a good service.": lambda n: 1,
        "Time grows with the square of the requests.": lambda n: (n[2] / n[1]) ** 2,
    },
    ("13", "twice the split"): {
        "Twice the GPUs halve the time of a token.": lambda n: n[1] / 2,
        "Each rank reads half, and computes half.": lambda n: n[1] / 2 / 2,
        "Ranks divide launches, and all read the weights.": lambda n: n[1] * (1 - n[2] / 100 / 2),
    },
    ("13", "windows"): {
        "Windowed layers need no cache.": lambda n: 100 / n[0],
        "All layers store only a window.": lambda n: 100 * n[1] / n[2],
        "One full layer in a few means that few layers have a window.": (
            lambda n: 100 * (1 - 1 / n[0])
        ),
    },
    ("13", "sparse"): {
        "Choosing tokens reads nothing.": lambda n: n[4] / n[1],
        "The chosen tokens are read for nothing.": lambda n: n[0] / n[2],
        "An indexer reads only what it chooses.": lambda n: n[0] * n[4] / (n[0] + n[2]) / n[1],
    },
}
