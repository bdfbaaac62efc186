"""Versions of an exam: numbers of their own, none of them an answer on the page, and right by another formula."""

import re
from math import log, log2, sqrt
from statistics import NormalDist

import numpy as np
import pytest
from exam_numbers import given

from lib_dlhpc.spec.experiment import read_model
from lib_dlhpc.teaching.numbers import on_page, printed, value
from lib_dlhpc.teaching.questions import exam

DRAWN = [
    *("01_one_step", "02_data_parallel", "03_allreduce", "04_model_parallel"),
    *("05_hybrid_parallel", "06_large_batch_lars", "07_io_bottlenecks"),
    *("08_memory_and_out_of_core", "09_state_and_failures", "10_energy_and_planning"),
    *("11_traces_and_waits", "12_train_a_language_model", "13_serving"),
]
SEEDS = range(6)


@pytest.mark.parametrize("name", DRAWN)
def test_no_number_that_is_right_stands_on_the_page(questions, repository, name):
    taken = on_page(repository / "modules" / f"{name}.ipynb")
    for seed in SEEDS:
        for question in questions(name, seed):
            if value(question.right) is not None:
                assert not printed(question.right) & taken, (seed, question.name)


@pytest.mark.parametrize("name", DRAWN)
def test_a_right_number_differs_between_versions(questions, name):
    versions = [questions(name, seed) for seed in SEEDS]
    for items in zip(*versions, strict=True):
        if value(items[0].right) is not None:
            assert len({item.right for item in items}) >= 3, items[0].name
            assert items[0].right != items[1].right, items[0].name


def test_a_version_is_the_same_each_time(questions, repository):
    path = repository / "instructor_notes" / "exam" / "13_serving.py"
    assert exam(path, 4) == questions("13_serving", 4)


def is_right(questions, name, item, formula, *pieces, within=0.02):
    """Assert that in each version an item's answer follows from what its text gives."""
    for seed in SEEDS:
        (question,) = (each for each in questions(name, seed) if each.name == item)
        assert value(question.right) == pytest.approx(
            formula(*given(question.text, *pieces)), rel=within
        ), (seed, item)


def test_01_one_step(questions):
    name = "01_one_step"
    is_right(
        questions,
        name,
        "one sample",
        lambda width, rate, launch: launch + 2 * width**2 / rate,
        "layer has {} numbers",
        "and {} of memory",
        "launch takes {}.",
    )
    times = "takes {}, and", "would take {} by"
    is_right(
        questions, name, "faster arithmetic", lambda arithmetic, memory: arithmetic / memory, *times
    )
    is_right(questions, name, "twice the batch", lambda same: 2 - same / 100, "take {}% of a step")
    parts = "arithmetic take {}%", "for memory {}%", "has {} times the p", "FLOP/s and {} times"

    def newer(a, m, peak, rate):
        return 1 / (a / 100 / peak + m / 100 / rate + 1 - (a + m) / 100)

    is_right(questions, name, "newer gpu", newer, *parts)
    is_right(questions, name, "turning point", lambda n, r: r * n / (n - 2 * r), "{} n", "at {} F")
    roof = "performs {} F", "gives {},"
    is_right(questions, name, "attainable", lambda intensity, rate: intensity * rate, *roof)
    is_right(
        questions, name, "ridge point", lambda peak, rate: peak / rate, "of {} and", "reads {}."
    )
    line = "latency of {} µs", "a rate of {}. One", "One of {} takes"

    def times_as_long(us, rate, size):
        return (us / 1e6 + size / rate / 1e9) / (us / 1e6 + 1024 / rate / 1e9)

    is_right(
        questions, name, "longer message", lambda us, r, n: times_as_long(us, r / 1e9, n), *line
    )


def test_02_data_parallel(questions):
    name = "02_data_parallel"
    times = (
        "computes for {}, and",
        "allreduce takes {};",
        "twice the GPUs {}.",
        "a GPU computes for {}. On",
    )
    is_right(
        questions,
        name,
        "twice the gpus",
        lambda all_, ring, longer, half: 100 * (half + longer) / (all_ + ring),
        *times,
    )

    def late(backward, buckets, each):
        """Send the buckets one by one."""
        free = 0.0
        for bucket in range(1, int(buckets) + 1):
            free = max(free, bucket * backward / buckets) + each
        return (free - backward) / 1e3

    full = "takes {} ms and", "fills {} equal", "allreduce takes {} ms"
    is_right(questions, name, "exposed", late, *full, within=0.01)
    rings = "With {} buckets of up", "latency takes {} of", "in {} buckets"
    is_right(questions, name, "small buckets", lambda n, s, m: s * m / n, *rings)
    ranks = "{} GPUs whose", "vary by {}%"
    is_right(questions, name, "jitter", lambda p, sigma: sigma * largest_of(int(p)), *ranks)
    is_right(
        questions,
        name,
        "one slow gpu",
        lambda p, more: 100 * (p - 1) / p * more / (100 + more),
        "One of {} GPUs",
        "takes {}% longer",
    )
    asynchronous = "{} asynchronous", "takes {} times"
    is_right(questions, name, "staleness", lambda p, slower: slower * (p - 1), *asynchronous)

    def on_a_bowl(curvature, old):
        return bounded(old) / curvature

    loss = "of curvature {} up", "are {} updates"
    is_right(questions, name, "stale rate", on_a_bowl, *loss, within=1e-3)

    def waits(work, seconds, alone):
        """Walk through the steps between two exchanges."""
        spent = sum(work / 1e3 for _ in range(int(alone)))
        return 100 * seconds / (spent + seconds)

    sites = "a step in {} ms", "takes {} s, and", "takes {} local"
    is_right(questions, name, "local steps", waits, *sites)

    def best(batch, alone, us):
        return min(range(2, 9999), key=lambda p: alone / p + 4 * 2 * (p - 1) * us / 1e6)

    strong = "{} images on any", "compute for {}.", "buckets, with a latency of {} µs"
    is_right(questions, name, "end of strong scaling", best, *strong)
    step = "for {} ms, its", "takes {} ms, of", "which {}% are", "is {} ms behind"
    is_right(
        questions,
        name,
        "efficiency",
        lambda c, x, hidden, w: 100 * c / (c + x * (100 - hidden) / 100 + w),
        *step,
    )


def largest_of(count):
    """Return the mean of the largest of normal numbers, integrated."""
    x = np.linspace(-8, 8, 4001)
    below = np.array([NormalDist().cdf(each) for each in x]) ** count
    return float((x[1:] + x[:-1]) @ np.diff(below)) / 2


def bounded(old):
    """Return the largest rate times its workers at which x - rate x_old does not grow, by its modes."""
    low, high = 0.0, 2.0
    while high - low > 1e-6:
        rate = (low + high) / 2
        modes = np.roots([1, -1, *[0] * (int(old) - 1), rate])
        low, high = (rate, high) if abs(modes).max() < 1 else (low, rate)
    return (old + 1) * low


def test_03_allreduce(questions):
    name = "03_allreduce"
    cluster = "{} ranks", "latency of {} µs"
    is_right(questions, name, "short message", lambda p, us: log2(p) * us / 1e6, *cluster)
    is_right(questions, name, "rounds of a ring", lambda p: 2 * (p - 1), "ring of {} ranks")
    is_right(questions, name, "few elements", lambda p: 2 * (p - 1), "{} ranks")
    short = "{} ranks", "latency of {} µs"
    is_right(
        questions, name, "latency alone", lambda p, us: 2 * (p - 1 - log2(p)) * us / 1e6, *short
    )

    def both(small, large, rate):
        """Share until the shorter one ends."""
        shared = 2 * small / rate
        return shared + (large - small) / rate

    nic = "sends {} through a NIC", "the other {} through", "carries {} and"
    is_right(questions, name, "fair shares", both, *nic)

    def saved(p, size, us):
        slow, fast = (us / 1e6 + size / p / rate for rate in (50e9 / 8, 100e9 / 8))
        return 100 * (1 - fast / slow)

    ring = "on {} ranks", "buckets of {} kB", "latency of {} µs"
    is_right(
        questions, name, "twice the bandwidth", lambda p, kb, us: saved(p, 1e3 * kb, us), *ring
    )

    def overtaken(p, us, gigabits):
        return log2(p) * us / 1e6 * gigabits * 1e9 / 8 / (log2(p) - 2 * (p - 1) / p)

    is_right(questions, name, "crossover", overtaken, "{} ranks", "latency of {} µs", "{} Gb/s")
    is_right(
        questions,
        name,
        "shared NIC",
        lambda machines, size: 2 * (machines - 1) / machines * size,
        "{} nodes",
        "a buffer of {}.",
    )
    tree = "On {} ranks", "Rabenseifner takes {}."
    is_right(
        questions, name, "long message down a tree", lambda p, s: s * log2(p) * p / (p - 1), *tree
    )

    def ring_over_doubling(us, p):
        latency, wire = us / 1e6, 1000 / 1.25e9
        return 2 * (p - 1) * (latency + wire / p) / (log2(p) * (latency + wire))

    is_right(questions, name, "two ranks", ring_over_doubling, "1 kB ({} µs", "on {} ranks?")


def test_04_model_parallel(questions):
    name = "04_model_parallel"
    pipe = "{} equal stages", "{} microbatches"
    is_right(questions, name, "stages", lambda p, m: p * m / (m + p - 1), *pipe)
    is_right(questions, name, "bubble", lambda p, m: 100 * (p - 1) / (m + p - 1), *pipe)
    is_right(questions, name, "1f1b", lambda p, m: 100 * (p - 1) / m, "{} stages", pipe[1])
    is_right(questions, name, "stored microbatches", lambda p: p * (p + 1) / 2, "{} stages")

    def sent(few, bytes_, many):
        return bytes_ * (many - 1) / many / ((few - 1) / few)

    ring = "On {} GPUs each", "sends {} of", "send on {} GPUs"
    is_right(questions, name, "what a gpu sends", sent, *ring)

    def faster(compute, near, nodes, far):
        return (compute + near) / (compute / nodes + far)

    split = (
        "compute for {} ms",
        "messages take {} ms. On",
        "in {} nodes",
        "the messages take {} ms. How",
    )
    is_right(questions, name, "across nodes", faster, *split)

    def drained(*numbers):
        """Pass one microbatch after another through stages that differ."""
        *stages, microbatches = numbers
        free = [0.0] * len(stages)
        for _ in range(int(microbatches)):
            ready = 0.0
            for stage, each in enumerate(stages):
                ready = free[stage] = max(ready, free[stage]) + each
        return free[-1] / 1e3

    for seed in SEEDS:
        (question,) = (each for each in questions(name, seed) if each.name == "equal layers")
        numbers = [float(each) for each in re.findall(r"\d+", question.text)]
        taken = drained(*numbers)
        assert value(question.right) == pytest.approx(taken, rel=0.01)


def test_05_hybrid_parallel(questions):
    name = "05_hybrid_parallel"
    parts = "step takes {}, of which", "expose {}. You", "the slowest, for {}."
    is_right(questions, name, "finer", lambda step, x, own: (own + x) / step, *parts, within=0.01)
    is_right(
        questions, name, "more replicas", lambda held: held, "a GPU needs {}. You", within=0.01
    )

    def surface(edge, channels, window):
        return 2 * (window - 1) / 2 * edge**2 * channels * 2

    is_right(questions, name, "halo", surface, "Cubes of {}³", "and {} channels", "a window of {}³")
    cube = "cube of {}³", "into {} slabs"
    is_right(questions, name, "share of a halo", lambda e, slabs: 100 * 2 * slabs / e, *cube)

    def dispatch(tokens, nodes, nic, nvlink):
        size = tokens * 7168 * 2
        return (nodes * size / nic) / (8 * size / nvlink)

    rack = (
        "{} tokens of a rank",
        "in {} other nodes",
        "rank's NIC ({} GB/s)",
        "over NVLink ({} GB/s)",
    )
    is_right(questions, name, "one domain", dispatch, *rack)
    state = "{} billion", "{} B of weights", "pipeline {},"
    is_right(questions, name, "fewest messages", lambda w, each, p: each * w * 1e9 / p, *state)

    def filled(stages, sequences, microbatch, gain):
        """Pass one microbatch after another through the stages."""
        one, many = (
            passed(int(stages), int(sequences / each), each / faster)
            for each, faster in ((1, 1), (microbatch, 1 + gain / 100))
        )
        return many / one

    pipe = "{} equal stages", "batch of {} sequences", "Microbatches of {} seq", "is {}% higher"
    is_right(questions, name, "larger microbatch", filled, *pipe)


def passed(stages, microbatches, each):
    """Return when the last of the microbatches leaves the last stage."""
    free = [0.0] * stages
    for _ in range(microbatches):
        ready = 0.0
        for stage in range(stages):
            ready = free[stage] = max(ready, free[stage]) + each
    return free[-1]


def test_06_large_batch_lars(questions):
    name = "06_large_batch_lars"

    def stable(batch, rate, momentum, curvature):
        """Double, then bisect: the modes of momentum on a parabola."""
        low, high = 0.0, 1e6
        while high - low > 1:
            tried = (low + high) / 2
            step = tried / batch * rate * curvature
            modes = np.linalg.eigvals([[1 - step, -momentum], [step, momentum]])
            low, high = (tried, high) if abs(modes).max() < 1 else (low, tried)
        return low

    rule = "Batch {} trains", "rate of {} with", "momentum {}; the", "loss is {}."
    is_right(questions, name, "linear scaling", stable, *rule)
    reached = "scaling reaches {}%", "tuned again {}%", "batch had {}%"
    is_right(
        questions,
        name,
        "what closes the gap",
        lambda scaled, again, small: 100 * (again - scaled) / (small - scaled),
        *reached,
    )
    law = "critical batch of {}.", "batch {} needs", "needs {} steps", "does batch {} need"
    is_right(
        questions,
        name,
        "steps",
        lambda critical, small, few, large: few * (1 + critical / large) / (1 + critical / small),
        *law,
    )
    shared = "{} ranks", "a length of {}.", "a rate of {}?"
    is_right(questions, name, "sum for mean", lambda ranks, g, rate: ranks * g * rate, *shared)
    layer = "|w| = {}", "rate {}, trust", "trust {}, no"
    is_right(questions, name, "first step", lambda w, rate, trust: w * rate * trust, *layer)


def test_the_memory_bound_layers_are_layers_and_of_the_kinds_of_the_right_option(questions):
    (asked,) = (each for each in questions("01_one_step") if each.name == "memory-bound layers")
    named = re.match(r"They are (.*?):", asked.because)[1].split(", ")
    kinds = {layer.name: layer.kind for layer in read_model("lenet5").layers}
    assert {kinds[name] for name in named} == {"tanh", "avg_pool"}


def test_the_limit_of_packed_images_follows_from_the_text(questions):
    (packed,) = (each for each in questions("07_io_bottlenecks") if each.name == "packed")
    pieces = (
        "{} nodes",
        "nodes of {}",
        "images of {}",
        "system of {},",
        "with {} readers",
        "takes {}",
    )
    nodes, gpus, size, bandwidth, readers, seconds = given(packed.text, *pieces)
    assert nodes * gpus * readers / seconds < 0.5 * bandwidth / size
    assert packed.right == "The readers"


def test_07_io_bottlenecks(questions):
    name = "07_io_bottlenecks"
    files = "images of {} kB", "servers do {} thousand"
    is_right(questions, name, "bytes per second", lambda kb, ops: kb * ops * 1e6 / 3, *files)
    cached = "set of {} thousand", "random order. {}% of it"
    is_right(questions, name, "best policy", lambda n, s: n * s / 100, *cached, within=1e-3)

    def evicted(samples, share):
        return samples * (share / 100 + (1 - share / 100) * log(1 - share / 100))

    is_right(questions, name, "lru", evicted, *cached)

    def reached(nodes, needed, link):
        return 100 * link / (needed * (nodes - 1) / nodes)

    spread = "{} nodes", "can train {} MB", "carries {} MB/s"
    is_right(questions, name, "remote reads", reached, *spread)
    is_right(questions, name, "more nodes", lambda hours: hours, "epochs take {}", within=0.01)
    servers = "does {} thousand", "second and {}."
    is_right(questions, name, "size of a file", lambda ops, rate: 3 * rate / ops / 1e3, *servers)
    unpacked = "has {} MB", "each of {} readers", "produces {} of"
    is_right(
        questions,
        name,
        "compression",
        lambda mb, readers, rate: readers * rate / mb / 1e6,
        *unpacked,
    )


def test_08_memory_and_out_of_core(questions):
    name = "08_memory_and_out_of_core"

    def stored(layers, width, heads, batch, tokens):
        """Korthikanti et al. 2022: bytes of a block."""
        return batch * layers * tokens * width * (34 + 5 * heads * tokens / width)

    sizes = "{} blocks", "of width {}", "{} heads", "batch is {}", "samples of {} tokens"
    is_right(questions, name, "activations", stored, *sizes)
    is_right(questions, name, "whole state", lambda weights: 8 * weights, "take {} in 16 bits")
    tuned = "{} billion", "take {}, of", "which {}% are"
    is_right(questions, name, "adapters", lambda n, a, part: 2e9 * n + a * (1 - part / 100), *tuned)
    gathered = "over {} microbatches", "sends {}."
    is_right(questions, name, "zero 3", lambda m, sent: 3 * m / 2 * sent, *gathered)
    passes = "Forward takes {} ms", "backward {} ms", "and takes {} ms"

    def longer(forward, backward, exchange):
        plain = forward + max(backward, exchange)
        return 100 * ((forward + max(backward + forward, exchange)) / plain - 1)

    is_right(questions, name, "recomputation on a slow network", longer, *passes)
    is_right(
        questions,
        name,
        "offload hidden",
        lambda seconds, gigabytes: gigabytes / seconds * 1e9,
        "pass takes {}",
        "and {} G",
    )
    is_right(questions, name, "larger batch", lambda few: few, "takes {} with", within=0.03)

    def late(needed, there, forward):
        forward, times = forward / 100, needed / there
        return forward * times + max(1 - forward, forward * times)

    is_right(
        questions, name, "too slow", late, "takes {};", "link has {}.", "is {}% of", within=0.025
    )


def test_09_state_and_failures(questions):
    name = "09_state_and_failures"
    is_right(
        questions,
        name,
        "which interval",
        lambda save, hours: sqrt(2 * save * 3600 * hours),
        "takes {}, and the",
        "once in {} hours",
        within=0.05,
    )
    saving = "takes {};", "every {} minutes"
    is_right(questions, name, "as often as you can", lambda s, m: 100 * s / (s + 60 * m), *saving)
    lost = "after every {} minutes", "take {} s each", "loses {}%"

    def unstalled(minutes, blocked, whole):
        return whole - 100 * blocked / (60 * minutes + blocked)

    is_right(questions, name, "asynchronous loss", unstalled, *lost, within=0.03)
    shard = "{} billion", "over {} nodes", "host at {} GB/s"
    is_right(questions, name, "stall", lambda w, n, rate: 14 * w / n / 8 / rate, *shard)
    fails = "{} nodes", "in {} days"
    is_right(
        questions,
        name,
        "mtbf of a machine",
        lambda days, n: 86400 * days / n,
        "once in {} days",
        "of {} nodes",
    )
    is_right(
        questions,
        name,
        "young",
        lambda n, days, save: sqrt(2 * save * 86400 * days / n),
        *fails,
        "takes {}.",
    )
    is_right(
        questions,
        name,
        "off the optimum",
        lambda best, restarts: restarts + 1.25 * (best - restarts),
        "loses {}%",
        "which {}%",
        within=0.05,
    )
    layer = "{} inputs", "{} outputs"
    is_right(questions, name, "bytes of a version", lambda i, o: 4 * (i + 1) * o, *layer)


def test_10_energy_and_planning(questions):
    name = "10_energy_and_planning"
    half = "takes {} kWh", "On {} instead", "instead of {} G", "takes {} times"
    is_right(
        questions,
        name,
        "half the gpus",
        lambda energy, few, many, longer: energy * few * longer / many,
        *half,
    )
    limited = "A GPU draws {} W", "switches {} W", "limit of {} W", "takes {}% longer"

    def grown(busy, host, limit, longer):
        return 100 * ((limit + host) * (1 + longer / 100) / (busy + host) - 1)

    is_right(questions, name, "lowest limit", grown, *limited, within=0.03)
    slack = "slack take {}%", "slowed to {}%"

    def saved(share, clock):
        power = 0.3 + 0.7 * (clock / 100) ** 4
        return share * (1 - power * 100 / clock)

    is_right(questions, name, "free joules", saved, *slack, within=0.03)
    exchange = "for {} ms divided", "plus {} per GPU"

    def fastest(compute, each):
        return min(range(1, 2000), key=lambda gpus: compute / 1e3 / gpus + each * gpus)

    is_right(questions, name, "more replicas", fastest, *exchange)

    def slower(busy, idle, limit):
        left = idle + 0.3 * (busy - idle)
        return 100 * (((busy - left) / (limit - left)) ** 0.25 - 1)

    watts = "draws {} W", "computes, {} W", "limit of {} W"
    is_right(questions, name, "limit and clock", slower, *watts)
    laws = "A/N^{}", "B/D^{}", "FLOP, {} billion", "for {} times"

    def optimal(alpha, beta, weights, times):
        """Search the size of the least loss, with A and B for which `weights` are the best of a budget of 1."""
        sizes = weights * 1.001 ** np.arange(-2000, 4000)
        a = weights**alpha / alpha  # so that alpha A / N^alpha = beta B / D^beta for D = 1 / N
        b = (1 / weights) ** beta / beta
        losses = a / sizes**alpha + b / (times / sizes) ** beta
        return sizes[np.argmin(losses)]

    is_right(questions, name, "more compute", optimal, *laws, within=0.03)
    both = "trains on {} billion", "serves {} billion", "takes {} FLOP", "serving {}."
    is_right(
        questions,
        name,
        "served tokens",
        lambda trained, served, train, serve: (
            100 * serve * served / (train * trained + serve * served)
        ),
        *both,
        within=0.02,
    )


def test_11_traces_and_waits(questions):
    name = "11_traces_and_waits"
    is_right(
        questions,
        name,
        "load balance",
        lambda others, usual, most: 100 * (others * usual + most) / (others + 1) / most,
        "{} ranks compute",
        "for {} each",
        "more for {}.",
    )
    factors = "balance is {}%", "serialization {}%", "transfer {}%"
    is_right(questions, name, "product", lambda b, s, t: b * s * t / 1e4, *factors)
    late = "compute for {},", "efficiency {}%"
    is_right(questions, name, "sends late", lambda s, share: 100 * s / share, *late)
    is_right(questions, name, "faster network", lambda s: s, "takes {} on")
    is_right(questions, name, "each in turn", lambda s: s, "run takes {};")
    is_right(questions, name, "ideal network", lambda t: 100 - t, "transfer {}%")


def test_12_train_a_language_model(questions):
    name = "12_train_a_language_model"
    pipe = "{} stages", "{} microbatches"
    is_right(
        questions, name, "half the stages", lambda p, m: 100 * (p / 2 - 1) / (m + p / 2 - 1), *pipe
    )

    def split(p, m, f, b, w):
        return (m * (f + b + w) + (p - 1) * (f + b - w)) / 1e3

    def narrow(matmuls, moved, casts):
        """Add up the parts of a new step: what moved, what stayed, the rest, the casts."""
        fast, stays = matmuls * moved / 100 / 2, matmuls * (1 - moved / 100)
        return 100 / (fast + stays + 100 - matmuls + casts)

    step = "spends {}%", "take {}% of", "add {}%"
    is_right(questions, name, "four bits", narrow, *step)
    passes = "a stage {} ms", "and {} ms for those", "{} ms for gradients"
    is_right(
        questions, name, "zero bubble", lambda p, m, f, w, b: split(p, m, f, b, w), *pipe, *passes
    )

    def gathered(weights, blocks, replicas, rate, latency):
        bytes_each = 2 * weights * 1e9 / 8
        return 3 * (blocks * (replicas - 1) * latency * 1e-6 + bytes_each / (rate * 1e9))

    wire = "{} billion", "in {} blocks", "pipeline, {} replicas", "carries {} GB", "takes {} µs"
    is_right(questions, name, "fsdp alone", gathered, *wire)
    fp8 = "Arithmetic is {}%", "are {}%", "shrinks by {}%"
    is_right(questions, name, "fp8", lambda a, x, d: a * x / 200 + d, *fp8)
    far = "computes for {} ms", "block in {} ms", "link of {} GB/s", "NIC of {} GB/s"

    # One GPU of eight sends to another node, as in module 12.
    def slowest(computing, sending, near, nic):
        return max(computing / 16, sending / 4 * near / nic) / 1e3

    is_right(questions, name, "far ring", slowest, *far)
    idle = "{} GPUs", "{} sequences", "replicas of {} GPUs"
    is_right(questions, name, "small replicas", lambda gpus, s, each: gpus / each - s, *idle)
    is_right(
        questions,
        name,
        "recomputed",
        lambda once: once * 3 / 4,  # a forward pass more, of three
        "MFU is {}%",
    )


def test_13_serving(questions):
    name = "13_serving"
    is_right(questions, name, "one user", lambda step: step, "one sequence: {} per token")
    read_ = "{} GB of weights", "cache of {} GB", "for {} sequences"
    is_right(questions, name, "a batch", lambda w, c, batch: (w + batch * c) / (w + c), *read_)
    ranks = "takes {} ms", "take {}%"
    is_right(
        questions, name, "twice the split", lambda ms, stays: ms * (0.5 + stays / 200) / 1e3, *ranks
    )
    is_right(
        questions,
        name,
        "more requests",
        lambda before, after: (100 - before) / (100 - after),
        "busy for {}% of the",
        "until it is busy for {}%",
    )
    fit = "{} are left", "a token takes {}", "sequences of {} tokens"
    is_right(
        questions, name, "what fills it", lambda left, each, n: left / (each * n), *fit, within=0.03
    )
    half = "leaves {} of", "beside {} of weights", "tokens, {} per GPU"
    is_right(
        questions,
        name,
        "twice the ranks",
        lambda left, weights, each: (left + weights / 2) / (each / 2),
        *half,
        within=0.05,
    )
    phases = "tokens it takes {}.", "decode the {} tokens"
    is_right(
        questions,
        name,
        "which phase",
        lambda step, tokens: step * tokens,
        *phases,
        within=0.05,  # the cache grows
    )
    pieces = "reads {} numbers", "of only {} tokens", "reads {} other", "After {} tokens"
    is_right(
        questions,
        name,
        "sparse",
        lambda each, chosen, key, n: 1 / (key / each + chosen / n),
        *pieces,
    )
