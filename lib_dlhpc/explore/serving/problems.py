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
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.problems import FADED, PAGE, WORKED, Cases, Problem, Step, Trap

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
RATE, HELD = (
    draw.any([12, 8, 15, 20]),
    draw.any([40, 50, 70, 90]),
)  # requests/s, and those in the service
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


def cache_time(network: str) -> float:
    """Return the s in which a decode step of one sequence of LONG tokens reads the cache, in fp8."""
    fp8 = {"precision": "fp8", "cache_precision": "fp8"}
    replica = service(network, "h200-pod", {"prompt": 1024}, devices=PER_NODE, **fp8)
    return Prices(replica).decode(1, LONG).cache


PROBLEMS = [
    Problem(
        "Bytes of a cache",
        f"A network has {LAYERS} layers with {HEADS} heads of keys and values, {SIZE} numbers each, 2 bytes per number."
        f" How many bytes of KV cache does a sequence of {thirteen.tokens:,} tokens take?",
        own.sequence,
        Step("Bytes per token: keys and values of all heads in all layers", token, "B"),
        Step("Bytes of all tokens", token * thirteen.tokens, "B"),
    ),
    Problem(
        "What a token waits for",
        f"A GPU reads {show(float(bandwidth), 'B/s')} from memory, and a decode step reads {show(weights, 'B')} of"
        f" weights. With one sequence a step takes {show(step, 's')}. If the GPU reads weights at full bandwidth, what"
        " share of the step does that take?",
        100 * (weights / bandwidth) / (parts(Phases())[1].total / (ANSWER - 1)),
        Step("Time to read the weights: weights over bandwidth", weights / bandwidth, "s"),
        Step("That time over the step", 100 * weights / bandwidth / step, "%"),
    ),
    Problem(
        "Little's law",
        f"{RATE} requests arrive each second, and {HELD} are in the service on average. How long does a request stay"
        " in the service on average?",
        HELD / RATE,
        Step("Requests in the service over their rate", HELD / RATE, "s"),
    ),
    Problem(
        "A million tokens",
        f"{PER_NODE} GPUs at ${price:.2f} an hour each generate {rate:,.0f} tokens/s together. What do a million tokens"
        " cost in dollars?",
        point.cost,
        Step("Dollars per second of all GPUs", PER_NODE * price / 3600),
        Step(
            "Times the seconds that a million tokens take",
            1e6 / round(rate) * PER_NODE * price / 3600,
        ),
    ),
    Problem(
        "Windows",
        f"Each of {lengths.LAYERS} layers has 8 heads of keys and values, {SIZE} numbers each, 2 bytes per number. One"
        f" layer in {FULL} attends to all tokens, the others only to the last {WINDOW:,}. How many bytes of KV cache"
        f" does a sequence of {TOKENS:,} tokens take?",
        lengths.bytes_of(wide, lengths.MIXED),
        Step("Bytes per token and layer: keys and values", GROUPED, "B"),
        Step(f"All tokens in the {full} layers with full attention", full * TOKENS * GROUPED, "B"),
        Step(
            "The tokens of a window in the other layers",
            (lengths.LAYERS - full) * WINDOW * GROUPED,
            "B",
        ),
        Step("Sum of the two", (full * TOKENS + (lengths.LAYERS - full) * WINDOW) * GROUPED, "B"),
    ),
    Problem(
        "Drafts",
        f"Llama 3 70B decodes a token in {show(plain, 's', 4)}. Now Llama 3.2 1B drafts {AHEAD} tokens before each"
        f" step, in {show(guessed, 's', 4)} in all, and the step verifies them in {show(checked, 's', 4)}. A draft is"
        f" accepted with probability a = {TAKEN}, provided that those before it were, and each step adds one token of"
        " the large model itself. How many times as fast does an answer come?",
        drafts.gain(drafted),
        Step(f"Mean number of tokens per step: 1 + a + a² + ... up to the power {AHEAD}", tokens),
        Step("Time of a step: drafts and verification", guessed + checked, "s"),
        Step(
            "Speedup: tokens over that time, times the time of a token without drafts",
            tokens / (guessed + checked) * plain,
        ),
        kind=WORKED,
    ),
    Problem(
        "Twice as many drafts",
        f"Twice as many drafts take {show(longer_guess, 's', 4)}, and the step verifies them in"
        f" {show(longer_check, 's', 4)}; the rest is as in problem 6. How many times as fast does an answer come now?",
        drafts.gain(further),
        Step(f"Mean number of tokens per step, up to the power {2 * AHEAD}", most),
        Step("Time of a step: drafts and verification", longer_guess + longer_check, "s"),
        Step(
            "Speedup: tokens over that time, times the time of a token without drafts",
            most / (longer_guess + longer_check) * plain,
        ),
        kind=FADED,
    ),
    Problem(
        "Harder text",
        f"For another kind of text, drafts of problem 6 are accepted with probability {HARDER}. How many times as fast"
        " does an answer come?",
        drafts.gain(drafted._replace(acceptance=HARDER)),
        Step(f"Mean number of tokens per step, up to the power {AHEAD}", few),
        Step(
            "Speedup: tokens over the time of a step, times the time of a token without drafts",
            few / (guessed + checked) * plain,
        ),
        traps=[
            Trap(
                (few - 1) / (guessed + checked) * plain,
                "That leaves out the token of the large model itself, which each step adds.",
            )
        ],
    ),
    Problem(
        "Read a published table",
        f"The README of gpt-fast (PyTorch Labs) lists {one} tokens/s for one sequence of Llama 2 7B on one A100, and"
        f" {split} on {OVER}, tensor-parallel. Suppose that a part of the time of a token is divided by the number of"
        " GPUs, and the rest stays as it is. How long is the rest?",
        (OVER / split - 1 / one) / (OVER - 1),
        Step("Time of a token on one GPU", 1 / one, "s"),
        Step(f"Time of a token on {OVER} GPUs", 1 / split, "s"),
        Step("Part that is divided: the difference of the two over 1 - 1 / GPUs", divided, "s"),
        Step("Rest: the time on one GPU less that part", 1 / one - divided, "s"),
        traps=[
            Trap(
                1 / split,
                f"That is the whole time of a token on {OVER} GPUs. It still contains 1/{OVER} of the divided part.",
            )
        ],
    ),
    Problem(
        "What sparse attention reads",
        f"DeepSeek-V3 reads {LATENT + TURNED} numbers of each earlier token in each layer. DeepSeek-V3.2 reads as many"
        f" of only {CHOSEN:,} tokens, but its indexer first reads {INDEX} other numbers of each earlier token. All"
        f" numbers take 1 B. How many times as many bytes of cache does DeepSeek-V3 read for a token after {LONG:,}"
        " others?",
        cache_time("deepseek-v3") / cache_time("deepseek-v3.2"),
        Step("DeepSeek-V3, per layer", (LATENT + TURNED) * LONG, "B"),
        Step("Indexer, per layer", INDEX * LONG, "B"),
        Step("Attention to what it chose, per layer", (LATENT + TURNED) * CHOSEN, "B"),
        Step(
            "The first over the sum of the others",
            (LATENT + TURNED) * LONG / (INDEX * LONG + (LATENT + TURNED) * CHOSEN),
        ),
        traps=[
            Trap(
                LONG / CHOSEN,
                "That leaves out the indexer, which reads a key of each earlier token.",
            )
        ],
    ),
    Problem(
        "Find the mistake: a cache for each rank",
        f"For each token DeepSeek-V3 caches a latent vector of {LATENT} numbers and {TURNED} rotated ones, 2 B each, in"
        f" each of its {BLOCKS} layers; all heads share them. A plan splits the heads over {PER_NODE} tensor-parallel"
        f" GPUs and assumes that each GPU needs an eighth of the cache. How many bytes does a sequence of {SEEN:,}"
        " tokens really take on all of these GPUs together?",
        PER_NODE
        * Prices(
            service("deepseek-v3", "h200-pod", {"prompt": 1024}, devices=PER_NODE)
        ).shard.cached(SEEN),
        Step("Bytes per token and layer", 2 * (LATENT + TURNED), "B"),
        Step("Bytes of the sequence in all layers", latent, "B"),
        Step(
            "Bytes on all GPUs, each of which needs a whole copy for its heads",
            PER_NODE * latent,
            "B",
        ),
        traps=[
            Trap(
                latent,
                "That is the plan. The heads are divided, but all of them read the same latent vectors.",
            )
        ],
    ),
]
