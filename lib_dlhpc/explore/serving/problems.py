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
from lib_dlhpc.teaching.problems import PAGE, Cases, Problem, Step, Trap

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

OVER, SEEN = draw.any([8, 4, 2]), draw.any([30_000, 50_000, 80_000])
measured = {row.name: row.value for row in published()}
one, split = (measured[f"gptfast-a100-llama2-7b-{each}"] for each in (1, OVER))
divided = (1 / one - 1 / split) / (1 - 1 / OVER)  # s of a token
BLOCKS, LATENT, TURNED = 61, 512, 64  # of DeepSeek-V3
latent = 2 * BLOCKS * (LATENT + TURNED) * SEEN

PROBLEMS = [
    Problem(
        "Bytes of a cache",
        f"A network has {LAYERS} layers with {HEADS} heads of keys and values, {SIZE} numbers each, 2 bytes a number."
        f" How many bytes of cache does a sequence of {thirteen.tokens:,} tokens take?",
        own.sequence,
        Step("A token: keys and values of all heads in all layers", token, "B"),
        Step("All tokens", token * thirteen.tokens, "B"),
    ),
    Problem(
        "What a token waits for",
        f"A GPU reads {show(float(bandwidth), 'B/s')}, and a step of decoding reads {show(weights, 'B')} of"
        f" weights. With one sequence a step takes {show(step, 's')}. For what share of it does the GPU read weights,"
        " at full bandwidth?",
        100 * (weights / bandwidth) / (parts(Phases())[1].total / (ANSWER - 1)),
        Step("Weights over bandwidth", weights / bandwidth, "s"),
        Step("Over the step", 100 * weights / bandwidth / step, "%"),
    ),
    Problem(
        "Little's law",
        f"{RATE} requests arrive each second, and {HELD} are in the service on average. How long does a"
        " request stay there?",
        HELD / RATE,
        Step("Requests over rate", HELD / RATE, "s"),
    ),
    Problem(
        "A million tokens",
        f"{PER_NODE} GPUs at ${price:.2f} an hour make {rate:,.0f} tokens/s. What do a million tokens cost in dollars?",
        point.cost,
        Step("Dollars per second", PER_NODE * price / 3600),
        Step("Times the seconds of a million tokens", 1e6 / round(rate) * PER_NODE * price / 3600),
    ),
    Problem(
        "Windows",
        f"{lengths.LAYERS} layers have 8 heads of keys and values, {SIZE} numbers each, 2 bytes a number. One layer in"
        f" {FULL} sees all tokens, the others the last {WINDOW:,}. How many bytes of cache does a sequence of"
        f" {TOKENS:,} tokens take?",
        lengths.bytes_of(wide, lengths.MIXED),
        Step("A token in a layer: keys and values", GROUPED, "B"),
        Step(f"All tokens, in {full} layers", full * TOKENS * GROUPED, "B"),
        Step("A window in the others", (lengths.LAYERS - full) * WINDOW * GROUPED, "B"),
        Step("Both", (full * TOKENS + (lengths.LAYERS - full) * WINDOW) * GROUPED, "B"),
    ),
    Problem(
        "Drafts",
        f"Llama 3 70B decodes a token in {show(plain, 's', 4)}. Before each step Llama 3.2 1B drafts {AHEAD} tokens, in"
        f" {show(guessed, 's', 4)} in all; the step verifies them in {show(checked, 's', 4)}. A draft is accepted with"
        f" probability {TAKEN}, if those before it were, and a step adds one token of the large model. How many times"
        " as fast does an answer come?",
        drafts.gain(drafted),
        Step("Tokens of a step: 1 + a + a² + ..., up to all drafts", tokens),
        Step("Seconds of a step: drafts and verification", guessed + checked, "s"),
        Step("Tokens over seconds, times those of one token", tokens / (guessed + checked) * plain),
    ),
    Problem(
        "Read a published table",
        f"The README of gpt-fast (PyTorch Labs) lists {one} tokens/s for one sequence of Llama 2 7B on one A100, and"
        f" {split} on {OVER}, tensor-parallel. Suppose that a part of a token's time is divided by the GPUs, and the"
        " rest stays. How long is the rest?",
        (OVER / split - 1 / one) / (OVER - 1),
        Step("A token on one GPU", 1 / one, "s"),
        Step(f"On {OVER}", 1 / split, "s"),
        Step("What is divided: their difference over 1 - 1 / GPUs", divided, "s"),
        Step("What stays", 1 / one - divided, "s"),
        traps=[
            Trap(
                1 / split,
                f"That is a whole token on {OVER} GPUs, in which the divided part is left in part.",
            )
        ],
    ),
    Problem(
        "Find the mistake: a cache for each rank",
        f"DeepSeek-V3 caches a latent vector of {LATENT} numbers and {TURNED} rotated ones, 2 B each, of a token in"
        f" each of its {BLOCKS} layers; all heads share them. A plan splits the heads over {PER_NODE} tensor-parallel"
        f" GPUs and allows each an eighth of the cache. How much does a sequence of {SEEN:,} tokens take on all of"
        " them together?",
        PER_NODE
        * Prices(
            service("deepseek-v3", "h200-pod", {"prompt": 1024}, devices=PER_NODE)
        ).shard.cached(SEEN),
        Step("A token in a layer", 2 * (LATENT + TURNED), "B"),
        Step("A sequence in all layers", latent, "B"),
        Step("On all GPUs, each of which has heads that read it", PER_NODE * latent, "B"),
        traps=[
            Trap(
                latent,
                "That is the plan. Heads are divided, but all of them read the same latent vector.",
            )
        ],
    ),
]
