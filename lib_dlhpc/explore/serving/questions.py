"""What module 13 asks: the figures and the numbers of lesson.toml."""

from typing import Any

import numpy as np

from lib_dlhpc.costs import peak_rate
from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.numeric import Drawn
from lib_dlhpc.explore.blocks.plain_text import Table
from lib_dlhpc.explore.serving import (
    drafts,
    here,
    lengths,
    load,
    memory,
    phases,
    pools,
    prefixes,
    replicas,
)
from lib_dlhpc.explore.serving.lengths import Setting as Long
from lib_dlhpc.explore.serving.memory import GROUPED, MULTI, SHARED, fit, heads_of, kinds
from lib_dlhpc.explore.serving.memory import Setting as Room
from lib_dlhpc.explore.serving.phases import ANSWER, decode_point, fits, parts, served
from lib_dlhpc.explore.serving.phases import Setting as Phases
from lib_dlhpc.explore.serving.pools import APART, MIXED, rounded, sustained
from lib_dlhpc.explore.serving.pools import CHUNKED as MIXED_CHUNKS
from lib_dlhpc.explore.serving.pools import Setting as Two
from lib_dlhpc.explore.serving.prefixes import FULL as ALL
from lib_dlhpc.explore.serving.prefixes import HIT, means, room, stored, wanted
from lib_dlhpc.explore.serving.prefixes import Setting as Alike
from lib_dlhpc.explore.serving.served import bytes_read, service
from lib_dlhpc.serving.predict import room_of
from lib_dlhpc.serving.price import Prices
from lib_dlhpc.serving.published import Published, published
from lib_dlhpc.serving.speculate import expected_tokens
from lib_dlhpc.spec.units import format_plain as plain
from lib_dlhpc.spec.units import format_quantity as show

THIRTEEN = Room(network="llama2-13b")
FULL = load.Setting(batching=load.CONTINUOUS)
SMALL = replicas.Setting(network="llama3-8b")
SIXTY_FOUR = Long(lengths.TOKEN, tokens=32768, batch=64)
SLOW = "Ethernet, 25 Gb/s a GPU"
UNITS = {
    "decode_tokens_per_second": "tokens/s",
    "tokens_per_second": "tokens/s",
    "first_token_ms": "ms",
}
PUBLISHED = {
    "gptfast-a100-llama2-7b-1": "Llama 2 7B, A100, one sequence, decode",
    "gptfast-a100-llama2-70b-8": "Llama 2 70B, 8 A100, one sequence, decode",
    "trt05-a100-llama2-7b-2048-first": "Llama 2 7B, A100, prompt of 2,048 tokens",
    "trt10-h100-llama3-8b-128-2048": "Llama 3 8B in fp8, H100, 128 + 2,048 tokens, full batch",
    "trt10-h100-llama3-8b-2048-128": "the same, 2,048 + 128 tokens",
    "trt10-h100-llama3-70b-1000-1000": "Llama 3 70B in fp8, 2 H100, 1,000 + 1,000 tokens",
}


def token(**changes: Any) -> float:
    """Return the s of a step that decodes."""
    return parts(Phases(**changes))[1].total / (ANSWER - 1)


def ceiling() -> float:
    """Return the FLOP a byte of the largest batch that fits."""
    setting = Phases()
    return decode_point(served(setting)[1], fits(setting), setting.prompt).intensity


def ridge() -> float:
    """Return the FLOP a byte at which the roof of an H100 turns."""
    own, prices = served(Phases())
    return float(peak_rate(prices.device, "bf16") / own.machine.device.memory_bandwidth)


def count(kind: str = GROUPED, **changes: Any) -> str:
    """Return how many sequences fit."""
    setting = Room(**changes)
    return f"{fit(setting, kinds(setting)[kind]).fitting:,}"


def long_time(name: str = lengths.HYBRID, **changes: Any) -> float:
    """Return the s of a prompt of 131,072 tokens, or of other ones."""
    return lengths.time_of(Long(**changes), name)


def rate(tokens: int) -> str:
    """Return the tokens/s of all sequences that fit."""
    own = fit(Room(tokens=tokens), heads_of(Room()))
    return plain(own.fitting / own.prices.decode(own.fitting, tokens).total)


def left(network: str = "llama2-13b") -> str:
    """Return the bytes that a network leaves beside its weights and the work of a step."""
    own = service(network, "h100-pod", {"prompt": Room().tokens, "answer": 1})
    return show(room_of(own, Prices(own)), "B")


def held(weights: str = "bf16") -> float:
    """Return the bytes of the weights of Llama 3 8B."""
    return served(Phases(weights=weights))[1].shard.weights


def sequence_bytes(tokens: int) -> str:
    """Return the bytes of cache of Llama 2 13B."""
    own = fit(THIRTEEN, heads_of(THIRTEEN))
    return show(own.sequence * tokens / THIRTEEN.tokens, "B")


def first(**changes: Any) -> str:
    """Return within how long 9 of 10 users see a first token, with continuous batching."""
    return show(load.felt(FULL._replace(**changes)).first, "s")


def own_prompt() -> str:
    """Return the time of the step of one prompt of the busy service."""
    own = service("llama3-8b", "h100-pod", {"prompt": FULL.prompt, "answer": load.ANSWER})
    return show(Prices(own).prefill(FULL.prompt).total, "s")


def pause(batching: str) -> str:
    """Return the longest pause of 9 of 10 answers."""
    return show(load.felt(load.Setting(batching=batching)).pause, "s")


def shape(tpot: float = np.inf, **changes: Any) -> str:
    """Return the eight GPUs with the cheapest token that takes at most `tpot` s."""
    return replicas.SHAPES[replicas.cheapest(replicas.Setting(**changes), tpot)[0]]


def room_for(ranks: int, weights: str = "bf16") -> int:
    """Return the sequences that fit a replica of Llama 3 70B."""
    return replicas.predicted("llama3-70b", weights, ranks).sequences


def network_share() -> float:
    """Return the share of the collectives in a step of 1 × 8 GPUs at its largest batch."""
    step = replicas.predicted("llama3-70b", "bf16", 8).decode
    return step.communication / step.total


def quickest_of(ranks: int) -> str:
    """Return the time of a token of Llama 3 8B at the smallest batch."""
    return show(replicas.paths(SMALL)[ranks][0].tpot, "s")


def dearer(batch: int) -> float:
    """Return how many times the price of 8 × 1 GPU a token of 1 × 8 costs, at this number of sequences."""
    one, eight = (replicas.chosen(SMALL._replace(ranks=g, batch=batch)).cost for g in (1, 8))
    return eight / one


def verified(batch: int) -> float:
    """Return how many times as long a step is if it verifies drafts."""
    return drafts.step(drafts.Setting(batch=batch))[1].total / drafts.plain(batch).total


def hit(**changes: Any) -> float:
    """Return the share of requests that find their prefix."""
    return stored(Alike(**changes)).hit


def within(way: str, **changes: Any) -> str:
    """Return the largest rate of requests within both limits."""
    return rounded(sustained(Two(**changes), way))


def best_pools(**changes: Any) -> str:
    """Return the two pools that sustain the largest rate, and that rate."""
    pool, most = pools.best(Two(**changes))
    return f"{pool} + {pools.REPLICAS - pool} sustain {rounded(most)} requests/s"


def next_token(way: str = APART, **changes: Any) -> str:
    """Return the time of a token after the first."""
    return show(pools.load(Two(**changes), way).tpot, "s")


def row(name: str) -> Published:
    """Return a published measurement."""
    return next(each for each in published() if each.name == name)


def too_fast() -> list[float]:
    """Return by how much predictions of published decodes of one sequence, all weights in bf16, are too fast."""
    decodes = (each for each in published() if each.quantity == "decode_tokens_per_second")
    return [each.error for each in decodes if each.scored and each.service.service.batch == 1]


def published_table() -> Table:
    """Return published figures, predictions and errors, as a table."""
    lines = [["", "published", "predicted", "error"]]
    for name, words in PUBLISHED.items():
        own = row(name)
        unit = UNITS[own.quantity]
        both = (f"{plain(value)} {unit}" for value in (own.published, own.predicted))
        lines.append([words, *both, f"{own.error:+z.0%}"])
    return Table(lines)


def own_cache(draw: np.random.Generator) -> Drawn:
    """Return the network of one learner, and how many sequences fit."""
    layers, heads = int(draw.choice([32, 48, 64, 80])), int(draw.choice([1, 4, 8, 32]))
    size, tokens = int(draw.choice([64, 128])), int(draw.choice([2048, 4096, 8192]))
    sequence = 2 * layers * heads * size * 2 * tokens
    fitting = int(draw.integers(60, 300))
    room = -(-fitting * sequence // 10**7) / 100  # GB, rounded up: all of them fit
    own = {
        "layers": layers,
        "heads": heads,
        "plural": "s" * (heads > 1),
        "size": size,
        "tokens": tokens,
        "room": room,
    }
    answer = float(fitting)
    wrong = {"factor_two": 2 * answer, "one_layer": layers * answer, "tokens": tokens * answer}
    return own, answer, wrong


lesson = Lesson.read(
    __file__,
    outcomes={
        "answer_time": (lambda: parts(Phases())[1].total, phases.two_phases),
        "sequences_fit": (lambda: fit(THIRTEEN, heads_of(THIRTEEN)).fitting, memory.sequences_fit),
        "hybrid_prompt": (
            lambda: long_time(lengths.FULL) / long_time(),
            lambda: lengths.long_sequences(),
        ),
        "static_rate": (lambda: 1e3 * load.felt(FULL).first, load.busy_service),
        "prefix_gain": (lambda: prefixes.gain(Alike()), prefixes.begin_alike),
        "replicas": (shape, replicas.one_or_eight),
        "pools_token": (lambda: 1e3 * pools.load(Two(), APART).tpot, pools.two_pools),
        "drafts_many": (lambda: drafts.gain(drafts.Setting(batch=256)), drafts.small_and_large),
        "here_batch": (lambda: here.gain(here.Setting()), here.decode_here),
    },
    numbers={
        "prompt": f"{Phases().prompt:,}",
        "answer": ANSWER,
        "steps": ANSWER - 1,
        "prefill": lambda: show(parts(Phases())[0].total, "s"),
        "weights": lambda: show(bytes_read(served(Phases())[1].shard), "B"),
        "each": lambda: show(token(), "s"),
        "fast_least": lambda: min(too_fast()),
        "fast_most": lambda: max(too_fast()),
        "longer_8": lambda: token(batch=8) / token() - 1,
        "more_8": lambda: 8 * token() / token(batch=8),
        "longer_64": lambda: token(batch=64) / token(),
        "ceiling": ceiling,
        "ridge": ridge,
        "h200": lambda: token() / token(gpu="h200-pod"),
        "int4": lambda: token() / token(weights="int4"),
        "int4_published": lambda: (
            row("gptfast-a100-llama2-7b-1-int4").published
            / row("gptfast-a100-llama2-7b-1").published
        ),
        "int4_row": lambda: (
            row("gptfast-a100-llama2-7b-1-int4").predicted
            / row("gptfast-a100-llama2-7b-1").predicted
        ),
        "seventy": lambda: show(token(network="llama3-70b", weights="int4"), "s"),
        "left": left,
        "memory": lambda: show(served(Phases())[0].machine.device.memory, "B"),
        "token": lambda: sequence_bytes(1),
        "sequence": lambda: sequence_bytes(THIRTEEN.tokens),
        "llama3": count,
        "multi": lambda: count(MULTI),
        "grouped": count,
        "shared": lambda: count(SHARED),
        "fp8": lambda: count(cache="fp8"),
        "int4_fit": lambda: count(weights="int4"),
        "held": lambda: show(held(), "B"),
        "left_8b": lambda: left("llama3-8b"),
        "freed": lambda: show(held() - held("int4"), "B"),
        "long_count": lambda: count(tokens=131072),
        "long_rate": lambda: rate(131072),
        "short_rate": lambda: rate(4096),
        "gpus_2": lambda: count(network="llama3-70b", gpus=2),
        "gpus_4": lambda: count(network="llama3-70b", gpus=4),
        "gpus_8": lambda: count(network="llama3-70b", gpus=8),
        "long_full": lambda: show(long_time(lengths.FULL), "s"),
        "long_linear": lambda: show(
            lengths.of(Long(), lengths.HYBRID)[0].prefill(Long().tokens).terms["arithmetic"], "s"
        ),
        "long_hybrid": lambda: show(long_time(), "s"),
        "long_million": lambda: show(long_time(tokens=2**20), "s"),
        "long_million_full": lambda: show(long_time(lengths.FULL, tokens=2**20), "s"),
        "wall_64": lambda: lengths.wall(SIXTY_FOUR),
        "token_full": lambda: show(lengths.time_of(SIXTY_FOUR, lengths.FULL), "s"),
        "token_hybrid": lambda: show(lengths.time_of(SIXTY_FOUR, lengths.HYBRID), "s"),
        "long_2": lambda: show(long_time(every=2), "s"),
        "long_16": lambda: show(long_time(every=16), "s"),
        "rate": FULL.rate,
        "static_first": lambda: show(load.felt(load.Setting(batching=load.STATIC)).first, "s"),
        "own_prompt": own_prompt,
        "longest": lambda: max(each.answer for each in load.simulated(FULL).requests),
        "static_mean": lambda: load.simulated(load.Setting(batching=load.STATIC)).mean_batch,
        "knee_16": 24,
        "knee_4": 16,
        "first_4": lambda: first(batch=4, rate=16),
        "pause": lambda: pause(load.CONTINUOUS),
        "pause_chunks": lambda: pause(load.CHUNKED),
        "first_8": lambda: first(rate=8),
        "first_8_chunks": lambda: first(rate=8, batching=load.CHUNKED),
        "first_48": lambda: first(rate=48),
        "first_48_chunks": lambda: first(rate=48, batching=load.CHUNKED),
        "alike": f"{Alike().shared + Alike().own:,}",
        "alike_shared": f"{Alike().shared:,}",
        "alike_prefixes": Alike().prefixes,
        "alike_full": lambda: show(means(Alike())[ALL].total, "s"),
        "alike_hit": lambda: show(means(Alike())[HIT].total, "s"),
        "alike_wanted": lambda: show(wanted(Alike()), "B"),
        "alike_room": lambda: show(room(Alike()), "B"),
        "alike_share": hit,
        "alike_times": lambda: means(Alike())[ALL].total / means(Alike())[HIT].total,
        "alike_16": lambda: hit(prefixes=16),
        "alike_256": lambda: hit(prefixes=256),
        "alike_fp8": lambda: hit(prefixes=256, memory="H100 with an fp8 cache"),
        "alike_own": lambda: hit(own=2048),
        "alike_own_gain": lambda: prefixes.gain(Alike(own=2048)),
        "alike_fit": lambda: stored(Alike()).requests,
        "alike_fit_own": lambda: stored(Alike(own=2048)).requests,
        "alike_one": lambda: stored(Alike(prefixes=1)).requests,
        "two_rate": Two().rate,
        "two_prompt": f"{Two().prompt:,}",
        "two_mixed": lambda: next_token(MIXED),
        "two_prefill": lambda: show(pools.prices().prefill(Two().prompt).total, "s"),
        "two_way": lambda: show(pools.way(Two()), "s"),
        "two_cache": lambda: show(pools.cache(Two()), "B"),
        "two_best": best_pools,
        "two_in": lambda: within(MIXED),
        "two_in_chunks": lambda: within(MIXED_CHUNKS),
        "two_ttft": lambda: show(pools.load(Two(), APART).ttft, "s"),
        "two_ttft_mixed": lambda: show(pools.load(Two(), MIXED).ttft, "s"),
        "two_first": lambda: show(pools.load(Two(pool=3), APART).wait, "s"),
        "loose_best": lambda: best_pools(limit=50, prompt=8192),
        "loose_mixed": lambda: within(MIXED_CHUNKS, limit=50, prompt=8192),
        "tight_best": lambda: best_pools(prompt=8192),
        "tight_mixed": lambda: within(MIXED_CHUNKS, prompt=8192),
        "slow_way": lambda: show(pools.way(Two(prompt=8192, link=SLOW)), "s"),
        "slow_token": lambda: next_token(prompt=8192, rate=4, link=SLOW),
        "quick_token": lambda: next_token(prompt=8192, rate=4),
        "room_2": lambda: room_for(2),
        "network_8": network_share,
        "best_10": lambda: shape(0.010),
        "best_20": lambda: shape(0.020),
        "best_fp8": lambda: shape(weights="fp8"),
        "room_fp8": lambda: room_for(2, "fp8"),
        "quick_8b": lambda: quickest_of(8),
        "slow_8b": lambda: quickest_of(1),
        "dearer_8b": lambda: dearer(8),
        "dearer_1024": lambda: dearer(1024),
        "drafts": drafts.Setting().drafts,
        "more": drafts.Setting().drafts,
        "acceptance": drafts.Setting().acceptance,
        "tokens": lambda: expected_tokens(drafts.Setting().acceptance, drafts.Setting().drafts),
        "gain_one": lambda: drafts.gain(drafts.Setting()),
        "even": lambda: drafts.even(drafts.Setting()),
        "verify_more": lambda: verified(1) - 1,
        "verify_256": lambda: verified(256),
        "best": lambda: drafts.best(drafts.Setting()),
        "best_sure": lambda: drafts.best(drafts.Setting(acceptance=0.9)),
        "best_64": lambda: drafts.best(drafts.Setting(batch=64)),
        "gain_8b": lambda: drafts.gain(drafts.Setting("Llama 3 8B")),
        "gain_8b_more": lambda: drafts.gain(drafts.Setting("Llama 3 8B", acceptance=0.8)),
        "cost_8b": lambda: drafts.cost(drafts.Setting("Llama 3 8B")),
        "cost_1b": lambda: drafts.cost(drafts.Setting()),
        "gpt_gain": lambda: drafts.published()[0],
        "gpt_cost": lambda: drafts.published()[1],
        "gpt_acceptance": lambda: drafts.published()[2],
        "here_weights": lambda: show(Prices(here.small(here.Setting(), 1)).shard.weights, "B"),
        "here_batch": here.Setting().batch,
    },
    draws={"own_cache": own_cache},
    tables={"published": published_table},
)
ask = lesson.ask
