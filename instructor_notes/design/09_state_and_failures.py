"""Design problem of module 09: what to buy against failures."""

from math import sqrt

from lib_dlhpc.teaching.designs import Design, Draw, Part, Step, begun, show, times, varied

N, MTBF, RESTART, WRITE, EVERY = 70.6e9, 6333, 600, 2e12, 1800  # weights, h of a node, s, B/s, s
HOUR, DAY = 3600, 86400


def design(draw: Draw) -> Design:
    """Return a version: nodes and billions of tokens."""
    nodes, tokens = draw.of([(512, 15_000), (1024, 30_000), (256, 8_000)])
    toml = f"""
[model]
name = "llama3-70b"

[dataset]
samples = {round(tokens * 1e9 / 8192)}
bytes = {4e9 * tokens:.0f}

[machine]
name = "h100-pod"

[storage]
tier = "tectonic"

[strategy]
nodes = {nodes}
batch = 8
microbatches = 8
tensor = 8
pipeline = 4
sequence_parallel = true
zero = 1
precision = "bf16"
optimizer = "adam"

[run]
checkpoint_interval = {EVERY}
checkpoint_writers = "first"
"""
    run, now = begun(toml)
    state, between = 14 * N, MTBF * HOUR / nodes
    best = float(now.resilience.best)
    young = sqrt(2 * float(now.resilience.saving.blocked) * between)
    often = varied(run, run__checkpoint_interval=best)
    every = varied(run, run__checkpoint_writers="all", run__checkpoint_interval=best)
    behind = varied(
        run,
        run__checkpoint="asynchronous",
        run__checkpoint_writers="all",
        run__checkpoint_interval=best,
    )
    quick = varied(run, machine__restart_time=120.0, run__checkpoint_interval=best)
    disk = varied(
        run, **{"machine__storage.tectonic.write_bandwidth": 4e12}, run__checkpoint_interval=best
    )
    lost = 100 * (EVERY / 2 + RESTART) / between
    return Design(
        "Two months, and a failure every few hours",
        f"Llama 3 70B ({N / 1e9:.1f} billion parameters) trains on {nodes} nodes of eight H100s over {tokens / 1000:g}"
        f" trillion tokens. A node fails once in {MTBF:,} h, and it takes {RESTART // 60} min until a failed run reads"
        f" its state again. A checkpoint has 14 B per weight. The shared file system writes {show(WRITE, 'B/s')};"
        f" today the first replica writes a checkpoint every {EVERY // 60} min, and training waits. For the same"
        " price, your supplier offers either a file system that is twice as fast, or spare nodes and a launcher that"
        " restart a run in 2 min.",
        toml,
        float(now.step_time),
        [
            Part(
                "How large is a checkpoint, and how long does it take at the rate of the file system? How often does"
                " the job fail? Which share of the time is lost to repeated work and restarts, (τ/2 + R)/M?",
                [
                    Step("Checkpoint: 14 N", state, "B"),
                    Step("Written at the full rate", state / WRITE, "s"),
                    Step("Time between failures: M = node / nodes", between / HOUR, "h"),
                    Step("Lost: (τ/2 + R)/M", lost, "%"),
                ],
                "Writing takes only seconds; the loss comes from the interval and the restart.",
                "All four.",
                "All right except for the failure rate, that of one node in place of the job's.",
            ),
            Part(
                "Run `dlhpc predict start.toml --explain` and `dlhpc simulate start.toml`. What are the goodput, the"
                " expected days and the best interval?",
                [
                    *times(run, now),
                    Step("Goodput", float(100 * now.resilience.goodput), "%"),
                    Step("Days without failures", float(now.time_to_train) / DAY, "days"),
                    Step("Days with failures", float(now.resilience.expected_time) / DAY, "days"),
                    Step("Best interval", best, "s"),
                ],
                "Goodput is the share of time spent on useful training: without your loss, and without the time in"
                " which checkpoints stall it. The simulated step contains no failures; these are closed forms over"
                " the whole run.",
                "Both commands, goodput and both times.",
            ),
            Part(
                "Compare the predicted time of a checkpoint with yours, and the best interval with Young's √(2 δ"
                " M). Which of the three losses (stall,"
                " repeated work, restart) is the largest today?",
                [
                    Step("Checkpoint, predicted", float(now.resilience.saving.blocked), "s"),
                    Step("Young, with that", young, "s"),
                    Step("Stall: δ/τ", 100 * float(now.resilience.saving.blocked) / EVERY, "%"),
                    Step("Repeated: τ/2M", 100 * EVERY / 2 / between, "%"),
                    Step("Restart: R/M", 100 * RESTART / between, "%"),
                ],
                "A checkpoint takes longer than the file system needs, because the NICs of one replica's nodes carry"
                " all of it. Young's, Daly's and the exact interval agree within a percent where δ is far below M."
                " Repeated work is the largest loss today, the restart comes next, and the stall is negligible.",
                "The NICs, Young's interval, and three losses in percent.",
                "Two of the three.",
            ),
            Part(
                'Change one of: the interval, the writers (`all`), `checkpoint = "asynchronous"`, '
                "each at the best interval. "
                "What is left to gain?",
                [
                    Step("Best interval: goodput", float(100 * often.resilience.goodput), "%"),
                    Step(
                        "All write, best interval: goodput",
                        float(100 * every.resilience.best_goodput),
                        "%",
                    ),
                    Step(
                        "Asynchronous, best interval: goodput",
                        float(100 * behind.resilience.best_goodput),
                        "%",
                    ),
                    Step("Its best interval", float(behind.resilience.best), "s"),
                ],
                "Changing the interval is free and gains the most. Next, δ can be made shorter, first by more"
                " writers, then by asynchronous checkpoints, each with a shorter best interval. What remains is the"
                " restart, which no checkpoint shortens.",
                "One change with goodput before and after, and its new best interval.",
                "Goodput only at the old interval.",
            ),
            Part(
                "Which offer do you take: the faster file system, or the faster restart? How many days does each"
                " save?",
                [
                    Step(
                        "Best interval: days", float(often.resilience.expected_time) / DAY, "days"
                    ),
                    Step(
                        "Twice the bandwidth: days",
                        float(disk.resilience.expected_time) / DAY,
                        "days",
                    ),
                    Step(
                        "Restart in 2 min: days",
                        float(quick.resilience.expected_time) / DAY,
                        "days",
                    ),
                    Step(
                        "GPU-hours that the restart saves",
                        float(often.resilience.expected_time - quick.resilience.expected_time)
                        / HOUR
                        * 8
                        * nodes,
                        "GPU-hours",
                    ),
                ],
                "Take the faster restart. The first replica cannot use a faster file system, since its NICs are the"
                " limit; and even with all replicas writing, the gain would be smaller than that of a restart in a"
                " fifth of the time.",
                "The restart, with days of both offers at the same interval.",
                "The right offer, but without days or at different intervals.",
            ),
            Part(
                "What does the model of failures leave out?",
                [Step("Failures of the run", float(now.resilience.failures), "")],
                "The model assumes independent failures at a constant rate; in practice they cluster after"
                " maintenance, and a bad node fails again. Silent errors, slow nodes and loss spikes make you go back"
                " further than one checkpoint, so keep older versions. Log the times between failures for a week, and"
                " test whether they are exponentially distributed.",
                "One omission with its direction and a test of it.",
            ),
        ],
    )
