"""Lab 11, serve the model: a solution, and mistakes by name."""

SPARE = 0.08  # of the room, kept free when a request is admitted: those inside grow


def cache(size, tokens):
    """Return the bytes of keys and values of a sequence."""
    return 2 * size["layers"] * size["kv_heads"] * size["head"] * size["bytes"] * tokens


def step(size, gpu, devices, prompt, contexts, allreduce):
    """Return the seconds of a step: a prompt's tokens, and one token of each sequence."""
    tokens = prompt + len(contexts)
    arithmetic = 2 * size["weights"] * tokens / gpu["flops"]
    memory = size["bytes"] * size["weights"] / gpu["bandwidth"]
    read = sum(cache(size, each) for each in contexts) / gpu["bandwidth"]
    message = size["bytes"] * size["hidden"] * tokens
    exchanges = 2 * size["layers"] * allreduce(message, devices)
    return (max(arithmetic, memory) + read) / devices + exchanges


def schedule(queue, running, room, most):
    """Return the numbers of the next batch, and of the requests that are refused."""
    refused = [each.number for each in queue if each.limit > room]
    batch, used = [], 0
    for each in running:
        if used + each.tokens > room:
            return batch, refused
        batch.append(each.number)
        used += each.tokens
    for each in queue:
        if each.number in refused:
            continue
        spare = SPARE * room if batch else 0
        if len(batch) == most or used + each.tokens > room - spare:
            break
        batch.append(each.number)
        used += each.tokens
    return batch, refused


def forecast(size, gpu, devices, batch, load, allreduce):
    """Return the seconds of a mean step of a full batch, and tokens a second of a replica."""
    prompts = min(load["chunk"], batch * load["prompt"] / load["answer"])
    contexts = [load["prompt"] + load["answer"] / 2] * batch
    seconds = step(size, gpu, devices, prompts, contexts, allreduce)
    return seconds, batch / seconds


def choose(size, gpu, load, limit, plans, measure, budget, allreduce):
    """Return the plan with the most tokens a second within the limit, as far as the budget shows it."""
    weights, longest = size["bytes"] * size["weights"], load["prompt"] + load["answer"]
    todo = []
    for plan in plans:
        devices, batch = plan["devices"], plan["batch"]
        if weights + batch * cache(size, longest) <= devices * gpu["memory"]:
            seconds, tokens = forecast(size, gpu, devices, batch, load, allreduce)
            todo.append((8 / devices * tokens, seconds, plan))
    seen, slower = [], 1.25  # the 99th percentile over the mean
    for _ in range(budget):
        enough = max((tokens for tokens, _, _, p99 in seen if p99 <= limit), default=0)
        tried = [plan for _, _, plan, _ in seen]
        better = [one for one in todo if one[0] > enough and one[2] not in tried]
        likely = [one for one in better if one[1] * slower <= limit]
        if not better:
            break
        most, least = (lambda one: one[0]), (lambda one: one[1])
        tokens, seconds, plan = max(likely, key=most) if likely else min(better, key=least)
        p99 = measure(plan).p99
        seen.append((tokens, seconds, plan, p99))
        slower = p99 / seconds
    within = [one for one in seen if one[3] <= limit]
    return max(within or seen, key=lambda one: one[0])[2]


# mistake -> (function, text, what stands there instead, the law that must break, its words)
MISTAKES = {
    "keys alone": ("cache", "2 * size", "size", "Cache", "Did you count both keys and values"),
    "all heads": (
        "cache",
        "kv_heads",
        "heads",
        "Cache",
        "Which heads have their own keys and values",
    ),
    "one layer": ("cache", ' * size["layers"]', "", "Cache", "Each layer has its own"),
    "always bf16": ("cache", 'size["bytes"]', "2", "Cache", "How many bytes"),
    "the whole width": (
        "cache",
        'size["kv_heads"] * size["head"]',
        'size["hidden"]',
        "Cache",
        "much",
    ),
    "each head as wide as the model": (
        "cache",
        'size["head"]',
        'size["hidden"]',
        "Cache",
        "102 kB is too much. A head has `head` numbers, not `hidden`",
    ),
    "arithmetic alone": (
        "step",
        "max(arithmetic, memory)",
        "arithmetic",
        "Prefill",
        "larger of the two",
    ),
    "memory alone": ("step", "max(arithmetic, memory)", "memory", "Prefill", "at the rate `flops`"),
    "both, one after the other": (
        "step",
        "max(arithmetic, memory)",
        "(arithmetic + memory)",
        "Prefill",
        "the larger one counts",
    ),
    "a weight is a FLOP": (
        "step",
        'arithmetic = 2 * size["weights"]',
        'arithmetic = size["weights"]',
        "Prefill",
        "two FLOP",
    ),
    "weights for each token": (
        "step",
        'size["weights"] / gpu["bandwidth"]',
        'size["weights"] * tokens / gpu["bandwidth"]',
        "Prefill",
        "not once per token",
    ),
    "no cache": ("step", "+ read", "", "Decode", "What does attention read"),
    "attention overlaps with products": (
        "step",
        "(max(arithmetic, memory) + read) / devices",
        "max(arithmetic, memory + read) / devices",
        "Decode",
        "the time to read the cache is added to theirs",
    ),
    "nothing is read": (
        "step",
        "(max(arithmetic, memory) + read) / devices",
        "arithmetic / devices",
        "Decode",
        "Reading takes time as well",
    ),
    "padded": (
        "step",
        "cache(size, each) for each",
        "cache(size, max(contexts)) for each",
        "Decode",
        "Each sequence reads a cache of its own length, not of the longest",
    ),
    "one cache for all": (
        "step",
        "sum(cache(size, each) for each in contexts)",
        "cache(size, sum(contexts)) / max(1, len(contexts))",
        "Decode",
        "has its own cache",
    ),
    "a batch is a token": (
        "step",
        "tokens = prompt + len(contexts)",
        "tokens = prompt + (len(contexts) > 0)",
        "Decode",
        "A batch has many tokens",
    ),
    "one sequence after the other": (
        "step",
        "memory = ",
        "memory = max(1, len(contexts)) * ",
        "Decode",
        "not once per token",
    ),
    "two steps": (
        "step",
        "max(arithmetic, memory)",
        '(max(2 * size["weights"] * prompt / gpu["flops"], memory) * (prompt > 0)'
        ' + max(2 * size["weights"] * len(contexts) / gpu["flops"], memory) * (len(contexts) > 0))',
        "Both",
        "A step reads the weights once, for the prompt and all sequences together",
    ),
    "the prompt is free": (
        "step",
        "tokens = prompt + len(contexts)",
        "tokens = len(contexts) or prompt",
        "Both",
        "in the same matmuls",
    ),
    "no messages": ("step", " + exchanges", "", "Devices", "What do devices exchange"),
    "one allreduce a layer": (
        "step",
        'exchanges = 2 * size["layers"]',
        'exchanges = size["layers"]',
        "Devices",
        "How many times per layer",
    ),
    "one allreduce": (
        "step",
        '2 * size["layers"] * allreduce',
        "2 * allreduce",
        "Devices",
        "All layers exchange",
    ),
    "a shard is exchanged": (
        "step",
        'message = size["bytes"] * size["hidden"] * tokens',
        'message = size["bytes"] * size["hidden"] * tokens / devices',
        "Devices",
        "the allreduce is not over a shard",
    ),
    "whole weights": (
        "step",
        "(max(arithmetic, memory) + read) / devices",
        "max(arithmetic, memory) + read / devices",
        "Devices",
        "a shard of the weights",
    ),
    "a whole cache": (
        "step",
        "(max(arithmetic, memory) + read) / devices",
        "max(arithmetic, memory) / devices + read",
        "Devices",
        "a shard of the cache",
    ),
    "it does not grow": (
        "schedule",
        "if used + each.tokens > room:\n            return batch, refused",
        "if False:\n            return batch, refused",
        "The cache",
        "Every sequence grows",
    ),
    "it does not look": (
        "schedule",
        "len(batch) == most or used + each.tokens > room - spare",
        "len(batch) == most",
        "The cache",
        "tokens of cache, and there are",
    ),
    "a batch without end": (
        "schedule",
        "len(batch) == most or used",
        "used",
        "The cache",
        "sequences in a batch of at most",
    ),
    "what fits goes first": (
        "schedule",
        "room - spare:\n            break",
        "room - spare:\n            continue",
        "First come",
        "Requests behind one that does not fit have to wait as well.",
    ),
    "the oldest leaves": (
        "schedule",
        "for each in running:",
        "for each in reversed(running):",
        "First come",
        "which sequence has to leave?",
    ),
    "static batching": (
        "schedule",
        "spare = SPARE * room if batch else 0",
        "spare = room if running else 0",
        "Work",
        "What is it waiting for?",
    ),
    "all leave": (
        "schedule",
        "            return batch, refused\n        batch.append",
        "            return [running[0].number], refused\n        batch.append",
        "Work",
        "When does a sequence have to leave",
    ),
    "nobody is refused": (
        "schedule",
        "if each.limit > room",
        "if each.tokens > room",
        "Every request",
        "What happens then",
    ),
    "it waits until the end": (
        "schedule",
        "spare = SPARE * room if batch else 0",
        "spare = SPARE * room",
        "Every request",
        "are free. What are the free tokens kept for?",
    ),
    "refused when it is full": (
        "schedule",
        "if each.limit > room",
        "if each.limit > room / 2",
        "Every request",
        "Could it wait?",
    ),
    "refused when it just fits": (
        "schedule",
        "if each.limit > room",
        "if each.limit >= room",
        "Every request",
        "Could it wait?",
    ),
    "no room to grow": (
        "schedule",
        "SPARE * room if batch else 0",
        "0",
        "Target",
        "A request that is admitted into the last free tokens loses its cache as soon as the others grow",
    ),
    "a token of one": (
        "forecast",
        "batch / seconds",
        "1 / seconds",
        "Little",
        "a token to each sequence",
    ),
    "tokens of the node": (
        "forecast",
        "batch / seconds",
        "batch * 8 / devices / seconds",
        "Little",
        "of the node",
    ),
    "prompts are answers": (
        "forecast",
        "batch / seconds",
        'batch * (1 + load["prompt"] / load["answer"]) / seconds',
        "Little",
        "Tokens of prompts",
    ),
    "nobody comes in": (
        "forecast",
        'prompts = min(load["chunk"], batch * load["prompt"] / load["answer"])',
        "prompts = 0",
        "Forecast",
        "a new prompt arrives: how many prompt tokens",
    ),
    "always a chunk": (
        "forecast",
        'min(load["chunk"], batch * load["prompt"] / load["answer"])',
        'load["chunk"]',
        "Forecast",
        "a whole chunk",
    ),
    "a whole prompt for each sequence": (
        "forecast",
        'min(load["chunk"], batch * load["prompt"] / load["answer"])',
        'batch * load["prompt"]',
        "Forecast",
        "its whole prompt with every step",
    ),
    "prompts in steps of their own": (
        "forecast",
        "seconds = step(size, gpu, devices, prompts, contexts, allreduce)",
        "seconds = step(size, gpu, devices, 0, contexts, allreduce)"
        " + step(size, gpu, devices, prompts, [], allreduce)",
        "Forecast",
        "in the same steps as the sequences",
    ),
    "it asks on": (
        "choose",
        "p99 = measure(plan).p99",
        "p99 = [measure(one).p99 for one in plans[:9]][-1]",
        "The plan",
        "simulation 6 of 5",
    ),
    "it believes the forecast": (
        "choose",
        "p99 = measure(plan).p99",
        "p99 = seconds",
        "The plan",
        "How does it know the latency?",
    ),
    "the mean is enough": (
        "choose",
        "return max(within or seen",
        "return max(seen",
        "Target latency",
        "within it",
    ),
    "as fast as it can be": (
        "choose",
        "for plan in plans:",
        'for plan in [one for one in plans if one["devices"] == 8]:',
        "Target throughput",
        "replicas of fewer devices",
    ),
    "small batches are safe": (
        "choose",
        "for plan in plans:",
        'for plan in [one for one in plans if one["batch"] <= 16]:',
        "Target throughput",
        "What would more devices do for the batch?",
    ),
}
