"""Design problem of module 03: an allreduce and a bucket for a machine with one GPU a node."""

from math import log2

from lib_dlhpc.teaching.designs import Design, Draw, Part, Step, begun, simulate_terms, varied

ALPHA, RATE, WEIGHTS, BUCKET = 6e-6, 8.67e9, 86.6e6, 25e6


def design(draw: Draw) -> Design:
    """Return a version: ranks, and the number that remains after repairs."""
    p, odd = draw.of([(256, 300), (128, 150), (512, 600)])
    toml = f"""
[model]
name = "vit-b16"

[dataset]
name = "imagenet"

[machine]
name = "piz-daint"

[strategy]
nodes = {p}
batch = 16
precision = "fp32"
allreduce = "ring"
bucket = "25 MB"
"""
    run, now = begun(toml)
    far, last = 2 * (p - 1), 2 * (p - 1) / p
    crossing = ALPHA * RATE * (far - log2(p)) / (log2(p) - last)
    of = {
        name: varied(run, allreduce=name)
        for name in ("recursive_doubling", "rabenseifner", "torus_2d")
    }
    small, large = varied(run, bucket=1e6), varied(run, bucket=400e6)
    thin = varied(run, allreduce="rabenseifner", bucket=1e6)
    uneven = {name: varied(run, nodes=odd, allreduce=name) for name in of}
    return Design(
        "An allreduce for one GPU per node",
        f"ViT-B/16 ({WEIGHTS / 1e6:.1f} million parameters, gradients of 4 B) trains on {p} nodes of Piz Daint with"
        f" one P100 each. A message costs a latency of {ALPHA * 1e6:.0f} µs, and its bytes are sent at"
        f" {RATE / 1e9:.2f} GB/s. Gradients are sent in buckets of {BUCKET / 1e6:.0f} MB during backward. You may"
        f" choose the allreduce and the bucket for all runs of the year; next month the machine grows to {odd} nodes.",
        toml,
        float(now.step_time),
        [
            Part(
                "How long does one bucket take with a ring, with recursive doubling (the whole bucket log₂ p times),"
                " and with Rabenseifner (halving and doubling)? At which size do the ring and recursive doubling take"
                " equally long? How long do all gradients take in a ring without buckets?",
                [
                    Step(
                        "Ring: 2 (p - 1) α + 2 (p - 1)/p · n β",
                        far * ALPHA + last * BUCKET / RATE,
                        "s",
                    ),
                    Step(
                        "Recursive doubling: log₂ p (α + n β)",
                        log2(p) * (ALPHA + BUCKET / RATE),
                        "s",
                    ),
                    Step(
                        "Rabenseifner: 2 log₂ p · α + 2 (p - 1)/p · n β",
                        2 * log2(p) * ALPHA + last * BUCKET / RATE,
                        "s",
                    ),
                    Step(
                        "Crossing: α (2 (p - 1) - log₂ p) / (β (log₂ p - 2 (p - 1)/p))",
                        crossing,
                        "B",
                    ),
                    Step("All gradients in one ring", far * ALPHA + last * 4 * WEIGHTS / RATE, "s"),
                ],
                "Rabenseifner sends as few bytes as the ring, in about as few rounds as doubling: on paper, nothing"
                " speaks against it.",
                "All five.",
                "Three of the times right, the crossover missing.",
            ),
            Part(
                "Run `dlhpc predict` with `strategy.allreduce` `ring`, `recursive_doubling`, `rabenseifner` and"
                " `torus_2d`, and `dlhpc simulate` for the ring.",
                [
                    Step("Ring: step", float(now.step_time), "s"),
                    Step("Ring: step, simulated", float(simulate_terms(run).step_time), "s"),
                    *(
                        Step(f"{name}: step", float(each.step_time), "s")
                        for name, each in of.items()
                    ),
                ],
                "The order of your three times is also the order of the steps, but the steps differ by far less than"
                " the messages.",
                "Four predictions and the simulation, beside the estimates.",
            ),
            Part(
                "Compare all communication with your time per bucket times the number of buckets. Why is so little of"
                " it exposed, and which part is exposed with every algorithm?",
                [
                    Step("Buckets: 4 N / bucket", 4 * WEIGHTS / BUCKET, ""),
                    Step("Ring: all communication", float(now.communication.total), "s"),
                    Step("of which latency", float(now.communication.latency), "s"),
                    Step("of which additions", float(now.communication.reduction), "s"),
                    Step("Ring: exposed", float(now.exposed_communication), "s"),
                    Step(
                        "Recursive doubling: exposed",
                        float(of["recursive_doubling"].exposed_communication),
                        "s",
                    ),
                ],
                "The estimate lacks the additions, and layers do not fill buckets exactly. Backward hides what is"
                " sent before it ends; the last bucket, that of the first layers, can start only then and is always"
                " exposed. Doubling takes longer than backward for all buckets, so its queue is exposed, too.",
                "Additions, the last bucket, and the queue of doubling, with numbers.",
                "The last bucket only.",
            ),
            Part(
                "Change the bucket of the ring to 1 MB and to 400 MB (`strategy.bucket=1MB`). Explain both results"
                " with α and β. How does Rabenseifner do with 1 MB?",
                [
                    Step("Ring, 1 MB: exposed", float(small.exposed_communication), "s"),
                    Step("Ring, 400 MB: exposed", float(large.exposed_communication), "s"),
                    Step("Rabenseifner, 1 MB: exposed", float(thin.exposed_communication), "s"),
                    Step("Latency of a ring's bucket", far * ALPHA, "s"),
                ],
                "Small buckets pay the latency of 2 (p - 1) rounds each, "
                + (
                    "more than backward can hide"
                    if small.exposed_communication > now.exposed_communication
                    else "which backward still hides on this number of nodes"
                )
                + (
                    "; one large bucket cannot start before backward ends, so all of it is exposed. With"
                    " Rabenseifner's 2 log₂ p rounds, small buckets are nearly free, and the last one is short."
                ),
                "Both ends explained by latency and overlap, and the interaction with the algorithm.",
                "One end.",
            ),
            Part(
                f"Decide for {p} nodes and for {odd}. Is the best algorithm the same?",
                [
                    *(
                        Step(f"{odd} nodes, {name}: step", float(each.step_time), "s")
                        for name, each in uneven.items()
                    ),
                    Step(f"{p} nodes, Rabenseifner, 1 MB: step", float(thin.step_time), "s"),
                ],
                f"At {p}, it is Rabenseifner with small buckets. {odd} is not a power of two: ranks beyond the last"
                " power of two must first send their whole vector to a partner and later receive the result, which"
                " costs two more messages of full length. The 2-D torus factors any number well, and wins. `auto`"
                " decides for each size.",
                "Both decisions with steps, and the reason at the odd number.",
                f"The decision for {p} alone.",
            ),
            Part(
                "What does α + n β not capture about this network?",
                [Step("Distance of the first exchange of halving", p / 2, "ranks")],
                "In halving, all ranks exchange half of the vector with distant ranks at the same time: on a"
                " dragonfly or a tapered tree, these messages share links, while those of a ring do not. The model"
                " gives every pair its own bandwidth. Measure both algorithms with a real job's placement, or"
                " simulate a few ranks with `--fidelity events`.",
                "Contention of distant messages, its direction, and a measurement.",
            ),
        ],
    )
