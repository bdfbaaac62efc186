"""Lab 12, lay out a language model: a solution, and mistakes by name."""

import numpy as np


def gather(unit, comm):
    """Hold the weights of a unit, gathered from the shards of all ranks."""
    full = np.empty(comm.size * len(unit.shard))
    comm.Allgather(unit.shard, full)
    unit.hold(full[: unit.size])


def step(units, loss, x, y, comm, rate):
    """Train on this rank's sequences; return the mean loss over those of all ranks."""
    for unit in units:
        gather(unit, comm)
        x = unit.forward(x)
        unit.free()
    value, dy = loss(x, y, comm.size * len(y))
    for unit in reversed(units):
        gather(unit, comm)
        dy, gradient = unit.backward(dy)
        unit.free()
        padded = np.zeros(comm.size * len(unit.shard))
        padded[: unit.size] = gradient
        own = np.empty(len(unit.shard))
        comm.Reduce_scatter_block(padded, own)
        unit.shard -= rate * own
    return comm.allreduce(value)


def zigzag(tokens, ranks, rank):
    """Return the positions of a rank's tokens: one chunk from the front, one from the back."""
    chunk = tokens // (2 * ranks)
    back = 2 * ranks - 1 - rank
    front = np.arange(rank * chunk, (rank + 1) * chunk)
    return np.concatenate([front, np.arange(back * chunk, (back + 1) * chunk)])


def ring_attention(q, k, v, own, comm):
    """Return the outputs of this rank's tokens; keys and values travel from neighbor to neighbor."""
    most = np.full((*q.shape[:2], 1), -np.inf)
    total, out = np.zeros_like(most), np.zeros_like(q)
    for hop in range(comm.size):
        peer = (comm.rank - hop) % comm.size
        places = zigzag(comm.size * len(own), comm.size, peer)
        scores = q @ np.swapaxes(k, 1, 2) / np.sqrt(q.shape[2])
        scores = np.where(own[:, None] >= places[None, :], scores, -np.inf)
        new = np.maximum(most, scores.max(axis=2, keepdims=True))
        before, weights = np.exp(most - new), np.exp(scores - new)
        total = before * total + weights.sum(axis=2, keepdims=True)
        out = before * out + weights @ v
        most = new
        if hop < comm.size - 1:
            request = comm.isend((k, v), (comm.rank + 1) % comm.size)
            k, v = comm.recv(source=(comm.rank - 1) % comm.size)
            request.wait()
    return out / total


def weights_of(model, layout):
    """Return the weights of a device of the first stage, before ZeRO."""
    kv = model.hidden // model.heads * model.kv_heads
    block = 2 * model.hidden * (model.hidden + kv) + 3 * model.hidden * model.feed_forward
    tables = 2 if layout.pipeline == 1 else 1
    return (layout.blocks * block + tables * model.vocabulary * model.hidden) / layout.tensor


def memory(model, layout):
    """Return the bytes of a device of the first stage, by term."""
    count, shards = weights_of(model, layout), layout.data * layout.context
    kept = count / (shards if layout.zero == 3 else 1)
    kv = model.hidden // model.heads * model.kv_heads
    block = 6 * model.hidden + 2 * kv + 3 * model.feed_forward
    stored = layout.blocks * (block if layout.recompute == "none" else model.hidden)
    if layout.pipeline == 1:
        stored += 2 * model.hidden + 2 * model.vocabulary
    tokens = model.sequence / (layout.context * layout.tensor)
    flying = min(layout.pipeline, layout.microbatches)
    return {
        "weights": 2 * kept,
        "gradients": 2 * kept,
        "optimizer state": 12 * count / shards,
        "activations": 2 * tokens * stored * flying,
    }


def seconds(model, machine, layout):
    """Return an estimate of a step by term: arithmetic, bubble, and what is exposed of the exchanges."""
    t, c, p, m = layout.tensor, layout.context, layout.pipeline, layout.microbatches
    full, tokens = layout.recompute == "full", model.sequence / c
    compute = model.flop / (t * c * p) / machine.rate
    sent = 2 * tokens * model.hidden * (t - 1) / t
    tensor = (14 if full else 10) * layout.blocks * sent / machine.nvlink
    ring = 0.0
    if t * c > machine.per_node:
        kv = model.hidden // model.heads * model.kv_heads / t
        ring = 3 * layout.blocks * 4 * kv * tokens * (c - 1) / machine.nic
    work = compute * (4 / 3 if full else 1)
    stages = 8 * tokens / t * model.hidden / machine.nic if p > 1 else 0.0
    return {
        "computing": m * work,
        "bubble": (p - 1) * (work + tensor + ring),
        "tensor exchanges": m * tensor,
        "weights and gradients": exchange(model, machine, layout, compute),
        "stages and context": m * (stages + ring),
    }


def exchange(model, machine, layout, compute):
    """Return the seconds of gathers and reductions of weights and gradients beyond the arithmetic beside them."""
    group = layout.data * layout.context
    near = min(group, machine.per_node // layout.tensor)
    link = machine.nvlink if near == group else min(machine.nvlink, near * machine.nic)
    once = 2 * weights_of(model, layout) * (group - 1) / group / link
    first = once / layout.blocks
    if layout.zero == 1:
        return max(first, once - compute * 2 / 3) + once
    forward, backward = max(first, once - compute / 3), max(2 * first, 2 * once - compute * 2 / 3)
    return layout.microbatches * (forward + backward)


def choose(model, machine, layouts):
    """Return the fastest layout that fits, by the estimates above."""
    room = machine.memory - machine.reserve
    fit = [each for each in layouts if sum(memory(model, each).values()) <= room]
    return min(fit, key=lambda each: sum(seconds(model, machine, each).values()))


# mistake -> (function, [(text, what stands there instead), ...], the law that must break, its words)
MISTAKES = {
    "no gather": (
        "gather",
        [("comm.Allgather(unit.shard, full)", "full[...] = 0")],
        "Shards: the weights and",
        "are wrong from number 0",
    ),
    "shards in the reverse order": (
        "gather",
        [("unit.hold(full[", "full = np.roll(full, len(unit.shard))\n    unit.hold(full[")],
        "Shards: the weights and",
        "in the order of the ranks",
    ),
    "the padding stays": (
        "gather",
        [("full[: unit.size]", "full")],
        "Shards: the weights and",
        "weights in a flat array, not shape",
    ),
    "freed before it computes": (
        "step",
        [
            (
                "        x = unit.forward(x)\n        unit.free()",
                "        unit.free()\n        x = unit.forward(x)",
            )
        ],
        "Shards: the weights and",
        "unit 0 has no weights in its forward pass",
    ),
    "not gathered for backward": (
        "step",
        [("        gather(unit, comm)\n        dy,", "        dy,")],
        "Shards: the weights and",
        "unit 3 has no weights in its backward pass",
    ),
    "a mean of its own sequences": (
        "step",
        [("comm.size * len(y))", "len(y))")],
        "Shards: the weights and",
        "4 times too large",
    ),
    "divided twice": (
        "step",
        [("rate * own", "rate * own / comm.size")],
        "Shards: the weights and",
        "4 times too small",
    ),
    "its own gradient alone": (
        "step",
        [
            (
                "comm.Reduce_scatter_block(padded, own)",
                "own[...] = padded.reshape(comm.size, -1)[comm.rank]",
            )
        ],
        "Shards: the weights and",
        "with only its own gradient",
    ),
    "the block of rank 0": (
        "step",
        [
            (
                "comm.Reduce_scatter_block(padded, own)",
                "total = np.empty_like(padded)\n        comm.Allreduce(padded, total)\n"
                "        own[...] = total[: len(own)]",
            )
        ],
        "Shards: the weights and",
        "which block of the summed gradient belongs to this rank",
    ),
    "one unit is not updated": (
        "step",
        [("unit.shard -= rate * own", "unit.shard -= rate * own * (unit.number != 2)")],
        "Shards: the weights and",
        "(unit 2 wrong, no other): the shard differs from that of a run on one rank. It did not change",
    ),
    "uphill": (
        "step",
        [("unit.shard -=", "unit.shard +=")],
        "Shards: the weights and",
        "its sign is wrong",
    ),
    "its part of the loss": (
        "step",
        [("return comm.allreduce(value)", "return value")],
        "Shards: the weights and",
        "Each rank returned its own part",
    ),
    "a loss divided twice": (
        "step",
        [("return comm.allreduce(value)", "return comm.allreduce(value) / comm.size")],
        "Shards: the weights and",
        "is the mean over the sequences of all ranks. It was divided by the number of ranks twice",
    ),
    "backward from the first unit": (
        "step",
        [("for unit in reversed(units)", "for unit in units")],
        "Shards: the weights and",
        "Which unit's backward pass comes first?",
    ),
    "a list of weights": (
        "gather",
        [("full[: unit.size]", "list(full[: unit.size])")],
        "Shards: the weights and",
        "not a list: expected a numpy array",
    ),
    "freed after the step": (
        "step",
        [("        x = unit.forward(x)\n        unit.free()", "        x = unit.forward(x)")],
        "Shards: the weights of",
        "while it still holds unit 0",
    ),
    "all gathered ahead": (
        "step",
        [
            (
                "    for unit in units:\n        gather(unit, comm)\n",
                "    for unit in units:\n        gather(unit, comm)\n    for unit in units:\n",
            )
        ],
        "Shards: the weights of",
        "Step 1, rank 0 gathers weights while it still holds unit 0",
    ),
    "an allreduce of gradients": (
        "step",
        [
            (
                "comm.Reduce_scatter_block(padded, own)",
                "total = np.empty_like(padded)\n        comm.Allreduce(padded, total)\n"
                "        own[...] = total.reshape(comm.size, -1)[comm.rank]",
            )
        ],
        "Target of the shards",
        "its own block of the summed gradient",
    ),
    "consecutive tokens": (
        "zigzag",
        [
            (
                "return np.concatenate",
                "return np.arange(2 * chunk) + 2 * chunk * rank\n    np.concatenate",
            )
        ],
        "Zig-zag",
        "times the mean work",
    ),
    "striped tokens": (
        "zigzag",
        [("return np.concatenate", "return np.arange(rank, tokens, ranks)\n    np.concatenate")],
        "Zig-zag",
        "times the mean work",
    ),
    "a chunk twice": (
        "zigzag",
        [("back = 2 * ranks - 1 - rank", "back = 2 * ranks - 1")],
        "Zig-zag",
        "is on no rank",
    ),
    "no mask": (
        "ring_attention",
        [("scores = np.where(own[:, None] >= places[None, :], scores, -np.inf)", "pass")],
        "Ring attention",
        "where is the mask",
    ),
    "a mask of places in the block": (
        "ring_attention",
        [("own[:, None] >= places[None, :]", "np.tri(len(own), dtype=bool)")],
        "Ring attention",
        "compares places within a block",
    ),
    "its own block alone": (
        "ring_attention",
        [("for hop in range(comm.size)", "for hop in range(1)")],
        "Ring attention",
        "sees only its own tokens",
    ),
    "a block too few": (
        "ring_attention",
        [
            ("for hop in range(comm.size)", "for hop in range(comm.size - 1)"),
            ("if hop < comm.size - 1", "if hop < comm.size - 2"),
        ],
        "Ring attention",
        "One block is missing",
    ),
    "no root": (
        "ring_attention",
        [(" / np.sqrt(q.shape[2])", "")],
        "Ring attention",
        "by the square root of a head's width",
    ),
    "exp of what there is": (
        "ring_attention",
        [
            (
                "new = np.maximum(most, scores.max(axis=2, keepdims=True))",
                "new = np.zeros_like(most)",
            )
        ],
        "Ring attention",
        "Some are NaN",
    ),
    "a sum that is not scaled": (
        "ring_attention",
        [
            ("out = before * out", "out = out"),
            ("total = before * total", "total = total"),
            ("scores - new)", "scores - scores.max(axis=2, keepdims=True, initial=-1e300))"),
        ],
        "Ring attention",
        "subtract different largest scores",
    ),
    "outputs that are not scaled": (
        "ring_attention",
        [("out = before * out", "out = out")],
        "Ring attention",
        "the outputs summed so far were not",
    ),
    "weights that are not scaled": (
        "ring_attention",
        [("total = before * total", "total = total")],
        "Ring attention",
        "the sum of the weights was not",
    ),
    "neither is scaled": (
        "ring_attention",
        [("out = before * out", "out = out"), ("total = before * total", "total = total")],
        "Ring attention",
        "When the largest score grows, the earlier sums have to be rescaled to the new one",
    ),
    "the root of another size": (
        "ring_attention",
        [("np.sqrt(q.shape[2])", "np.sqrt(q.shape[0])")],
        "Ring attention",
        "by the square root of the number of heads",
    ),
    "positions from the other side": (
        "ring_attention",
        [("(comm.rank - hop)", "(comm.rank + hop)")],
        "Ring attention",
        "the positions of a different block",
    ),
    "a token that does not see itself": (
        "ring_attention",
        [("own[:, None] >= places", "own[:, None] > places")],
        "Ring attention",
        "a token that does not see itself",
    ),
    "not divided": (
        "ring_attention",
        [("return out / total", "return out")],
        "Ring attention",
        "not divided by the sum",
    ),
    "sends that wait": (
        "ring_attention",
        [
            (
                "request = comm.isend((k, v), (comm.rank + 1) % comm.size)",
                "comm.send((k, v), (comm.rank + 1) % comm.size)",
            ),
            ("            request.wait()\n", ""),
        ],
        "Ring attention",
        "no rank can continue",
    ),
    "sends that nobody waits for": (
        "ring_attention",
        [("            request.wait()\n", "")],
        "Ring attention",
        "never waits for what it sends",
    ),
    "all keys at once": (
        "ring_attention",
        [("    for hop", "    comm.allgather(k)\n    for hop")],
        "Target of the ring",
        "keys or values of all ranks at once",
    ),
    "one hop too many": (
        "ring_attention",
        [("if hop < comm.size - 1", "if hop < comm.size")],
        "Target of the ring",
        "Which rank reads the block of the last hop, and is any other array sent",
    ),
    "two products in the feed-forward": (
        "weights_of",
        [("3 * model.hidden", "2 * model.hidden")],
        "Memory: weights",
        "three matmuls",
    ),
    "as many keys as queries": (
        "weights_of",
        [("model.hidden // model.heads * model.kv_heads", "model.hidden")],
        "Memory: weights",
        "fewer heads than queries",
    ),
    "tied tables": (
        "weights_of",
        [("2 if layout.pipeline == 1 else 1", "1")],
        "Memory: weights",
        "each has its own table",
    ),
    "both tables on a stage": (
        "weights_of",
        [("2 if layout.pipeline == 1 else 1", "2")],
        "Memory: weights",
        "The head is on the last stage",
    ),
    "all blocks on a stage": (
        "weights_of",
        [("layout.blocks", "model.layers")],
        "Memory: weights",
        "some of the blocks",
    ),
    "tensor groups copy": (
        "weights_of",
        [(" / layout.tensor", "")],
        "Memory: gradients",
        "shards every matmul",
    ),
    "context shards weights": (
        "weights_of",
        [(" / layout.tensor", " / layout.tensor / layout.context")],
        "Memory: weights",
        "not the weights",
    ),
    "ZeRO over replicas alone": (
        "memory",
        [("layout.data * layout.context", "layout.data")],
        "Memory: optimizer state",
        "ZeRO shards over them as well",
    ),
    "ZeRO 1 shards all": (
        "memory",
        [("shards if layout.zero == 3 else 1", "shards")],
        "Memory: weights",
        "ZeRO 1 shards only the optimizer state",
    ),
    "no fp32 weights": (
        "memory",
        [("12 * count", "8 * count")],
        "Memory: optimizer state",
        "fp32 copy of the weights",
    ),
    "one microbatch in flight": (
        "memory",
        [("min(layout.pipeline, layout.microbatches)", "1")],
        "Memory: activations",
        "in flight on the first stage",
    ),
    "all microbatches in flight": (
        "memory",
        [("min(layout.pipeline, layout.microbatches)", "layout.microbatches")],
        "Memory: activations",
        "one microbatch is in flight",
    ),
    "all tokens": (
        "memory",
        [("(layout.context * layout.tensor)", "layout.tensor")],
        "Memory: activations",
        "share the tokens",
    ),
    "a tensor group copies activations": (
        "memory",
        [("(layout.context * layout.tensor)", "layout.context")],
        "Memory: activations",
        "shards all activations",
    ),
    "no logits": (
        "memory",
        [("stored += 2 * model.hidden + 2 * model.vocabulary", "pass")],
        "Memory: activations",
        "stores logits",
    ),
    "one output of the feed-forward": (
        "memory",
        [("3 * model.feed_forward", "model.feed_forward")],
        "Memory: activations",
        "three times the feed-forward's width",
    ),
    "two outputs of the feed-forward": (
        "memory",
        [("3 * model.feed_forward", "2 * model.feed_forward")],
        "Memory: activations",
        "three times the feed-forward's width",
    ),
    "scores are stored": (
        "memory",
        [("block = 6 * model.hidden", "block = 6 * model.hidden + model.heads * model.sequence")],
        "Memory: activations",
        "The attention scores are not stored",
    ),
    "more microbatches of the blocks alone": (
        "memory",
        [
            ("stored = layout.blocks", "stored = layout.microbatches * layout.blocks"),
            ("layout.microbatches)", "1)"),
        ],
        "Memory: activations",
        "one microbatch is in flight",
    ),
    "recomputed and stored": (
        "memory",
        [('block if layout.recompute == "none" else model.hidden', "block")],
        "Memory: activations",
        "Full recomputation stores only the input of a block",
    ),
    "recomputation is free": (
        "seconds",
        [("work = compute * (4 / 3 if full else 1)", "work = compute")],
        "Time: computing",
        "repeats the forward pass",
    ),
    "one microbatch is computed": (
        "seconds",
        [('"computing": m * work', '"computing": work')],
        "Time: computing",
        "is for one sequence",
    ),
    "no split of the arithmetic": (
        "seconds",
        [("model.flop / (t * c * p)", "model.flop")],
        "Time: computing",
        "share the arithmetic of a microbatch",
    ),
    "context ranks compute all": (
        "seconds",
        [("model.flop / (t * c * p)", "model.flop / (t * p)")],
        "Time: computing",
        "share the arithmetic of a microbatch",
    ),
    "the bubble in the computing": (
        "seconds",
        [('"computing": m * work', '"computing": (m + p - 1) * work')],
        "Time: computing",
        "The bubble is a separate term",
    ),
    "a bubble of p": (
        "seconds",
        [("(p - 1) * (work", "p * (p > 1) * (work")],
        "Time: bubble",
        "p - 1 microbatches, not p",
    ),
    "no bubble": (
        "seconds",
        [("(p - 1) * (work", "0 * (work")],
        "Time: bubble",
        "waits while the pipeline fills",
    ),
    "a bubble for each microbatch": (
        "seconds",
        [("(p - 1) * (work", "m * (p - 1) * (work")],
        "Time: bubble",
        "however many there are",
    ),
    "a bubble without recomputation": (
        "seconds",
        [("(p - 1) * (work", "(p - 1) * (compute")],
        "Time: bubble",
        "A waiting stage also waits for recomputation",
    ),
    "exchanges of all blocks on each stage": (
        "seconds",
        [("* layout.blocks * sent / machine.nvlink", "* model.layers * sent / machine.nvlink")],
        "Time: tensor",
        "A stage exchanges only in its own blocks",
    ),
    "no exchanges of recomputation": (
        "seconds",
        [("(14 if full else 10)", "10")],
        "Time: tensor",
        "ten, and fourteen",
    ),
    "all tokens travel": (
        "seconds",
        [("model.hidden * (t - 1) / t", "model.hidden * (t > 1)")],
        "Time: tensor",
        "(t - 1)/t of them are sent",
    ),
    "tensor groups on the NIC": (
        "seconds",
        [("sent / machine.nvlink", "sent / machine.nic")],
        "Time: tensor",
        "inside a node",
    ),
    "one microbatch exchanges": (
        "seconds",
        [('"tensor exchanges": m * tensor', '"tensor exchanges": tensor')],
        "Time: tensor",
        "Each of the replica's microbatches",
    ),
    "one NIC for the ranks of a node": (
        "exchange",
        [("min(machine.nvlink, near * machine.nic)", "machine.nic")],
        "Time: weights and gradients",
        "use their NICs together",
    ),
    "ZeRO 3 once per step": (
        "exchange",
        [("return layout.microbatches * (forward + backward)", "return forward + backward")],
        "Time: weights and gradients",
        "in each microbatch",
    ),
    "a gather that is hidden": (
        "exchange",
        [("once - compute * 2 / 3) + once", "once - compute * 2 / 3)")],
        "Time: weights and gradients",
        "which nothing hides",
    ),
    "all exchanges behind the computing": (
        "exchange",
        [("once - compute * 2 / 3) + once", "2 * once - compute)")],
        "Time: weights and gradients",
        "which nothing hides",
    ),
    "ZeRO 3 hides nothing": (
        "exchange",
        [
            ("max(first, once - compute / 3)", "once"),
            ("max(2 * first, 2 * once - compute * 2 / 3)", "2 * once"),
        ],
        "Time: weights and gradients",
        "Computation hides part of the exchanges of ZeRO 3",
    ),
    "replicas exchange nothing": (
        "exchange",
        [("    once = 2 *", "    once = 0 *")],
        "Time: weights and gradients",
        "Replicas exchange",
    ),
    "no terms": (
        "seconds",
        [("    return {", "    return 1.0 or {")],
        "Time: bubble",
        "with the terms 'computing', 'bubble'",
    ),
    "whatever is fast": (
        "choose",
        [("sum(memory(model, each).values()) <= room", "True")],
        "The layout",
        "What does your memory() return for this layout, including the reserve",
    ),
    "what fits best": (
        "choose",
        [("seconds(model, machine, each)", "memory(model, each)")],
        "Target: a step",
        "The largest difference",
    ),
    "a layout of its own": (
        "choose",
        [("return min(fit,", "return (3, 3, 7, 1) or min(fit,")],
        "The layout",
        "one of `layouts`",
    ),
}
