"""Lab 14, fuse attention: a solution, and mistakes by name."""

import math

import numpy as np


def side_of(room):
    """A square tile of C, with a column of A and a row of B beside it: s * s + 2 * s <= room."""
    return math.isqrt(room + 1) - 1


def matmul(chip, a, b, c):
    """A tile of C stays on the chip; columns of A and rows of B pass by."""
    (n, k), m = a.shape, b.shape[1]
    side = side_of(chip.room)
    for i in range(0, n, side):
        for j in range(0, m, side):
            total = chip.full(min(side, n - i), min(side, m - j), 0.0)
            for p in range(k):
                column = chip.load(a, i, i + side, p, p + 1)
                row = chip.load(b, p, p + 1, j, j + side)
                chip.dot(column, row, total)
                del column, row
            chip.store(total, c, i, j)
            del total


def matmul_moved(n, k, m, room):
    """A is loaded for each column of tiles, B for each row of them; C is stored once."""
    side = side_of(room)
    return k * (n * math.ceil(m / side) + m * math.ceil(n / side)) + n * m


def softmax(chip, x, y):
    """One pass for maximum and sum, and one for the result."""
    rows, columns = x.shape
    wide = chip.room - 6
    for i in range(rows):
        top = chip.full(1, 1, -math.inf)
        total = chip.full(1, 1, 0.0)
        for j in range(0, columns, wide):
            part = chip.load(x, i, i + 1, j, j + wide)
            larger = part.max().maximum(top)
            part -= larger
            top -= larger
            total *= top.exp()
            total += part.exp().sum()
            top = larger
            del part, larger
        for j in range(0, columns, wide):
            part = chip.load(x, i, i + 1, j, j + wide)
            part -= top
            part.exp()
            part /= total
            chip.store(part, y, i, j)
            del part
        del top, total


def blocks(d, room):
    """Queries and keys of a block: q, out, and four columns for each query, beside its scores and the keys."""
    keys = 2
    return (room - keys * d) // (2 * d + 4 + keys), keys


def attention(chip, q, k, v, out, causal):
    """Blocks of queries stay on the chip; keys and values pass by."""
    n, d = q.shape
    rows, keys = blocks(d, chip.room)
    for i in range(0, n, rows):
        own = chip.load(q, i, i + rows)
        own *= d**-0.5
        high = own.shape[0]
        result = chip.full(high, d, 0.0)
        top = chip.full(high, 1, -math.inf)
        total = chip.full(high, 1, 0.0)
        end = min(n, i + high) if causal else n
        for j in range(0, end, keys):
            stop = min(end, j + keys)
            part = chip.load(k, j, stop)
            scores = chip.dot(own, part.T)
            del part
            if causal:
                scores.where(np.arange(i, i + high)[:, None] >= np.arange(j, stop), -math.inf)
            larger = scores.max().maximum(top)
            top -= larger
            top.exp()
            total *= top
            result *= top
            top = larger
            scores -= larger
            scores.exp()
            total += scores.sum()
            part = chip.load(v, j, stop)
            chip.dot(scores, part, result)
            del part, scores, larger
        result /= total
        chip.store(result, out, i)
        del own, result, top, total


def attention_moved(n, d, room, causal):
    """Queries and output once; keys and values for each block of queries that sees them."""
    rows, _ = blocks(d, room)
    keys = [min(n, i + rows) if causal else n for i in range(0, n, rows)]
    return 2 * n * d + 2 * d * sum(keys)


def seconds(size, gpu):
    """Three rooflines, one after the other, and one."""
    n, d, heads, wide = size["tokens"], size["head"], size["heads"], size["bytes"]

    def kernel(flop, moved):
        return heads * max(flop / gpu["flops"], wide * moved / gpu["bandwidth"])

    scores = kernel(2 * n * n * d, 2 * n * d + n * n)
    weights = kernel(0, 2 * n * n)
    output = kernel(2 * n * n * d, n * n + 2 * n * d)
    fused = kernel(4 * n * n * d, 2 * n * d + 2 * n * d * math.ceil(n / gpu["rows"]))
    return scores + weights + output, fused


def longest(size, gpu):
    """The root of 2 n^2 + 4 n d = the numbers that fit for a head."""
    room = gpu["memory"] / size["bytes"] / size["heads"]
    d = size["head"]
    return int(math.sqrt(d * d + room / 2) - d)


def backward(chip, q, k, v, out, lam, dout, dq, dk, dv):
    """Blocks of keys stay on the chip; queries pass by, and their gradients are continued in HBM."""
    n, d = q.shape
    scale = d**-0.5
    side = max(s for s in range(1, n + 1) if s == 1 or 2 * s * s + 9 * s * d + 2 * s <= chip.room)
    for j in range(0, n, side):
        keys, values = chip.load(k, j, j + side), chip.load(v, j, j + side)
        of_keys, of_values = keys * 0, values * 0
        for i in range(0, n, side):
            queries, given = chip.load(q, i, i + side), chip.load(dout, i, i + side)
            weights = chip.dot(queries, keys.T)
            weights *= scale
            weights -= chip.load(lam, i, i + side)
            weights.exp()
            chip.dot(weights.T, given, of_values)
            own = chip.load(out, i, i + side)
            own *= given
            scores = chip.dot(given, values.T)
            scores -= own.sum()
            del given, own
            scores *= weights
            scores *= scale
            chip.dot(scores.T, queries, of_keys)
            total = chip.load(dq, i, i + side) if j else queries * 0
            chip.store(chip.dot(scores, keys, total), dq, i)
            del queries, weights, scores, total
        chip.store(of_keys, dk, j)
        chip.store(of_values, dv, j)
        del keys, values, of_keys, of_values


# mistake: (function, what it replaces, by what, the law that fails, words of its message)
MISTAKES = {
    "a tile of C begins anew for each column": (
        "matmul",
        "            for p in range(k):\n",
        "            for p in range(k):\n                del total\n"
        "                total = chip.full(min(side, n - i), min(side, m - j), 0.0)\n",
        "Matmul: right",
        "the products of only the last 1 column of A",
    ),
    "the last tiles are left out": (
        "matmul",
        "for i in range(0, n, side)",
        "for i in range(0, n - side + 1, side)",
        "Matmul: right",
        "never written",
    ),
    "the tile is larger than the chip": (
        "matmul",
        "side = side_of(chip.room)",
        "side = math.isqrt(chip.room)",
        "Matmul: right",
        "A tile takes room for as long as a name holds it",
    ),
    "nothing is deleted": (
        "matmul",
        "                del column, row\n",
        "",
        "Matmul: right",
        "`del` frees it",
    ),
    "C is not stored": (
        "matmul",
        "            chip.store(total, c, i, j)\n",
        "",
        "Matmul: right",
        "all rows of c are never written",
    ),
    "C is not counted": (
        "matmul_moved",
        " + n * m",
        "",
        "Matmul: your count",
        "Numbers that are stored count, too",
    ),
    "parts of tiles": (
        "matmul_moved",
        "k * (n * math.ceil(m / side) + m * math.ceil(n / side))",
        "k * (n * m / side + m * n / side)",
        "Matmul: your count",
        "How many tiles are there",
    ),
    "whole tiles at the edge": (
        "matmul_moved",
        "k * (n * math.ceil(m / side) + m * math.ceil(n / side))",
        "k * 2 * side * math.ceil(m / side) * math.ceil(n / side)",
        "Matmul: your count",
        "beyond the matrix",
    ),
    "three equal tiles": (
        "side_of",
        "math.isqrt(room + 1) - 1",
        "math.isqrt(room // 3)",
        "Target: matmul",
        "three tiles of equal size",
    ),
    "C comes back for each column": (
        "matmul",
        "                del column, row\n",
        "                del column, row\n                chip.store(total, c, i, j)\n",
        "Matmul: your count",
        "parts of it are stored more than once",
    ),
    "exp of the numbers as they are": (
        "softmax",
        "            larger = part.max().maximum(top)\n",
        "            larger = chip.full(1, 1, 0.0)\n",
        "Softmax: right",
        "exp(710) overflows",
    ),
    "a new maximum changes nothing": (
        "softmax",
        "            total *= top.exp()\n",
        "",
        "Softmax: right",
        "rescales the sum so far",
    ),
    "the sum of the last part": (
        "softmax",
        "            total *= top.exp()\n",
        "            total *= 0.0\n",
        "Softmax: right",
        "in its sum?",
    ),
    "the running maximum begins at 0": (
        "softmax",
        "top = chip.full(1, 1, -math.inf)",
        "top = chip.full(1, 1, 0.0)",
        "Softmax: right",
        "Which start is below any number?",
    ),
    "the old maximum is gone": (
        "softmax",
        "larger = part.max().maximum(top)",
        "larger = top.maximum(part.max()) + 0",
        "Softmax: right",
        "do you still have the old one?",
    ),
    "the sum is rescaled by the inverse": (
        "softmax",
        "            total *= top.exp()\n",
        "            total /= top.exp()\n",
        "Softmax: right",
        "exp(-inf) = 0",
    ),
    "it is not divided": (
        "softmax",
        "            part /= total\n",
        "",
        "Softmax: right",
        "divide it by the sum",
    ),
    "a pass for the maximum, and one for the sum": (
        "softmax",
        "        for j in range(0, columns, wide):\n            part = chip.load(x, i, i + 1, j, j + wide)\n"
        "            larger",
        "        for j in range(0, columns, wide):\n"
        "            top.maximum(chip.load(x, i, i + 1, j, j + wide).max())\n"
        "        for j in range(0, columns, wide):\n            part = chip.load(x, i, i + 1, j, j + wide)\n"
        "            larger",
        "Softmax: each",
        "read 3 times",
    ),
    "scores are not scaled": (
        "attention",
        "        own *= d**-0.5\n",
        "",
        "Attention: right",
        "Divide the scores by sqrt(d) before softmax",
    ),
    "scores are scaled by d": (
        "attention",
        "own *= d**-0.5",
        "own /= d",
        "Attention: right",
        "not by d",
    ),
    "the output is not divided": (
        "attention",
        "        result /= total\n",
        "",
        "Attention: right",
        "At the end, divide by the sum of each row",
    ),
    "keys are left out at the end": (
        "attention",
        "for j in range(0, end, keys)",
        "for j in range(0, max(1, end - keys + 1), keys)",
        "Attention: right",
        "is right",
    ),
    "the output begins anew": (
        "attention",
        "            result *= top\n",
        "            result *= 0.0\n",
        "Attention: right",
        "is right",
    ),
    "the output is not rescaled": (
        "attention",
        "            result *= top\n",
        "",
        "Attention: right",
        "both the sum and the output so far",
    ),
    "the sum is not rescaled": (
        "attention",
        "            total *= top\n",
        "",
        "Attention: right",
        "Is the sum rescaled, too",
    ),
    "exp of the scores as they are": (
        "attention",
        "            larger = scores.max().maximum(top)\n",
        "            larger = chip.full(high, 1, 0.0)\n",
        "Attention: right",
        "exp(710) overflows",
    ),
    "one maximum is missing": (
        "attention",
        "scores.max().maximum(top)",
        "scores.max()",
        "Attention: right",
        "overflows",
    ),
    "the running maximum of queries begins at 0": (
        "attention",
        "top = chip.full(high, 1, -math.inf)",
        "top = chip.full(high, 1, 0.0)",
        "Attention: right",
        "Which start is below any score?",
    ),
    "scores go to HBM": (
        "attention",
        "            if causal:\n",
        "            if i == j == 0:\n"
        "                kept = chip.scratch(n, n)\n"
        "            chip.store(scores, kept, i, j)\n"
        "            if causal:\n",
        "Attention: nothing",
        "Scores are",
    ),
    "the output goes to HBM for each block": (
        "attention",
        "            chip.dot(scores, part, result)\n",
        "            chip.dot(scores, part, result)\n            chip.store(result, out, i)\n",
        "Attention: nothing",
        "which loop is outer?",
    ),
    "no mask": (
        "attention",
        "            if causal:\n",
        "            if False:\n",
        "Causal: right",
        "attention without a mask",
    ),
    "a query does not see itself": (
        "attention",
        "[:, None] >= np.arange(j, stop)",
        "[:, None] > np.arange(j, stop)",
        "Causal: right",
        "is nan",
    ),
    "the mask is turned round": (
        "attention",
        "[:, None] >= np.arange(j, stop)",
        "[:, None] <= np.arange(j, stop)",
        "Causal: right",
        "",
    ),
    "the mask tells what to hide": (
        "attention",
        "[:, None] >= np.arange(j, stop)",
        "[:, None] < np.arange(j, stop)",
        "Causal: right",
        "keeps the scores where its mask is true",
    ),
    "the mask counts from the block": (
        "attention",
        "np.arange(i, i + high)[:, None]",
        "np.arange(high)[:, None]",
        "Causal: right",
        "does the mask of the later ones compare positions in the sequence, or only in the block",
    ),
    "hidden scores are 0": (
        "attention",
        "np.arange(j, stop), -math.inf)",
        "np.arange(j, stop), 0.0)",
        "Causal: right",
        "not 0: exp(0) is 1",
    ),
    "all keys under a mask": (
        "attention",
        "end = min(n, i + high) if causal else n",
        "end = n",
        "Causal: keys",
        "where does its loop over keys end?",
    ),
    "a count without a mask": (
        "attention_moved",
        "min(n, i + rows) if causal else n",
        "n",
        "Attention: your count",
        "too many",
    ),
    "half of the keys for each block": (
        "attention_moved",
        "min(n, i + rows) if causal else n",
        "n / 2 if causal else n",
        "Attention: your count",
        "Without a mask, your count is right",
    ),
    "the output is not counted": (
        "attention_moved",
        "2 * n * d + 2",
        "n * d + 2",
        "Attention: your count",
        "Numbers that are stored count, too",
    ),
    "large blocks of keys": (
        "blocks",
        "    keys = 2\n",
        "    keys = room // (4 * d)\n",
        "Target: attention",
        "which of the two is worth the room on the chip",
    ),
    "no kernel moves anything": (
        "seconds",
        'max(flop / gpu["flops"], wide * moved / gpu["bandwidth"])',
        'flop / gpu["flops"]',
        "Seconds: scores",
        "What does a kernel read and write?",
    ),
    "arithmetic and memory add up": (
        "seconds",
        'max(flop / gpu["flops"], wide * moved / gpu["bandwidth"])',
        '(flop / gpu["flops"] + wide * moved / gpu["bandwidth"])',
        "Seconds: scores",
        "the longer one counts",
    ),
    "one head": ("seconds", "return heads * max", "return max", "Seconds: scores", "All heads"),
    "a number is a byte": ("seconds", "wide * moved", "moved", "Seconds: scores", "`bytes` bytes"),
    "softmax is free": (
        "seconds",
        "scores + weights + output",
        "scores + output",
        "Seconds: scores",
        "Softmax is a kernel, too",
    ),
    "scores are not written": (
        "seconds",
        "kernel(2 * n * n * d, 2 * n * d + n * n)",
        "kernel(2 * n * n * d, 2 * n * d)",
        "Seconds: scores",
        "too little",
    ),
    "keys and values once": (
        "seconds",
        '2 * n * d * math.ceil(n / gpu["rows"])',
        "2 * n * d",
        "Seconds: attention",
        "again for each block",
    ),
    "a part of a block reads a part of the keys": (
        "seconds",
        'math.ceil(n / gpu["rows"])',
        'n / gpu["rows"]',
        "Seconds: attention",
        "A block with fewer queries also reads all keys and values",
    ),
    "one head is moved": (
        "seconds",
        'return heads * max(flop / gpu["flops"], wide * moved / gpu["bandwidth"])',
        'return max(heads * flop / gpu["flops"], wide * moved / gpu["bandwidth"])',
        "Seconds: scores",
        "All heads move numbers, too",
    ),
    "scores in the fused kernel": (
        "seconds",
        '2 * n * d * math.ceil(n / gpu["rows"])',
        "2 * n * d + 4 * n * n",
        "Seconds: attention",
        "stay on the chip",
    ),
    "one matrix of scores": (
        "longest",
        "math.sqrt(d * d + room / 2) - d",
        "math.sqrt(4 * d * d + room) - 2 * d",
        "Longest",
        "two matrices",
    ),
    "one head in memory": ("longest", ' / size["heads"]', "", "Longest", "All heads are in memory"),
    "the square is forgotten": (
        "longest",
        "math.sqrt(d * d + room / 2) - d",
        "room / 2",
        "Longest",
        "grow with their square",
    ),
}
