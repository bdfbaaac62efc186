"""What misconceptions behind the options of exams 01 to 06 compute.

Of each item: n are all numbers of its text, in SI units; each misconception with what it computes from them.
"""

from collections.abc import Mapping
from math import log2, sqrt

from mistaken import Formula, crossing

MISTAKES: Mapping[tuple[str, str], Mapping[str, Formula]] = {
    ("01", "one sample"): {
        "Inputs and outputs move as many bytes as the weights.": (
            lambda n: n[4] + 6 * n[0] ** 2 / n[3]
        ),
        "A multiplication and an addition each read the weight.": (
            lambda n: n[4] + 4 * n[0] ** 2 / n[3]
        ),
        "Memory bandwidth is counted in bits.": lambda n: n[4] + 2 * n[0] ** 2 / (n[3] / 8),
    },
    ("01", "faster arithmetic"): {
        "Faster arithmetic makes every step faster.": lambda n: n[4],
        "A layer gains as little with thousands of samples as with one.": lambda n: 1,
        "Half of any layer's time is arithmetic.": lambda n: 1 / (1 / 2 + 1 / 2 / n[4]),
    },
    ("01", "newer gpu"): {
        "Peak FLOP/s predicts time.": lambda n: n[2],
        "Gains are averaged by the time that they apply to.": (
            lambda n: (n[0] * n[2] + n[1] * n[3] + 100 - n[0] - n[1]) / 100
        ),
        "Only arithmetic gains from a newer GPU.": lambda n: 100 / (100 - n[0] + n[0] / n[2]),
    },
    ("01", "twice the batch"): {
        "Twice the batch takes twice as long.": lambda n: 2,
        "The part that does not grow is the part that doubles.": lambda n: (
            2 * n[1] / 100 + 1 - n[1] / 100
        ),
        "A step that is partly launch-bound does not grow at all.": lambda n: 1,
    },
    ("01", "ridge point"): {
        "A multiplication and an addition are one FLOP.": lambda n: n[0] / 2 / n[1],
        "Intensity is counted per 16-bit number.": lambda n: n[0] / (n[1] / 2),
        "Bandwidth is counted in bits.": lambda n: n[0] / (8 * n[1]),
    },
    ("01", "attainable"): {
        "Peak FLOP/s predicts time.": lambda n: n[2],
        "Memory and arithmetic take turns.": lambda n: 1 / (1 / n[2] + 1 / n[0] / n[1]),
        "Reads and writes each have half of the bandwidth.": lambda n: n[0] * n[1] / 2,
    },
    ("01", "longer message"): {
        "The time of a message is proportional to its bytes.": lambda n: n[2] / n[3],
        "Time grows with the root of the size.": lambda n: sqrt(n[2] / n[3]),
        "Latency is all that a message pays.": lambda n: 1,
    },
    ("01", "turning point"): {
        "A 16-bit number takes one byte.": (
            lambda n: crossing(lambda b: 2 * b * n[0] / (n[0] + 2 * b) - n[2])
        ),
        "A multiplication and an addition are one FLOP.": (
            lambda n: crossing(lambda b: b * n[0] / (n[0] + 2 * b) / 2 - n[2])
        ),
        "Only a batch as large as the layer fills a GPU.": lambda n: n[0],
    },
    ("01", "fused layers"): {
        "A step gains what its fused kernels gain.": lambda n: n[1],
        "Fused layers cost nothing.": lambda n: 100 / (100 - n[0]),
        "Fusion removes no FLOP, so it removes no time.": lambda n: 1,
    },
    ("02", "twice the gpus"): {
        "Twice the GPUs, half the time.": lambda n: 50,
        "Twice the GPUs send twice as much each.": (
            lambda n: 100 * (n[6] + 2 * n[5]) / (n[3] + n[4])
        ),
        "Half of a step is communication.": lambda n: 100 * (1 / 2 + 1 / 2 / 2),
    },
    ("02", "exposed"): {
        "The time in which the last bucket fills is what is exposed.": lambda n: n[0] / n[1],
        "Backward and allreduce cannot overlap, since one needs the other.": lambda n: n[1] * n[2],
        "Half of the gradients are ready too late.": lambda n: n[1] * n[2] / 2,
    },
    ("02", "small buckets"): {
        "The same bytes wait for the same latency.": lambda n: n[3],
        "Smaller buckets are always better because they start earlier.": (
            lambda n: n[3] * n[1] / n[4]
        ),
        "Latency grows with the root of the number of buckets.": lambda n: n[3] * sqrt(n[4] / n[1]),
    },
    ("02", "jitter"): {
        "Three percent of jitter costs three percent.": lambda n: n[1],
        "The deviations of all GPUs add up.": lambda n: sqrt(n[0] * n[1] ** 2),
        "The slowest is two standard deviations above the mean.": lambda n: 2 * n[1],
    },
    ("02", "one slow gpu"): {
        "The mean decides.": lambda n: 100 * ((n[0] + n[1] / 100) / n[0] - 1),
        "The others take over half of its delay.": (
            lambda n: 100 * (1 - 1 / n[0]) * (1 - 1 / (1 + n[1] / 200))
        ),
        "Only one GPU waits for the slow one.": (lambda n: 100 * (1 - 1 / (1 + n[1] / 100)) / n[0]),
    },
    ("02", "staleness"): {
        "All gradients of a run are equally old.": lambda n: n[0] - 1,
        "A slow worker misses fewer updates.": lambda n: (n[0] - 1) / n[1],
        "Half of the others push before.": lambda n: n[1] * (n[0] - 1) / 2,
    },
    ("02", "stale rate"): {
        "The noise of the workers averages out, so rates grow with its root.": (
            lambda n: n[1] * sqrt(n[2])
        ),
        "Workers add up, and so do their rates.": lambda n: n[1] * n[2],
        "Age does not matter, since the direction is right on average.": lambda n: n[1],
    },
    ("02", "local steps"): {
        "Local steps change how well a network learns, not what it waits for.": (
            lambda n: 100 * n[1] / (n[0] + n[1])
        ),
        "With H local steps, the share of time spent waiting falls to 1/H.": (
            lambda n: 100 * n[1] / (n[0] + n[1]) / n[2]
        ),
        "A share is relative to the work alone.": lambda n: 100 * n[1] / (n[2] * n[0]),
    },
    ("02", "efficiency"): {
        "Communication that overlaps costs as much as communication that does not.": (
            lambda n: 100 * n[0] / (n[0] + n[1] + n[3])
        ),
        "Overlap hides all communication.": lambda n: 100 * n[0] / (n[0] + n[3]),
        "Waiting for the slowest is not a loss.": (
            lambda n: 100 * n[0] / (n[0] + n[1] * (1 - n[2] / 100))
        ),
    },
    ("02", "ranks on a socket"): {
        "A core of its own is all that a rank needs.": lambda n: n[0] + n[1],
        "One core uses all of a socket's bandwidth.": lambda n: n[0] + n[3] * n[1],
        "A shared socket slows down all layers alike.": (
            lambda n: n[3] * n[2] / 100 * (n[0] + n[1])
        ),
    },
    ("03", "short message"): {
        "Ring is the best allreduce.": lambda n: 2 * (n[0] - 1) * n[2],
        "The fewest bytes win at any size.": lambda n: 2 * log2(n[0]) * n[2],
        "Ranks add their numbers one after another.": lambda n: (n[0] - 1) * n[2],
    },
    ("03", "rounds of a ring"): {
        "The all-gather comes for free.": lambda n: n[0] - 1,
        "Sending and adding take separate rounds.": lambda n: 2 * (n[0] - 1) + n[0] - 1,
        "A rank sends in one round and receives in the next.": lambda n: 2 * 2 * (n[0] - 1),
    },
    ("03", "twice the bandwidth"): {
        "Bandwidth is what matters.": lambda n: 50,
        "Time falls with the root of the bandwidth.": lambda n: 100 * (1 - 1 / sqrt(2)),
        "Latency and bandwidth take equal shares of the time.": lambda n: (
            100 * (1 - (1 / 2 + 1 / 2 / 2))
        ),
    },
    ("03", "latency alone"): {
        "A ring takes twice as long as a tree.": lambda n: 2 * log2(n[0]) * n[1],
        "The all-gather comes for free.": lambda n: (n[0] - 1 - log2(n[0])) * n[1],
        "A ring takes lg p times as many rounds.": (
            lambda n: (log2(n[0]) - 1) * 2 * log2(n[0]) * n[1]
        ),
    },
    ("03", "long message down a tree"): {
        "A tree is fast because it has lg p levels.": lambda n: n[3],
        "Only the broadcast sends whole buffers; the reduction sends halves.": (
            lambda n: (log2(n[0]) + 1 - 1 / n[0]) * n[1] / 12.5e9
        ),
        "Rabenseifner sends the buffer only once in all.": lambda n: 2 * log2(n[0]) * n[3],
    },
    ("03", "shared NIC"): {
        "Same partners, same cost.": lambda n: n[3],
        "One device of each node sends for all.": lambda n: n[3] / n[1],
        "Rabenseifner sends half the bytes of recursive doubling.": lambda n: n[3] / 2,
    },
    ("03", "fair shares"): {
        "A NIC gives each group its full rate.": lambda n: n[1] / n[2],
        "Half the rate is left to the end.": lambda n: n[1] / (n[2] / 2),
        "Two groups at once double what a NIC carries.": lambda n: (n[0] + n[1]) / (2 * n[2]),
    },
    ("03", "few elements"): {
        "A ring has no more rounds than elements.": lambda n: 2 * (n[1] - 1),
        "The all-gather sends nothing if blocks are empty.": lambda n: n[0] - 1,
        "The all-gather circulates only blocks that are not empty.": lambda n: n[0] - 1 + n[1] - 1,
    },
    ("03", "crossover"): {
        "The crossover is latency times bandwidth.": lambda n: n[1] * n[2] * 1e9 / 8,
        "Each of the lg p rounds adds latency times bandwidth.": (
            lambda n: log2(n[0]) * n[1] * n[2] * 1e9 / 8
        ),
        "Bits and bytes are the same.": lambda n: (
            n[1] * n[2] * 1e9 / (1 - 2 * (1 - 1 / n[0]) / log2(n[0]))
        ),
    },
    ("03", "two ranks"): {
        "Two ranks can tell me about a cluster.": lambda n: n[1],
        "Only the ring gets longer with the ranks.": (
            lambda n: 2 * (n[5] - 1) * (n[3] + n[2] / n[5] / 1.25e9) / (n[3] + n[2] / 1.25e9)
        ),
        "The all-gather comes for free.": (
            lambda n: (
                (n[5] - 1) * (n[3] + n[2] / n[5] / 1.25e9) / (n[3] + n[2] / 1.25e9) / log2(n[5])
            )
        ),
    },
    ("04", "stages"): {
        "A pipeline with P stages is P times faster.": lambda n: n[0],
        "Stages compute one after another.": lambda n: 1,
        "The bubble does not depend on the number of microbatches.": (
            lambda n: n[0] / (1 + (n[0] - 1) / n[0])
        ),
    },
    ("04", "bubble"): {
        "The bubble over the work is its share of the step.": lambda n: 100 * (n[0] - 1) / n[1],
        "Filling and draining are two bubbles.": (
            lambda n: 100 * 2 * (n[0] - 1) / (n[1] + 2 * (n[0] - 1))
        ),
        "P microbatches are lost to fill P stages.": lambda n: 100 * n[0] / (n[1] + n[0]),
    },
    ("04", "across nodes"): {
        "Model parallelism is for speed.": lambda n: n[4],
        "The gain is the root of the number of GPUs.": lambda n: sqrt(n[4]),
        "Messages take as long between nodes as in one.": (
            lambda n: (n[1] + n[2]) / (n[1] / n[4] + n[2])
        ),
    },
    ("04", "what a gpu sends"): {
        "With more GPUs, each one sends less.": lambda n: n[1] * n[0] / n[2],
        "Each GPU sends to every other GPU.": lambda n: n[1] * (n[2] - 1) / (n[0] - 1),
        "The all-gather comes for free.": lambda n: n[1] / (1 - 1 / n[0]) * (1 - 1 / n[2]) / 2,
    },
    ("04", "more rows"): {
        "A bigger batch makes messages matter less.": lambda n: n[3] / 2,
        "Only messages grow with the rows.": lambda n: 100 * 2 * n[3] / (2 * n[3] + 100 - n[3]),
    },
    ("04", "1f1b"): {
        "1F1B has a smaller bubble than GPipe.": lambda n: n[2] / 2,
        "1F1B fills its bubble with weight gradients.": lambda n: n[2] / 3,
        "With 1F1B, a bubble is a share of the step.": (
            lambda n: 100 * (n[0] - 1) / (n[1] + n[0] - 1)
        ),
    },
    ("04", "stored microbatches"): {
        "Each stage stores all microbatches that have entered the pipeline.": lambda n: n[0] * n[1],
        "Each stage stores as many as there are stages.": lambda n: n[0] ** 2,
        "One forward, one backward: each stage stores one.": lambda n: n[0],
    },
    ("04", "equal layers"): {
        "Equal stages have equal numbers of layers": (
            lambda n: (n[4] + 3) * (sum(n[:3]) / 1e3 + n[3]) / 4
        ),
        "Stages compute one after another.": lambda n: n[4] * (sum(n[:3]) / 1e3 + n[3]),
        "The other stages are hidden behind the slowest.": (
            lambda n: n[4] * max(*n[:3], 1e3 * n[3]) / 1e3
        ),
    },
    ("05", "finer"): {
        "Model parallelism is never for speed.": lambda n: 1,
        "Half of a step is messages, which take as long as before.": lambda n: 1 / 2 + 1 / 2 / 2,
        "Twice the messages, twice the time.": lambda n: 2,
    },
    ("05", "more replicas"): {
        "With more replicas, each GPU stores less.": lambda n: n[3] / 2,
        "Each replica adds its gradients.": lambda n: 2 * n[3],
        "Half of the memory is weights, which replicas share.": lambda n: n[3] / 2 + n[3] / 2 / 2,
    },
    ("05", "halo"): {
        "A halo shrinks with the slab.": lambda n: n[3] * n[2] / n[4],
        "Twice the slabs have twice the surfaces, and each rank receives all of them.": (
            lambda n: n[3] * n[4] / n[2]
        ),
        "A surface shrinks with the square of the thickness.": lambda n: n[3] * (n[2] / n[4]) ** 2,
    },
    ("05", "one domain"): {
        "An exchange speeds up by the ratio of the links.": lambda n: n[9] / n[7],
        "In a rack, one copy serves all GPUs.": lambda n: n[6] / n[7] / (1 / n[9]),
        "Nodes send a copy to each GPU, a rack sends one per node.": (
            lambda n: n[8] / n[7] / (n[6] / n[9])
        ),
    },
    ("05", "larger microbatch"): {
        "A larger microbatch computes better, so it is better.": lambda n: 1 / (1 + n[4] / 100),
        "A pass takes as long for any size of microbatch.": (
            lambda n: (n[1] / n[2] + n[0] - 1) / (n[1] + n[0] - 1)
        ),
        "A larger microbatch makes a step longer in proportion.": lambda n: n[2],
    },
    ("06", "linear scaling"): {
        "Momentum does not change the stable rate.": lambda n: 2 / (n[1] * n[3]) * n[0],
        "Momentum multiplies each step, so the rate must be divided by the same factor.": (
            lambda n: 2 / (n[1] / (1 - n[2]) * n[3]) * n[0]
        ),
    },
    ("06", "what closes the gap"): {
        "LARS is what saved it.": lambda n: 100 * (n[2] - n[0]) / (n[3] - n[0]),
        "Half of what LARS gains comes from the rate.": lambda n: (
            100 * (n[2] - n[0]) / 2 / (n[3] - n[0])
        ),
        "The part of the gap that remains is what the rate was worth.": (
            lambda n: 100 * (n[3] - n[1]) / (n[3] - n[0])
        ),
    },
    ("06", "steps"): {
        "A larger batch gives a better gradient, so steps fall in proportion.": (
            lambda n: n[2] * n[1] / n[3]
        ),
        "The number of steps does not depend on the batch.": lambda n: n[2],
        "Steps fall with the root of the batch without end.": lambda n: n[2] * sqrt(n[1] / n[3]),
    },
    ("06", "sum for mean"): {
        "If the replicas agree, the gradients are right.": lambda n: n[1] * n[2],
        "Gradients of different samples add like noise.": lambda n: sqrt(n[0]) * n[1] * n[2],
        "Each rank adds the gradients of the others.": lambda n: (n[0] - 1) * n[1] * n[2],
    },
    ("06", "first step"): {
        "The step is the local rate times the rate.": lambda n: n[2] * n[3] * n[0] / n[1],
        "Trust scales the gradient.": lambda n: n[2] * n[3] * n[1],
        "The local rate is trust times the weights.": lambda n: n[2] * n[3] * n[0] * n[1],
    },
}
