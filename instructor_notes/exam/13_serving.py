"""Exam questions of module 13, serving."""

from lib_dlhpc.explore.serving.load import CHUNKED, CONTINUOUS, STATIC, felt
from lib_dlhpc.explore.serving.load import Setting as Busy
from lib_dlhpc.explore.serving.memory import Setting as Room
from lib_dlhpc.explore.serving.memory import fit, heads_of
from lib_dlhpc.explore.serving.phases import ANSWER, parts, served
from lib_dlhpc.explore.serving.phases import Setting as Phases
from lib_dlhpc.explore.serving.questions import left
from lib_dlhpc.explore.serving.replicas import Setting as Eight
from lib_dlhpc.explore.serving.replicas import chosen, paths
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.questions import Question

prompt, answer = parts(Phases())
step = answer.total / (ANSWER - 1)
eight = parts(Phases(batch=8))[1].total / answer.total
shard = served(Phases())[1].shard
thirteen = Room(network="llama2-13b")
own = fit(thirteen, heads_of(thirteen))
of_70b = {gpus: fit(Room(network="llama3-70b", gpus=gpus), 8).fitting for gpus in (4, 8)}
static, continuous, chunked = (felt(Busy(batching=each)) for each in (STATIC, CONTINUOUS, CHUNKED))
alone, ranks = (chosen(Eight(network="llama3-8b", batch=8, ranks=g)) for g in (1, 8))
quicker = 100 * (1 - paths(Eight())[8][0].tpot / paths(Eight())[4][0].tpot)
BEFORE, AFTER = 0.8, 0.96  # utilization
longer = (1 - BEFORE) / (1 - AFTER)

QUESTIONS = [
    Question(
        "one user",
        f"Llama 3 8B in bf16 on an H100 decodes one sequence: {show(step, 's')} a token. Another GPU has twice the"
        " FLOP/s and the same memory bandwidth. A token takes about",
        show(step, "s"),
        {
            show(step / 2, "s"): "Peak FLOP/s predicts time.",
            show(step / 4, "s"): "Both phases gain, and each counts.",
            show(2 * step, "s"): "Faster arithmetic waits longer for memory.",
        },
        "Weights are read from memory for each token; arithmetic is idle for most of a step.",
    ),
    Question(
        "which phase",
        f"A prompt of {Phases().prompt:,} tokens, an answer of {ANSWER}, one user, an H100. How long does the answer"
        f" take if the prompt takes {show(prompt.total, 's')}?",
        show(answer.total, "s"),
        {
            show(
                prompt.total * ANSWER / Phases().prompt, "s"
            ): "The prompt is the long part of an answer.",
            show(prompt.total, "s"): "Both are one request, and take equally long.",
            show(
                prompt.total * ANSWER, "s"
            ): "Each token reads the whole prompt through all layers again.",
        },
        "Each token is a pass of its own, and reads all weights; the cache has what the prompt left.",
    ),
    Question(
        "eight users",
        "The same GPU decodes eight sequences instead of one. How many times as long does a step take?",
        f"{eight:.2f}",
        {
            f"{8:.2f}": "A larger batch makes every token slower in proportion.",
            f"{8**0.5:.2f}": "Cost grows with the root of the batch.",
            f"{1 / 8:.2f}": "A batch divides the time of a step among its sequences.",
        },
        "The weights are read once for all eight; only the caches are added.",
    ),
    Question(
        "what fills it",
        f"Llama 2 13B in bf16 on one H100, sequences of {thirteen.tokens:,} tokens. {left()} are left for"
        f" caches, a token takes {show(own.sequence / thirteen.tokens, 'B')}. How many sequences fit?",
        f"{own.fitting}",
        {
            f"{own.fitting * heads_of(thirteen):,}": "The cache has one head of keys and values.",
            f"{2 * own.fitting}": "Keys are stored, values are not.",
            "As many as the service allows": "The weights fill the memory.",
        },
        "Cache of a sequence: its tokens times the bytes of a token. It is the wall of a batch.",
    ),
    Question(
        "twice the ranks",
        f"Llama 3 70B in bf16 on 4 H100 holds {of_70b[4]} sequences of {Room().tokens:,} tokens. How many fit on 8?",
        f"{of_70b[8]}",
        {
            f"{2 * of_70b[4]}": "Twice the GPUs hold twice the sequences.",
            f"{of_70b[4]}": "Each GPU has the caches of all sequences.",
            f"{4 * of_70b[4]}": "Memory grows with the square of the ranks.",
        },
        "The weights take the same bytes in all, so what is left for caches grows faster than the GPUs.",
    ),
    Question(
        "empty places",
        "With static batching 1 of 10 users waits a second for a first token, though the GPU decodes a quarter of the"
        " largest batch on average. Why?",
        "A batch ends with its longest answer; until then its empty places stay empty",
        {
            "The batch was full when it began, so all were served": "A full batch means that nobody waits.",
            "The GPU is too slow for the rate": "Who waits, waits for arithmetic.",
            "Prompts are read one after another": "The prompt decides what a user waits.",
        },
        "Continuous batching fills a place after the step in which it became empty, on the same GPU.",
    ),
    Question(
        "more requests",
        f"One server takes one request at a time, at random times (M/M/1), and is busy for {100 * BEFORE:.0f} % of the"
        f" time. Requests rise until it is busy for {100 * AFTER:.0f} %. By which factor does the mean time of a"
        " request, wait and service, grow?",
        f"{longer:.1f}",
        {
            f"{AFTER / BEFORE:.1f}": "Time grows with the requests.",
            f"{1.0:.1f}": "A busy service is a good service.",
            f"{(AFTER / BEFORE) ** 2:.1f}": "Time grows with the square of the requests.",
        },
        "It is the service time over 1 - utilization, which shrinks to a fifth; the wait alone grows sixfold.",
    ),
    Question(
        "chunks",
        f"At {Busy().rate} requests/s the pause of an answer is {show(continuous.pause, 's')} (90 % are shorter)."
        " What does chunked prefill change?",
        f"The pause, to {show(chunked.pause, 's')}; a first token comes a little later",
        {
            "The first token and the pause get shorter": "Chunked prefill makes everything faster.",
            "Nothing, the same work is done": "Order does not matter if the work is the same.",
            "The first token comes sooner, the pause stays": "A piece of a prompt is done sooner than a whole.",
        },
        "A step has a piece of a prompt beside one token of each answer: nobody stops for a whole prompt.",
    ),
    Question(
        "few users",
        "Eight H100, Llama 3 8B, eight users in all. One replica of eight GPUs, or eight replicas of one?"
        " The one replica is",
        "quicker and cheaper a token: one copy of the weights is read",
        {
            "quicker and dearer a token": "The fastest answer is the dearest.",
            "slower and cheaper a token": "Exchanges take longer than reading weights.",
            "as quick and as cheap": "The same GPUs do the same work.",
        },
        f"{show(ranks.tpot, 's')} and ${ranks.cost:.2g} a million tokens against {show(alone.tpot, 's')} and"
        f" ${alone.cost:.2g}. At large batches the price turns round.",
    ),
    Question(
        "from four to eight",
        "Llama 3 70B in bf16, small batches: a replica gets eight tensor-parallel ranks in the place of four. By how"
        " many percent is a token quicker?",
        f"{quicker:.0f} %",
        {
            f"{100 * (1 - 4 / 8):.0f} %": "Twice the GPUs halve the time of a token.",
            f"{100 * (1 - (4 / 8) ** 2):.0f} %": "Each rank reads half, and computes half.",
            f"{0:.0f} %": "Ranks are for memory only.",
        },
        "Each rank reads half of the weights, but launches and two allreduces a layer stay.",
    ),
]
