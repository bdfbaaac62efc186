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
        f"Llama 3 70B ({N / 1e9:.1f} billion parameters) trains on {nodes} nodes of eight H100 over"
        f" {tokens / 1000:g} trillion tokens. A node fails once in"
        f" {MTBF:,} h, and until a failed run reads its state again {RESTART // 60} min pass. A checkpoint has"
        f" 14 B a weight. The shared file system writes"
        f" {show(WRITE, 'B/s')}; today the first replica writes, every {EVERY // 60} min, and training waits."
        f" Your supplier offers a file system twice as"
        " fast, or spare nodes and a launcher that restart in 2 min, for the same price.",
        toml,
        float(now.step_time),
        [
            Part(
                "How large is a checkpoint, and how long does it take at the rate of the file system? How often"
                " does the job fail? Which part of the"
                " time is lost to repeated work and restarts, (τ/2 + R)/M?",
                [
                    Step("Checkpoint: 14 N", state, "B"),
                    Step("Written at the full rate", state / WRITE, "s"),
                    Step("Time between failures: M = node / nodes", between / HOUR, "h"),
                    Step("Lost: (τ/2 + R)/M", lost, "%"),
                ],
                "Writing is a matter of seconds; the loss is in the interval and the restart.",
                "All four.",
                "The failure rate of one node in place of the job's, all else right.",
            ),
            Part(
                "Run `dlhpc predict start.toml --explain` and `dlhpc simulate start.toml`. Goodput, expected"
                " days, best interval?",
                [
                    *times(run, now),
                    Step("Goodput", float(100 * now.resilience.goodput), "%"),
                    Step("Days without failures", float(now.time_to_train) / DAY, "days"),
                    Step("Days with failures", float(now.resilience.expected_time) / DAY, "days"),
                    Step("Best interval", best, "s"),
                ],
                "Goodput counts what becomes training: without your loss, and without the time in which"
                " checkpoints stall it. The simulated step has no"
                " failures in it: they are closed forms over the whole run.",
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
                "It takes longer than the file system needs, because the NICs of one replica's nodes carry it"
                " all. Young, Daly and the exact interval agree"
                " within a percent where δ is far below M. Repeated work leads today, the restart follows; the"
                " stall is negligible.",
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
                "The interval is free and gives the most. Then δ shrinks: more writers, then writing behind"
                " training, each with a shorter best interval. What remains"
                " is the restart, which no checkpoint makes shorter.",
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
                "The restart. The first replica cannot use the faster file system, since its NICs are the limit;"
                " and even all writers would gain less than a"
                " restart that is five times as short.",
                "The restart, with days of both offers at the same interval.",
                "The right offer without days, or at another interval.",
            ),
            Part(
                "What does the model of failures leave out?",
                [Step("Failures of the run", float(now.resilience.failures), "")],
                "Failures come independently, at one rate: in practice they cluster after maintenance, and a bad"
                " node fails again. Silent errors, slow nodes and"
                " loss spikes make you go back further than one checkpoint, so keep older versions. Log the gaps"
                " between failures for"
                " a week, and test whether they are exponential.",
                "One omission with its direction and a test of it.",
            ),
        ],
    )
