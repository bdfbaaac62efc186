"""Design problem of module 13: how to divide eight GPUs between replicas of a 70B model."""

import tomllib

import numpy as np

from lib_dlhpc.serving import predict_service, read_service, simulate_service
from lib_dlhpc.teaching.designs import Design, Draw, Part, Step, show

N, LAYERS, KV, HEAD, MEMORY, PEAK = 70.6e9, 80, 8, 128, 3.35e12, 989e12
PROMPT, ANSWER, FIRST, NEXT = 1000, 200, 0.5, 0.04  # tokens; s


def design(draw: Draw) -> Design:
    """Return a version: requests a second."""
    rate = draw.of([14, 15, 16])
    toml = f"""
[model]
name = "llama3-70b"

[machine]
name = "h100-pod"

[service]
devices = 8                # of a replica
replicas = 1
precision = "bf16"
batch = 64

[requests]
rate = {rate}
prompt = {PROMPT}
answer = {ANSWER}
answer_spread = 0.5
count = 300
"""
    one = predict_service(_with(toml))
    two = _with(toml, devices=4, replicas=2)
    halved, light = predict_service(two), _with(toml, devices=2, replicas=2, precision="fp8")
    ran, small, big = (simulate_service(each) for each in (two, light, _with(toml)))
    capacity = {
        name: found.curve[-1].tokens_per_second / ANSWER
        for name, found in (("one", one), ("two", halved))
    }
    decode = one.curve[0].tpot
    return Design(
        "Eight GPUs for a chat",
        f"A service answers with Llama 3 70B ({N / 1e9:.1f} billion parameters of 2 B, {LAYERS} layers, {KV} heads of"
        f" keys and values of {HEAD} numbers) on one node of eight H100s ({MEMORY / 1e12:.2f} TB/s and"
        f" {PEAK / 1e12:.0f} TFLOP/s each). {rate} requests per second arrive at random, with {PROMPT:,} tokens each,"
        f" and get answers of {ANSWER} tokens, with a standard deviation of half that. For 99 of 100 requests, the"
        f" service promises the first token within {FIRST * 1e3:.0f} ms and then {NEXT * 1e3:.0f} ms per token. At"
        " most 64 sequences are decoded at once on a replica.",
        toml,
        decode,
        [
            Part(
                "On one replica of eight GPUs, how many bytes of weights must a GPU read for each token, and how long"
                " does that take? How many bytes of cache does a token take on a GPU (keys and values, 2 B per"
                " number)? How long does the prefill of a prompt take at the peak (2 FLOP per weight and token)? How"
                " many tokens per second does the traffic demand?",
                [
                    Step("Weights on a GPU: 2 N / 8", 2 * N / 8, "B"),
                    Step("Time to read them", 2 * N / 8 / MEMORY, "s"),
                    Step(
                        "Cache of a token: 2 · 2 · layers · heads · numbers / 8",
                        4 * LAYERS * KV * HEAD / 8,
                        "B",
                    ),
                    Step(
                        "Prefill at the peak: 2 N · prompt / (8 P)",
                        2 * N * PROMPT / (8 * PEAK),
                        "s",
                    ),
                    Step("Demand: rate · answer", rate * ANSWER, "tokens/s"),
                ],
                "A single answer is limited by reading weights. The sequences of a batch share that reading, but not"
                " the prefill of their prompts.",
                "All five.",
                "Weights and their time, without the cache or the prefill.",
            ),
            Part(
                "Run `dlhpc serve predict start.toml` and `dlhpc serve simulate start.toml`. Can the replica handle"
                " the traffic?",
                [
                    Step("Time per token, one sequence", decode, "s"),
                    Step("Prefill, predicted", one.prefill.total, "s"),
                    Step("Requests per second that it can answer", capacity["one"], "1/s"),
                    Step("First token, 99%, simulated", float(np.percentile(big.ttft, 99)), "s"),
                ],
                "No: it is saturated, so the queue grows with the number of requests, and a longer simulation gives a"
                " longer time to first token. That number shows only saturation.",
                "Both commands, the capacity compared with the rate, and what a saturated queue means.",
            ),
            Part(
                "Why does a token take longer than reading the weights, and a prefill longer than its arithmetic at"
                " the peak? Name the terms.",
                [
                    Step("Decode: weights", one.decode.weights, "s"),
                    Step("Decode: messages", one.decode.communication, "s"),
                    Step("Prefill: arithmetic", one.prefill.arithmetic, "s"),
                    Step("Prefill: messages", one.prefill.communication, "s"),
                    Step("Prefill: activations", one.prefill.activations, "s"),
                ],
                "The reason is two allreduces in each layer, on eight GPUs: in decode they are all latency, in"
                " prefill they carry every token's activations, and nothing hides them. Arithmetic itself reaches"
                " only a share of the peak.",
                "Messages in both, with their milliseconds, and why those of decode are latency.",
                "One of the two.",
            ),
            Part(
                "Divide the same eight GPUs into two replicas of four (`service.devices=4 service.replicas=2`). What"
                " gets slower, and why can the two still handle more traffic?",
                [
                    Step("Time per token, one sequence", halved.curve[0].tpot, "s"),
                    Step("Prefill", halved.prefill.total, "s"),
                    Step("Requests per second that both can answer", capacity["two"], "1/s"),
                    Step("Sequences that fit on a replica", halved.sequences, ""),
                ],
                "Each token and each prefill are slower, since four GPUs read and compute what eight did. But they"
                " take less than twice as long: messages grow with the number of ranks, and small pieces of a matmul"
                " reach a lower rate. Two replicas that take less than twice the time handle more.",
                "Latency and capacity of both, and the messages as the reason.",
                "The capacity without a reason.",
            ),
            Part(
                "By simulation, choose a service that keeps both promises with the fewest GPUs. Would you serve in"
                " fp8?",
                [
                    Step("4 × 2, bf16: first token, 99%", float(np.percentile(ran.ttft, 99)), "s"),
                    Step(
                        "4 × 2, bf16: time per token, 99%", float(np.percentile(ran.tpot, 99)), "s"
                    ),
                    Step("2 × 2, fp8: first token, 99%", float(np.percentile(small.ttft, 99)), "s"),
                    Step(
                        "2 × 2, fp8: time per token, 99%", float(np.percentile(small.tpot, 99)), "s"
                    ),
                ],
                f"In bf16, 4 × 2 {_held(ran)}; in fp8, two replicas of two GPUs {_held(small)} with half of the GPUs."
                " This model cannot tell whether fp8 answers are as good: compare answers on your own tasks first,"
                " and choose bf16 until you have.",
                "Both promises checked at 99% by simulation, GPUs counted, fp8 with its condition.",
                "Means in place of percentiles, or one promise.",
            ),
            Part(
                "What does the model leave out that could break a promise?",
                [Step("Share of the time that 4 × 2 is busy", 100 * float(ran.utilization), "%")],
                "The model assumes Poisson arrivals with one mean length for all: real traffic has bursts and a few"
                " very long prompts, which stall the decoding of all others while they are prefilled (try"
                " `service.chunk=512`). Replay an hour of your own log.",
                "One omission with its direction and its measurement.",
            ),
        ],
        command="serve predict",
    )


def _with(toml: str, **fields: object):  # type: ignore[no-untyped-def]
    """Return the service of a file with other fields of [service]."""
    tables = tomllib.loads(toml)
    tables["service"] |= fields
    return read_service(tables)


def _held(found) -> str:  # type: ignore[no-untyped-def]
    """Return which promise a simulation holds."""
    first, later = (float(np.percentile(each, 99)) for each in (found.ttft, found.tpot))
    kept = first <= FIRST and later <= NEXT
    return f"{'keeps both promises' if kept else 'breaks a promise'} ({show(first, 's')}, {show(later, 's')})"
