"""Exam questions of module 13, serving."""

from functools import cache

from lib_dlhpc.explore.serving.load import CHUNKED, CONTINUOUS, felt
from lib_dlhpc.explore.serving.load import Setting as Busy
from lib_dlhpc.explore.serving.replicas import Setting as Eight
from lib_dlhpc.explore.serving.replicas import chosen
from lib_dlhpc.explore.serving.served import bytes_read, service
from lib_dlhpc.serving.predict import room_of
from lib_dlhpc.serving.price import Prices
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.problems import Step
from lib_dlhpc.teaching.questions import Draw, Open, Question

NETWORKS = {
    "mistral-7b": "Mistral 7B",
    "qwen2.5-7b": "Qwen 2.5 7B",
    "gemma-7b": "Gemma 7B",
    "llama2-7b": "Llama 2 7B",
    "opt-6.7b": "OPT 6.7B",
    "mpt-7b": "MPT 7B",
    "llama2-70b": "Llama 2 70B",
    "qwen2.5-72b": "Qwen 2.5 72B",
}
GPUS = {"selene": "A100 of 80 GB", "h200-pod": "H200", "b200-pod": "B200", "h100-pod": "H100"}
SMALL = [("mistral-7b", "selene"), ("gemma-7b", "h200-pod"), ("qwen2.5-7b", "b200-pod")]
SMALL += [("mpt-7b", "selene"), ("opt-6.7b", "h200-pod")]


@cache
def prices(network: str, machine: str, gpus: int = 1) -> Prices:
    """Return the prices of a replica in bf16."""
    return Prices(service(network, machine, {"prompt": 1024}, devices=gpus))


@cache
def left_of(network: str, machine: str, gpus: int) -> float:
    """Return the bytes that are left on a GPU for caches."""
    own = service(network, machine, {"prompt": 4096, "answer": 1}, devices=gpus)
    return float(room_of(own, Prices(own)))


def one_user(draw: Draw) -> Question:
    """A peak that a single sequence cannot use."""
    network, machine = draw.any(SMALL)
    faster, tokens = draw.between(2.0, 4.0, 0.5), draw.between(512, 6144, 256)
    step = prices(network, machine).decode(1, tokens).total
    return Question(
        "one user",
        f"{NETWORKS[network]} in bf16 on one {GPUS[machine]} decodes one sequence: {show(step, 's')} per token after a"
        f" prompt of {tokens:,} tokens. Another GPU has {faster} times the FLOP/s and the same memory bandwidth. On"
        " that GPU, a token takes about",
        show(step, "s"),
        {
            show(step / faster, "s"): "Peak FLOP/s predicts time.",
            show(step / faster**2, "s"): "The gain counts twice, in prefill and in decode.",
            show(faster * step, "s"): "Faster arithmetic waits longer for memory.",
        },
        "Weights are read from memory for each token; arithmetic is idle for most of a step.",
        [Step("Memory has the same bandwidth: as before", step, "s")],
    )


def which_phase(draw: Draw) -> Question:
    """The time of an answer next to that of its prompt."""
    network, machine = draw.any(SMALL)
    prompt, answer = draw.between(2000, 6000, 250), draw.between(220, 600, 20)
    own = prices(network, machine)
    first, rest = own.prefill(prompt).total, own.answers(1, prompt, answer).total
    step = own.decode(1, prompt).total
    return Question(
        "which phase",
        f"{NETWORKS[network]} runs on one {GPUS[machine]}. A decode step reads {show(bytes_read(own.shard), 'B')} of"
        f" weights; with launches and the cache of a prompt of {prompt:,} tokens it takes {show(step, 's')}. Prefill"
        f" of the prompt takes {show(first, 's')}. How long does it take to decode the {answer} tokens of the answer,"
        " after the prompt?",
        show(rest, "s"),
        {
            show(first, "s"): "The prompt is the long part of an answer.",
            show(first + rest, "s"): "The prompt is processed once more for the answer.",
            show(
                (prompt + answer) * step, "s"
            ): "The tokens of a prompt are decoded one by one, too.",
        },
        "Each token takes its own pass, which reads all weights; the prompt is in the cache.",
        [Step("Tokens of the answer times a step", answer * step, "s")],
    )


def a_batch(draw: Draw) -> Question:
    """What a batch shares."""
    weights, cache_ = draw.between(4, 80, 2), draw.between(0.2, 2.0, 0.1)
    batch = draw.between(4, 16, 1)
    longer = (weights + batch * cache_) / (weights + cache_)
    return Question(
        "a batch",
        f"A decode step waits only for memory: it reads {weights} GB of weights, and a cache of {cache_} GB for each"
        f" sequence. How many times as long does a step take for {batch} sequences as for one?",
        f"{longer:.2f}",
        {
            f"{batch:.2f}": "A larger batch makes every token slower in proportion.",
            f"{batch**0.5:.2f}": "Cost grows with the root of the batch.",
            f"{(1 + batch) / 2:.2f}": "Half of a step reads weights, and half the caches.",
        },
        "The weights are read once for all sequences; only the caches add up.",
        [
            Step("Read for one", weights + cache_, "GB"),
            Step("Read for all", weights + batch * cache_, "GB"),
            Step("One over the other", longer),
        ],
    )


def what_fills_it(draw: Draw) -> Question:
    """Sequences beside the weights of a network with as many heads of keys as of queries."""
    network, heads = draw.any(
        [("llama2-7b", 32), ("opt-6.7b", 32), ("mpt-7b", 32), ("gemma-7b", 16)]
    )
    tokens = draw.between(1000, 6000, 100)
    own, left = prices(network, "h200-pod"), left_of(network, "h200-pod", 1)
    each, weights = own.shard.kv_cache_bytes(tokens), own.shard.weights
    fitting = int(left // each)
    return Question(
        "what fills it",
        f"{NETWORKS[network]} in bf16 runs on one H200, with {show(weights, 'B')} of weights, {heads} heads of keys"
        f" and values, and sequences of {tokens:,} tokens. {show(left, 'B')} are left for caches, and a token takes"
        f" {show(each / tokens, 'B')}. About how many sequences fit?",
        f"{fitting}",
        {
            f"{int((left + weights) // each)}": "Weights and caches take turns in memory.",
            f"{2 * fitting}": "Keys are stored, values are not.",
            "As many as the service allows": "The weights fill the memory.",
        },
        "The cache of a sequence is its tokens times the bytes per token. Its size limits the batch.",
        [Step("Cache of a sequence", each, "B"), Step("What is left, over that", left / each)],
    )


def twice_the_ranks(draw: Draw) -> Question:
    """Room for caches on twice the GPUs."""
    network, machine = draw.any(
        [("llama2-70b", "h100-pod"), ("qwen2.5-72b", "selene"), ("llama2-70b", "h200-pod")]
    )
    tokens = draw.between(2000, 8000, 100)
    four, eight = (
        (left_of(network, machine, gpus), prices(network, machine, gpus).shard) for gpus in (4, 8)
    )
    few, many = (int(left // shard.kv_cache_bytes(tokens)) for left, shard in (four, eight))
    left, each, weights = four[0], four[1].kv_cache_bytes(tokens), four[1].weights
    return Question(
        "twice the ranks",
        f"{NETWORKS[network]} in bf16 on 4 {GPUS[machine]} leaves {show(left, 'B')} of each GPU for caches, beside"
        f" {show(weights, 'B')} of weights: room for {few} sequences of {tokens:,} tokens, {show(each, 'B')} per GPU"
        " for each. About how many sequences fit on 8?",
        f"{many}",
        {
            f"{2 * few}": "Twice the GPUs hold twice the sequences.",
            f"{few}": "Each GPU has the caches of all sequences.",
            f"{4 * few}": "Memory grows with the square of the ranks.",
        },
        "The weights take the same total of bytes, so the memory left for caches grows faster than the number of"
        " GPUs.",
        [
            Step("Left beside half of the weights", left + weights / 2, "B"),
            Step("Over half of the cache", (left + weights / 2) / (each / 2)),
        ],
    )


def more_requests(draw: Draw) -> Question:
    """The mean time of M/M/1 near saturation."""
    before, after = draw.between(0.4, 0.8, 0.01), draw.between(0.86, 0.97, 0.01)
    longer = (1 - before) / (1 - after)
    return Question(
        "more requests",
        "One server handles one request at a time (M/M/1: random arrivals and service times), and is busy for"
        f" {100 * before:.0f}% of the time. The request rate rises until it is busy for {100 * after:.0f}%. By which"
        " factor does the mean time of a request, wait and service, grow?",
        f"{longer:.2f}",
        {
            f"{after / before:.2f}": "Time grows with the requests.",
            f"{1.0:.2f}": "A busy service is a good service.",
            f"{(after / before) ** 2:.2f}": "Time grows with the square of the requests.",
        },
        f"The mean time is the service time over (1 - utilization), which shrinks from {1 - before:.2f} to"
        f" {1 - after:.2f}.",
        [
            Step("1 - utilization, before", 1 - before),
            Step("And after", 1 - after),
            Step("One over the other", longer),
        ],
    )


def chunks(draw: Draw) -> Question:
    """What chunked prefill changes, and what it costs."""
    rate, prompt = draw.of([(5, 3000), (6, 4000), (10, 2000), (4, 6000)])
    whole, pieces = (
        felt(Busy(rate=rate, prompt=prompt, batching=each)) for each in (CONTINUOUS, CHUNKED)
    )
    return Question(
        "chunks",
        f"At {rate} requests/s with prompts of {prompt:,} tokens, answers pause for {show(whole.pause, 's')} (90% of"
        " pauses are shorter). What does chunked prefill change?",
        f"The pause, to {show(pieces.pause, 's')}; a first token comes later",
        {
            "Both the pause and the time to the first token get shorter": "Chunked prefill makes everything faster.",
            "Nothing, the same work is done": "Order does not matter if the work is the same.",
            "The first token comes sooner, the pause stays": (
                "A chunk of a prompt is done sooner than the whole prompt."
            ),
        },
        "Each step processes a chunk of a prompt and one token of each answer, so no answer stops for a whole prompt.",
    )


def few_users(draw: Draw) -> Question:
    """Ranks or replicas where weights are what a step reads."""
    network = draw.of(["mistral-7b", "opt-6.7b", "gemma-7b"])
    alone, ranks = (chosen(Eight(network=network, batch=8, ranks=g)) for g in (1, 8))
    return Question(
        "few users",
        f"{NETWORKS[network]} serves eight users in all on eight H100s, either as one replica on eight GPUs or as"
        " eight replicas on one GPU each. The single replica is",
        "faster and cheaper per token",
        {
            "faster and more expensive per token": "The fastest answer is the most expensive.",
            "slower and cheaper per token": "Exchanges take longer than reading weights.",
            "as fast and as cheap": "The same GPUs do the same work.",
        },
        f"Only one copy of the weights is read: {show(ranks.tpot, 's')} per token and ${ranks.cost:.2g} per million"
        f" tokens, against {show(alone.tpot, 's')} and ${alone.cost:.2g}. At large batches the order is reversed.",
    )


def twice_the_split(draw: Draw) -> Question:
    """How much quicker a token is on twice the tensor-parallel ranks."""
    token, share, ranks = draw.between(15.5, 60.0, 0.5), draw.between(12, 45, 1), draw.any([2, 4])
    stays = token * share / 100
    return Question(
        "twice the split",
        f"A replica decodes one sequence at a time on {ranks} tensor-parallel ranks. A token takes {token} ms, of"
        f" which launches and two allreduces per layer take {share}%, and reading weights the rest. The replica gets"
        f" {2 * ranks} ranks; launches and allreduces take as long as before. How long does a token take?",
        show((token + stays) / 2e3, "s"),
        {
            show(token / 2e3, "s"): "Twice the GPUs halve the time of a token.",
            show(token / 4e3, "s"): "Each rank reads half, and computes half.",
            show(
                (token - stays / 2) / 1e3, "s"
            ): "Ranks divide launches, and all read the weights.",
        },
        "Each rank reads half as many weights, but launches and allreduces take as long as before.",
        [
            Step("Launches and allreduces, as before", stays, "ms"),
            Step("Half of the rest", (token - stays) / 2, "ms"),
            Step("Both", (token + stays) / 2e3, "s"),
        ],
    )


def windows(draw: Draw) -> Question:
    """The cache of a network most of whose layers have a window."""
    tokens, every = draw.between(24, 120, 1) * 1000, draw.any([4, 5, 6, 8])
    window = draw.any([2000, 4000])
    full, seen = 100 / every, 100 * window / tokens
    share = full + (100 - full) * seen / 100
    return Question(
        "windows",
        f"In a language model, one layer in {every} attends to all tokens, and the others to the last {window:,};"
        f" otherwise, all layers are alike. After {tokens:,} tokens, how large is the cache of a sequence, compared"
        " with the same model in which all layers attend to all tokens?",
        f"{share:.1f}%",
        {
            f"{full:.1f}%": "Windowed layers need no cache.",
            f"{seen:.1f}%": "All layers store only a window.",
            f"{100 - full:.1f}%": "One full layer in a few means that few layers have a window.",
        },
        "Full layers store all tokens; each of the others stores one window.",
        [
            Step("Full layers", full, "%"),
            Step("The others", share - full, "%"),
            Step("Both", share, "%"),
        ],
    )


def sparse(draw: Draw) -> Question:
    """The bytes that sparse attention reads, with those of its indexer."""
    latent, index = draw.between(448, 640, 32), draw.between(96, 160, 16)
    chosen, tokens = draw.between(1000, 3000, 250), draw.between(24, 64, 1) * 1000
    every, some = latent * tokens, index * tokens + latent * chosen
    return Question(
        "sparse",
        f"Attention reads {latent} numbers of each earlier token in each layer. Sparse attention reads as many of only"
        f" {chosen:,} tokens; to choose them, its indexer reads {index} other numbers of each earlier token. All"
        f" numbers take 1 byte. After {tokens:,} tokens, by what factor does this reduce the bytes of cache"
        " read per step?",
        f"{every / some:.2f}",
        {
            f"{tokens / chosen:.2f}": "Choosing tokens reads nothing.",
            f"{latent / index:.2f}": "The chosen tokens are read for nothing.",
            f"{every / (index + latent) / chosen:.2f}": "An indexer reads only what it chooses.",
        },
        "Attention to the chosen tokens costs the same at any length, but the indexer still reads a key of each.",
        [
            Step("Full attention, per layer", every / 1e6, "MB"),
            Step("Indexer and attention to the chosen tokens", some / 1e6, "MB"),
            Step("One over the other", every / some),
        ],
    )


OPEN = Open(
    "A service of one model on eight GPUs meets its target for the first token, but users complain that answers"
    " pause. One colleague proposes larger batches to save cost, another twice as many GPUs per replica. Explain the"
    " pauses, judge both proposals, and say what you would try first.",
    "A step that prefills a whole prompt stops all answers. Chunked prefill, or dedicating some replicas to prefill,"
    " removes the pause without more hardware. Larger batches lengthen a step and fill the cache memory. More ranks"
    " read weights faster, but launches and allreduces take as long as before, and with half as many replicas"
    " requests wait longer under load.",
    {
        "explains the pause by prompts that are prefilled between the steps of answers": 2,
        "judges the larger batch: time of a step, room for caches": 1,
        "judges more ranks per replica: what is halved, what stays the same, fewer replicas": 2,
        "first tries what needs no hardware": 1,
    },
)

QUESTIONS = [
    one_user,
    which_phase,
    a_batch,
    what_fills_it,
    twice_the_ranks,
    Question(
        "empty places",
        "With static batching, 1 of 10 users waits a second for a first token, although the GPU on average decodes"
        " only a quarter of the largest batch. Why?",
        "Slots of finished answers stay empty until the longest ends",
        {
            "The batch was full when it began, so all were served": "A full batch means that nobody waits.",
            "The GPU is too slow for the rate": "A request that waits is waiting for arithmetic.",
            "Prompts are prefilled one by one, before any answer can start": (
                "The prompt decides how long a user waits."
            ),
        },
        "On the same GPU, continuous batching fills a slot right after the step in which it became empty.",
    ),
    more_requests,
    chunks,
    few_users,
    twice_the_split,
    windows,
    sparse,
]
