"""Lab 5, split a convolution: a solution, and mistakes by name."""

import numpy as np


def filters_forward(x, w, layer, cut, comm):
    """Every rank has all of x and its own filters; return all channels of y, and what backward needs."""
    parts = comm.allgather(layer.forward(x, w))
    return np.concatenate(parts, axis=1), x


def filters_backward(dy, x, w, layer, cut, comm):
    """Return dx, whole, and dw of this rank's filters."""
    first, stop = cut.filters[comm.rank]
    part, dw = layer.backward(dy[:, first:stop], x, w)
    dx = np.empty_like(part)
    comm.Allreduce(part, dx)
    return dx, dw


def wanted(rank, layer, cut):
    """Return which rows of the whole input the outputs of a rank read; some may lie beyond it."""
    first, stop = cut.outputs[rank]
    start = first * layer.stride - layer.padding
    return start, start + (stop - first - 1) * layer.stride + layer.kernel


def both(one, other):
    """Return the rows that two ranges share; none if the first is not below the last."""
    return max(one[0], other[0]), min(one[1], other[1])


def rows_forward(x, w, layer, cut, comm):
    """Every rank has its own rows of x and all of w; return its rows of y, and what backward needs."""
    own, (first, stop) = cut.rows[comm.rank], wanted(comm.rank, layer, cut)
    tall = np.zeros((*x.shape[:2], stop - first, x.shape[3]))  # beyond the image it stays zero
    sent = []
    for peer in range(comm.size):
        a, b = both(own, wanted(peer, layer, cut))
        if peer != comm.rank and a < b:
            sent.append(comm.isend(x[:, :, a - own[0] : b - own[0]], peer))
    for peer in range(comm.size):
        a, b = both(cut.rows[peer], (first, stop))
        if a < b:
            mine = peer == comm.rank
            rows = x[:, :, a - own[0] : b - own[0]] if mine else comm.recv(source=peer)
            tall[:, :, a - first : b - first] = rows
    for request in sent:
        request.wait()
    return layer.forward(tall, w, padding=(0, layer.padding)), tall


def rows_backward(dy, tall, w, layer, cut, comm):
    """Return dx of this rank's rows, and dw, whole."""
    own, (first, stop) = cut.rows[comm.rank], wanted(comm.rank, layer, cut)
    dtall, part = layer.backward(dy, tall, w, padding=(0, layer.padding))
    dx = np.zeros((*tall.shape[:2], own[1] - own[0], tall.shape[3]))
    sent = []
    for peer in range(comm.size):
        a, b = both(cut.rows[peer], (first, stop))
        if peer != comm.rank and a < b:
            sent.append(comm.isend(dtall[:, :, a - first : b - first], peer))
    for peer in range(comm.size):
        a, b = both(own, wanted(peer, layer, cut))
        if a < b:
            mine = peer == comm.rank
            rows = dtall[:, :, a - first : b - first] if mine else comm.recv(source=peer)
            dx[:, :, a - own[0] : b - own[0]] += rows
    for request in sent:
        request.wait()
    dw = np.empty_like(part)
    comm.Allreduce(part, dw)
    return dx, dw


# mistake -> (function, its text and what stands there instead, ..., the law that must break, its words)
MISTAKES = {
    "the channels stay apart": (
        "filters_forward",
        [("np.concatenate(parts, axis=1)", "layer.forward(x, w)")],
        "By filters: the outputs",
        "channels of its own filters; the next layer reads all",
    ),
    "the parts in another order": (
        "filters_forward",
        [("(parts, axis=1)", "(parts[::-1], axis=1)")],
        "By filters: the outputs",
        "In which order should they be",
    ),
    "dx of the own filters": (
        "filters_backward",
        [("comm.Allreduce(part, dx)", "dx[...] = part")],
        "By filters: both",
        "which contributions does its gradient sum",
    ),
    "a mean of dx": (
        "filters_backward",
        [("return dx, dw", "return dx / comm.size, dw")],
        "By filters: both",
        "times the correct value",
    ),
    "gathered twice": (
        "filters_forward",
        [("parts = ", "parts = comm.allgather(x) and ")],
        "Target by filters",
        "Who needs everything that is sent",
    ),
    "every rank an image of its own": (
        "rows_forward",
        [("layer.forward(tall, w, padding=(0, layer.padding))", "layer.forward(x, w)")],
        "By rows: the outputs",
        "there are zeros where rows of its neighbors belong",
    ),
    "too few rows are wanted": (
        "wanted",
        [("+ layer.kernel", "+ layer.kernel - 1")],
        "By rows: the outputs",
        "Is a halo too short",
    ),
    "nothing from above": (
        "rows_forward",
        [("] = rows", "] = rows * (peer >= comm.rank)")],
        "By rows: the outputs",
        "the rows from above are missing",
    ),
    "a halo one row short": (
        "rows_forward",
        [
            (
                "] = rows",
                "] = rows\n            if b - a > 1 and peer < comm.rank:\n                tall[:, :, a - first] = 0",
            )
        ],
        "By rows: the outputs",
        "one row short above",
    ),
    "rows off by one": (
        "rows_forward",
        [("sent.append(comm.isend(x[:, :, a", "sent.append(comm.isend(np.roll(x, 1, 2)[:, :, a")],
        "By rows: the outputs",
        "row",
    ),
    "no padding at the border": (
        "rows_forward",
        [
            (
                "wanted(comm.rank, layer, cut)",
                "both((0, layer.rows), wanted(comm.rank, layer, cut))",
            ),
            ("(peer, layer, cut)", "(peer, layer, cut)"),
        ],
        "By rows: the outputs",
        "The image ends at this rank",
    ),
    "the border is no zeros": (
        "rows_forward",
        [("np.zeros(", "np.ones(")],
        "By rows: the outputs",
        "where zeros belong",
    ),
    "the border repeats the last row": (
        "rows_forward",
        [
            (
                "    for request in sent:",
                "    beyond = max(-first, 0)\n    tall[:, :, :beyond] = tall[:, :, beyond : beyond + 1]\n"
                "    for request in sent:",
            )
        ],
        "By rows: the outputs",
        "this rank has its last row again",
    ),
    "padded between the ranks": (
        "rows_forward",
        [(", padding=(0, layer.padding)", "")],
        "By rows: the outputs",
        "the boundary between two ranks is not an edge of the image",
    ),
    "sends that wait": (
        "rows_forward",
        [("sent.append(comm.isend(x[:, :, a - own[0] : b - own[0]], peer))", "comm.send(x, peer)")],
        "By rows: the outputs",
        "no rank can continue",
    ),
    "sends that nobody waits for": (
        "rows_forward",
        [("    for request in sent:\n        request.wait()\n", "")],
        "By rows: the outputs",
        "never waits for what it sends",
    ),
    "too many rows are wanted": (
        "wanted",
        [("+ layer.kernel", "+ layer.kernel + 1")],
        "By rows: the outputs",
        "these outputs were computed from more",
    ),
    "rows of the next rank only": (
        "rows_forward",
        [("] = rows", "] = rows * (abs(peer - comm.rank) < 2)")],
        "By rows: the outputs",
        "a halo may reach further",
    ),
    "the gradient of the halo stays": (
        "rows_backward",
        [
            ("peer != comm.rank and a < b", "False"),
            (
                "        if a < b:\n            mine",
                "        if peer == comm.rank:\n            mine",
            ),
        ],
        "By rows: the gradient of the input",
        "where do their gradients of these rows go",
    ),
    "the gradient of the halo takes the place of the own": (
        "rows_backward",
        [("+= rows", "= rows")],
        "By rows: the gradient of the input",
        "gradients received from another rank replace those of its own outputs, but both ranks have read these rows",
    ),
    "the gradient of the halo is returned": (
        "rows_backward",
        [("return dx, dw", "return dtall, dw")],
        "By rows: the gradient of the input",
        "which ranks need their gradient",
    ),
    "weights move by the own rows": (
        "rows_backward",
        [("comm.Allreduce(part, dw)", "dw[...] = part")],
        "By rows: the gradient of the weights",
        "what is the gradient of a replicated array",
    ),
    "a mean of dw": (
        "rows_backward",
        [("return dx, dw", "return dx, dw / comm.size")],
        "By rows: the gradient of the weights",
        "A sum, or a mean?",
    ),
    "the whole image to everybody": (
        "rows_forward",
        [("    sent = []", "    sent = []\n    comm.allgather(x)")],
        "Target by rows",
        "Who needs everything that is sent",
    ),
}
