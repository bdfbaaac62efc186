"""Case of module 13: published throughput of Llama 3 70B, a plan for its cache, and eight GPUs to divide."""

import tomllib
from functools import lru_cache

from lib_dlhpc.serving import predict_service, published, read_service
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.cases import Case, Choice, Draw, Line, Option, Plan, Reading, Step, Table

N, LAYERS, KV, HEAD = 70.6e9, 80, 8, 128  # parameters; heads of keys and values; numbers of a head
MEMORY, PEAK, PAIR, DOLLARS = 3.35e12, 1979e12, 2, 2.5  # B/s, FLOP/s in fp8; GPUs; of a GPU-hour
LENGTHS = ((128, 2048), (2048, 128), (2048, 2048))  # tokens of prompt and answer
ROWS = {row.name: row.published for row in published()}
RATE = {each: ROWS[f"trt10-h100-llama3-70b-{each[0]}-{each[1]}"] for each in LENGTHS}
LOOSE, TIGHT = 0.025, 0.010  # s for a token
TOML = """
[model]
name = "llama3-70b"

[machine]
name = "h100-pod"

[service]
devices = 8                # of a replica
replicas = 1
precision = "fp8"
batch = 256

[requests]
rate = 0
prompt = 1000
answer = 250
"""
WHEN = {
    1: "Half of the tokens/s in the chat, and the only one with room within 10 ms: the choice if these are promised,"
    " and the service turns out a fifth slower than predicted.",
    2: "The most tokens/s within 10 ms as predicted, and not much fewer in the chat: the choice if 10 ms is a goal for"
    " most tokens, or a measurement confirms it.",
    4: "The most tokens/s in the chat: the choice if no user pays for faster answers, as it cannot reach 10 ms.",
}


@lru_cache
def most(replicas: int, prompt: int, limit: float) -> float:
    """Return the most tokens/s of eight GPUs of the batches that `dlhpc serve predict` lists within a TPOT; 0: none."""
    tables = tomllib.loads(TOML)
    tables["service"] |= {"devices": 8 // replicas, "replicas": replicas}
    tables["requests"]["prompt"] = prompt
    curve = predict_service(read_service(tables)).curve
    return max((each.tokens_per_second for each in curve if each.tpot <= limit), default=0.0)


def readings() -> list[Reading]:
    """Return the questions on the table."""
    prompts = RATE[2048, 128] * 2048 / 128
    both = prompts + RATE[2048, 128]
    cost = {each: 1e6 * PAIR * DOLLARS / 3600 / rate for each, rate in RATE.items()}
    long, short = 128 / RATE[2048, 128], 2048 / RATE[128, 2048]  # s between two finished requests
    read = (2048 * long - 128 * short) / (2048**2 - 128**2)  # s of a prompt's token
    written = (short - 128 * read) / 2048
    return [
        Reading(
            "How many tokens of prompts does the service with long prompts and short answers process per second? Which"
            f" FLOP/s does a GPU achieve, with 2 FLOP for each of {N / 1e9:.1f} billion parameters and token?",
            [Step("Tokens/s of prompts", prompts), Step("A GPU", 2 * N * both / PAIR, "FLOP/s")],
            "Nearly all arithmetic is for prompts, of which a rate of output tokens says nothing.",
        ),
        Reading(
            f"A GPU-hour costs {DOLLARS:g} dollars. What does a million output tokens cost in the first row and in the"
            " second?",
            [
                Step("First, dollars", cost[128, 2048]),
                Step("Second, dollars", cost[2048, 128]),
                Step("Second over first", cost[2048, 128] / cost[128, 2048]),
            ],
            "A price of output tokens alone holds for one ratio of prompt to answer.",
        ),
        Reading(
            "Suppose that each token of a prompt takes the same time, and each token of an answer another. What does"
            " the third row have to be, by the first two? Why is the published rate lower?",
            [
                Step("A token of a prompt", read, "s"),
                Step("A token of an answer", written, "s"),
                Step("Tokens/s, third row", 1 / (read + written)),
                Step("Published over that", 100 * RATE[2048, 2048] * (read + written), "%"),
            ],
            "Sequences are twice as long: fewer fit in memory, and each token reads a longer cache.",
        ),
    ]


def plan(sequences: int) -> Plan:
    """Return the plan for that many sequences."""
    cached = 2 * 2 * LAYERS * KV * HEAD
    times = [(N + many * 4096 * cached) / (PAIR * MEMORY) for many in (sequences, 2 * sequences)]
    return Plan(
        f"Llama 3 70B ({N / 1e9:.1f} billion parameters in fp8, {LAYERS} layers, {KV} heads of keys and values of"
        f" {HEAD} numbers in 16 bits) answers on two H100 ({MEMORY / 1e12:g} TB/s, {PEAK / 1e12:,.0f} TFLOP/s each,"
        f" half of which a prompt reaches), {sequences} sequences of 4,096 tokens at a time.",
        [
            Line(
                f"A token of a sequence takes {show(cached, 'B')} of cache on both GPUs together."
            ),
            Line(f"For one user, a token takes at least {show(N / PAIR / MEMORY, 's')}."),
            Line(
                "Twice the sequences give twice the tokens/s, since a step reads the weights once for all.",
                "Each sequence reads a cache of its own, which a step does not share.",
                [
                    Step(f"Read in a step, {sequences} sequences", times[0], "s"),
                    Step(f"{2 * sequences} sequences", times[1], "s"),
                    Step("Tokens/s, times as many", 2 * times[0] / times[1]),
                ],
            ),
            Line("Users with the same system prompt can share its part of the cache."),
            Line(
                "A prompt of 2,048 tokens keeps one user waiting as long as the 2,048 tokens of an answer do.",
                "One pass processes the prompt, and it computes; each token of the answer reads all weights.",
                [
                    Step("Prompt", 2 * N * 2048 / (PAIR * PEAK / 2), "s"),
                    Step("Answer", 2048 * N / PAIR / MEMORY, "s"),
                ],
            ),
        ],
    )


def option(replicas: int, prompt: int) -> Option:
    """Return a division of the eight GPUs with its numbers."""
    return Option(
        f"{replicas} × {8 // replicas}",
        [
            Step(f"Tokens/s, {1e3 * LOOSE:.0f} ms a token", most(replicas, prompt, LOOSE)),
            Step(f"{1e3 * TIGHT:.0f} ms", most(replicas, prompt, TIGHT)),
            Step(
                f"{1e3 * TIGHT:.0f} ms, all a fifth slower",
                most(replicas, prompt, TIGHT / 1.2) / 1.2,
            ),
        ],
        WHEN.get(replicas, ""),
    )


def case(draw: Draw) -> Case:
    """Return a version: sequences of the plan, tokens of a prompt of the choice."""
    sequences, prompt = draw.of([16, 12, 24]), draw.any([1000, 800, 1200])
    return Case(
        "Tokens per second in print, a cache, and eight GPUs",
        Table(
            "Llama 3 70B in fp8 on two H100, all requests at once, as many sequences in a batch as fit (NVIDIA"
            " TensorRT-LLM 1.0, performance overview).",
            ("tokens of a prompt", "tokens of an answer", "output tokens/s"),
            [(f"{asked:,}", f"{said:,}", f"{rate:,.0f}") for (asked, said), rate in RATE.items()],
        ),
        readings(),
        plan(sequences),
        Choice(
            f"Eight H100 serve Llama 3 70B in fp8 to a chat: prompts of {prompt:,} tokens, answers of 250, and"
            f" {1e3 * LOOSE:.0f} ms a token are enough. Next year some users may pay for {1e3 * TIGHT:.0f} ms. Divide"
            " the GPUs into replicas of tensor-parallel GPUs: the table of `dlhpc serve predict start.toml` has"
            " tokens/s and time of a token by batch. Predictions of published services are a fifth too fast in the"
            " median.",
            [option(replicas, prompt) for replicas in (1, 2, 4, 8)],
            {
                "has tokens/s of three divisions or more within both limits": 1,
                "chooses one that no other beats within both limits, as predicted or a fifth slower": 1,
                "names the change that it plans for, and what it gives up for it, by a number": 1,
                "says what is left within both limits if all are a fifth slower": 1,
            },
            TOML.replace("= 1000", f"= {prompt}"),
        ),
    )
