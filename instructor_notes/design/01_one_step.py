"""Design problem of module 01: which GPU trains a language model for the least money."""

from lib_dlhpc.teaching.designs import Design, Draw, Part, Step, begun, show, times, varied

N, S, TOKENS = 1.558e9, 1024, 1e9
PEAK, REACHED, BANDWIDTH = 312e12, 0.87, 1555e9
GPUS = {"V100": "v100-sxm2-32gb", "A100": "a100-sxm-40gb", "H100": "h100-sxm-80gb"}


def design(draw: Draw) -> Design:
    """Return a version: USD of an hour of each GPU."""
    prices = dict(
        zip(GPUS, draw.of([(0.6, 1.5, 4.0), (0.5, 1.9, 6.5), (0.3, 2.5, 7.0)]), strict=True)
    )
    toml = f"""
[model]
name = "gpt2-1.5b"

[dataset]
name = "webtext"

[machine]
name = "perlmutter"
device = "{GPUS["A100"]}"

[strategy]
nodes = 1
devices_per_node = 1
batch = 1
precision = "fp16"
optimizer = "adam"
recompute = "full"
"""
    run, now = begun(toml)
    work, update = 8 * N * S, 28 * N / BANDWIDTH
    four, fused = varied(run, batch=4), varied(run, fused_attention="on")
    stored = varied(run, recompute="none", fused_attention="on")
    best = {name: _best(run, device) for name, device in GPUS.items()}
    cost = {
        name: TOKENS / (float(each.throughput) * S) / 3600 * prices[name]
        for name, each in best.items()
    }
    cheap = min(cost, key=lambda name: cost[name])
    fast = min(best, key=lambda name: 1 / float(best[name].throughput))
    listed = ", ".join(f"{price:.2f} USD for a {name}" for name, price in prices.items())
    return Design(
        "The cheapest GPU for a billion tokens",
        f"You want to train GPT-2 with {N / 1e9:.3f} billion parameters on a billion tokens, on one GPU, in fp16 with"
        f" Adam, in sequences of {S:,} tokens. A GPU-hour costs {listed}. The file below takes an A100:"
        f" {PEAK / 1e12:.0f} TFLOP/s, of which large matmuls reach {REACHED:.0%}, and {BANDWIDTH / 1e12:.3f} TB/s."
        " With full recomputation, a step does 8 FLOP per weight and token; the update reads and writes 28 B per"
        " weight. A step may have at most 8 sequences, since more would need another learning rate.",
        toml,
        float(now.step_time),
        [
            Part(
                "How many FLOP does a step with one sequence take, and how long does it take at the rate of large"
                " matmuls? How long is the update, if memory limits it? At which arithmetic intensity is the ridge"
                " point of the A100, between memory-bound and compute-bound?",
                [
                    Step("Work: 8 N s", work, "FLOP"),
                    Step("At the rate of large matmuls", work / (REACHED * PEAK), "s"),
                    Step("Update: 28 N / B", update, "s"),
                    Step("Ridge: P / B", PEAK / BANDWIDTH, "FLOP/B"),
                ],
                "A step with one sequence spends a good part of its time on the optimizer, whose time is the same for"
                " any batch.",
                "All four.",
                "The work is right, but the update is forgotten or taken as arithmetic.",
            ),
            Part(
                "Run `dlhpc predict start.toml` and `dlhpc simulate start.toml`. Compare your two times with the"
                " terms.",
                [
                    *times(run, now),
                    Step("Forward and backward", float(now.forward + now.backward), "s"),
                    Step("Update", float(now.update), "s"),
                    Step("Memory", float(now.memory_total), "B"),
                ],
                "The update agrees with yours. Forward and backward take more than twice as long as your arithmetic:"
                " a good part of the step is not large matmuls.",
                "Both commands, and each term beside its estimate.",
            ),
            Part(
                "Find what your estimate lacks. Switch off one suspect at a time: attention that stores its scores"
                " (`strategy.fused_attention=on`), and small matmuls (compare the time per sequence at"
                " `strategy.batch=4`).",
                [
                    Step(
                        "Fused attention: forward and backward",
                        float(fused.forward + fused.backward),
                        "s",
                    ),
                    Step(
                        "Saved by fused attention",
                        float(now.forward + now.backward - fused.forward - fused.backward),
                        "s",
                    ),
                    Step(
                        "Four sequences: forward and backward per sequence",
                        float(four.forward + four.backward) / 4,
                        "s",
                    ),
                    Step(
                        "Saved by four sequences",
                        float(now.forward + now.backward - (four.forward + four.backward) / 4),
                        "s",
                    ),
                ],
                "The s² scores of each head pass through memory several times, so they are bandwidth-bound; fusing"
                " keeps them on the chip. Small matmuls do not reach the rate of large ones, and each kernel pays for"
                " its launch. The rest is norms and activations, far below the ridge, and attention's own FLOP.",
                "Both suspects with seconds, and the rest explained by its intensity.",
                "One of the two.",
            ),
            Part(
                "With fused attention, turn off recomputation. What do you gain, what does it cost, and which batch"
                " fits then?",
                [
                    Step("Recomputed: step", float(fused.step_time), "s"),
                    Step("Stored: step", float(stored.step_time), "s"),
                    Step("Recomputed: memory", float(fused.memory_total), "B"),
                    Step("Stored: memory", float(stored.memory_total), "B"),
                    Step(
                        "Largest stored batch up to 8",
                        int(best["A100"].experiment.strategy.batch),
                        "",
                    ),
                ],
                "A quarter of the arithmetic is saved; activations are stored again. The update's share of the"
                " remaining time grows, so the next gain is a larger batch, until memory is full.",
                "Time, memory and batch.",
                "Time only.",
            ),
            Part(
                "Which GPU trains a billion tokens for the least money, and which in the least time? Use the best"
                " setting of each (fused attention, activations stored if they fit, the largest batch up to 8).",
                [
                    *(
                        Step(f"{name}: tokens a second", float(each.throughput) * S, "tokens/s")
                        for name, each in best.items()
                    ),
                    *(
                        Step(f"{name}: price of a billion tokens", cost[name], "USD")
                        for name in cost
                    ),
                ],
                (
                    f"The {cheap} is both the cheapest and the fastest. "
                    if cheap == fast
                    else f"The {cheap} is the cheapest, the {fast} the fastest. "
                )
                + " ".join(
                    f"The {name} runs {int(each.experiment.strategy.batch)} sequences,"
                    f" {'recomputed' if each.experiment.strategy.recompute == 'full' else 'stored'}, in"
                    f" {show(float(each.memory_total), 'B')}."
                    for name, each in best.items()
                )
                + " A price per hour says nothing until it is divided by a rate at a setting that fits.",
                "Three rates at settings that fit, three prices, both decisions.",
                "One setting for all GPUs.",
            ),
            Part(
                "How far may the prediction be off on one GPU, and could that reverse your decision?",
                [
                    Step(
                        "Ratio of the second cheapest to the cheapest",
                        sorted(cost.values())[1] / min(cost.values()),
                        "",
                    )
                ],
                "Without a measured rate the roofline is off by more than a third in the median, and compilers"
                " that fuse norms and activations help all GPUs unequally. If two prices differ by less, a"
                " measured step decides: run 20 steps on each and set `calibration.rate`.",
                "The error of an uncalibrated prediction compared with the ratio of prices, and the measurement.",
            ),
        ],
    )


def _best(run, device: str):  # type: ignore[no-untyped-def]
    """Return the fastest prediction for a GPU: stored or recomputed, up to eight sequences."""
    tried = [
        varied(run, machine__device=device, fused_attention="on", recompute=recompute, batch=batch)
        for recompute in ("none", "full")
        for batch in range(1, 9)
    ]
    return max((each for each in tried if bool(each.fits)), key=lambda each: float(each.throughput))
