"""Problems of module 13, serving."""

from lib_dlhpc.explore.serving import drafts, lengths, replicas
from lib_dlhpc.explore.serving.memory import Setting as Room
from lib_dlhpc.explore.serving.memory import fit, heads_of
from lib_dlhpc.explore.serving.phases import ANSWER, parts, served
from lib_dlhpc.explore.serving.phases import Setting as Phases
from lib_dlhpc.explore.serving.served import PER_NODE, bytes_read, service
from lib_dlhpc.serving.price import Prices
from lib_dlhpc.serving.published import published
from lib_dlhpc.serving.speculate import expected_tokens
from lib_dlhpc.teaching.problem_texts import Numbers, written
from lib_dlhpc.teaching.problems import PAGE, Cases

draw: Cases = globals().get("draw", PAGE)

thirteen = Room(network="llama2-13b", tokens=draw.any([Room().tokens, 2048, 8192]))
own = fit(thirteen, heads_of(thirteen))
LAYERS, HEADS, SIZE = 40, 40, 128  # of Llama 2 13B; a head has SIZE numbers
token = 2 * LAYERS * HEADS * SIZE * 2
step, bandwidth = (
    parts(Phases())[1].total / (ANSWER - 1),
    served(Phases())[0].machine.device.memory_bandwidth,
)
TOKENS, WINDOW = draw.any([65536, 98304, 262144]), draw.any([4096, 1024, 2048])
FULL = draw.any([8, 4, 16])  # layers per layer with full attention
GROUPED = 2 * 8 * SIZE * 2  # B of a token in a layer of Llama 3 8B
wide = lengths.Setting(tokens=TOKENS, window=WINDOW, every=FULL)
full = lengths.LAYERS // FULL
weights = bytes_read(served(Phases())[1].shard)
point = replicas.chosen(replicas.Setting())
rate, price = point.tokens_per_second, replicas.Setting().price
# requests/s, and those in the service
RATE, HELD = (draw.any([12, 8, 15, 20]), draw.any([40, 50, 70, 90]))
AHEAD, TAKEN = draw.any([4, 3, 6]), draw.any([0.7, 0.8, 0.6])
drafted = drafts.Setting(drafts=AHEAD, acceptance=TAKEN)
guessed, checked = (each.total for each in drafts.step(drafted))
plain, tokens = drafts.plain(1).total, expected_tokens(TAKEN, AHEAD)
further, HARDER = drafted._replace(drafts=2 * AHEAD), draw.any([0.3, 0.4, 0.2])
longer_guess, longer_check = (each.total for each in drafts.step(further))
most, few = expected_tokens(TAKEN, 2 * AHEAD), expected_tokens(HARDER, AHEAD)

OVER, SEEN = draw.any([8, 4, 2]), draw.any([30_000, 50_000, 80_000])
measured = {row.name: row.published for row in published()}
one, split = (measured[f"gptfast-a100-llama2-7b-{each}"] for each in (1, OVER))
divided = (1 / one - 1 / split) / (1 - 1 / OVER)  # s of a token
BLOCKS, LATENT, TURNED = 61, 512, 64  # of DeepSeek-V3
latent = 2 * BLOCKS * (LATENT + TURNED) * SEEN
CHOSEN, INDEX = 2048, 128  # DeepSeek-V3.2: tokens that attention reads, size of an indexer's key
LONG = draw.any([100_000, 32_000, 65_000])
MIXTURES, EXPERTS, WIDTH, INNER, COPIES = 58, 256, 7168, 2048, 32  # of DeepSeek-V3
GROUP, expert = draw.any([144, 72, 32]), 3 * WIDTH * INNER  # GPUs; B of an expert in fp8
FEW, MANY = 1, draw.any([64, 128])  # sequences
BLOCK, PASSES = draw.any([(32, 8), (16, 4), (32, 4)])
waits, waits_many = (drafts.plain(batch).total for batch in (FEW, MANY))  # s of a decode step
fills, fills_many = (drafts.verified(BLOCK - 1, batch).total for batch in (FEW, MANY))
THOUGHT, CHAINS = draw.any([32_768, 16_384]), draw.any([8, 4, 16])  # tokens, of all chains
thinker = Prices(service("llama3-70b", "h100-pod", {"prompt": 1024}, devices=PER_NODE))
chain = THOUGHT // CHAINS
in_one, in_each = thinker.decode(1, 1024 + THOUGHT / 2), thinker.decode(CHAINS, 1024 + chain / 2)


def held_by(group: int) -> float:
    """Return the B of experts that each of a group of GPUs holds: its weights, less those of all other layers."""
    load, copies = {"prompt": 1024}, COPIES if group > 1 else 0
    spread = {"replicas": group, "experts": group, "redundant": copies, "precision": "fp8"}
    weights = Prices(service("deepseek-v3", "h800-pod", load, **spread)).shard.weights
    alone = Prices(service("deepseek-v3", "h800-pod", load, precision="fp8")).shard.weights
    return weights - (alone - MIXTURES * EXPERTS * expert)


def cache_time(network: str) -> float:
    """Return the s in which a decode step of one sequence of LONG tokens reads the cache, in fp8."""
    fp8 = {"precision": "fp8", "cache_precision": "fp8"}
    replica = service(network, "h200-pod", {"prompt": 1024}, devices=PER_NODE, **fp8)
    return Prices(replica).decode(1, LONG).cache


PROBLEMS = written(
    globals(),
    cache=Numbers(own.sequence, total=token * thirteen.tokens),
    token_waits=Numbers(
        100 * (weights / bandwidth) / (parts(Phases())[1].total / (ANSWER - 1)),
        reads=weights / bandwidth,
        share=100 * weights / bandwidth / step,
    ),
    little=Numbers(HELD / RATE, stays=HELD / RATE),
    million=Numbers(
        point.cost,
        per_second=PER_NODE * price / 3600,
        dollars=1e6 / round(rate) * PER_NODE * price / 3600,
    ),
    windows=Numbers(
        lengths.bytes_of(wide, lengths.MIXED),
        in_full=full * TOKENS * GROUPED,
        in_windows=(lengths.LAYERS - full) * WINDOW * GROUPED,
        total=(full * TOKENS + (lengths.LAYERS - full) * WINDOW) * GROUPED,
    ),
    drafts=Numbers(
        drafts.gain(drafted), time=guessed + checked, speedup=tokens / (guessed + checked) * plain
    ),
    twice_as_many=Numbers(
        drafts.gain(further),
        ahead=2 * AHEAD,
        time=longer_guess + longer_check,
        speedup=most / (longer_guess + longer_check) * plain,
    ),
    harder_text=Numbers(
        drafts.gain(drafted._replace(acceptance=HARDER)),
        speedup=few / (guessed + checked) * plain,
        without_own=(few - 1) / (guessed + checked) * plain,
    ),
    published=Numbers(
        (OVER / split - 1 / one) / (OVER - 1),
        alone=1 / one,
        together=1 / split,
        rest=1 / one - divided,
    ),
    sparse=Numbers(
        cache_time("deepseek-v3") / cache_time("deepseek-v3.2"),
        numbers=LATENT + TURNED,
        dense=(LATENT + TURNED) * LONG,
        indexed=INDEX * LONG,
        attended=(LATENT + TURNED) * CHOSEN,
        ratio=(LATENT + TURNED) * LONG / (INDEX * LONG + (LATENT + TURNED) * CHOSEN),
        no_indexer=LONG / CHOSEN,
    ),
    cache_per_rank=Numbers(
        PER_NODE
        * Prices(
            service("deepseek-v3", "h200-pod", {"prompt": 1024}, devices=PER_NODE)
        ).shard.kv_cache_bytes(SEEN),
        token=2 * (LATENT + TURNED),
        copies=PER_NODE * latent,
    ),
    wide_experts=Numbers(
        held_by(GROUP),
        each=(EXPERTS + COPIES) // GROUP,
        held=MIXTURES * (EXPERTS + COPIES) // GROUP * expert,
        no_copies=MIXTURES * EXPERTS / GROUP * expert,
    ),
    blocks=Numbers(
        BLOCK / PASSES * waits_many / fills_many,
        per_pass=BLOCK / PASSES,
        alone=BLOCK / PASSES * waits / fills,
        together=BLOCK / PASSES * waits_many / fills_many,
    ),
    chains=Numbers(
        thinker.answers(1, 1024, THOUGHT).total / thinker.answers(CHAINS, 1024, chain).total,
        one=in_one.total,
        all=in_each.total,
        single=THOUGHT * in_one.total,
        several=chain * in_each.total,
        ratio=THOUGHT * in_one.total / (chain * in_each.total),
        of_a_step=in_one.total / in_each.total,
    ),
)
