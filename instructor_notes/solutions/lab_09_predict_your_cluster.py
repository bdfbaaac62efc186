"""Lab 9, predict your cluster: a solution, and mistakes by name."""

from math import log2
from statistics import NormalDist

import numpy as np

SPREAD, SLOWER = 0.2, 0.4  # to be read off the learner's own runs, see `read_off`


def solve(rows, seconds):
    """Return the x of least sum of |rows @ x / seconds - 1|: no size weighs more, nor does what is far off."""
    rows, weights = rows / seconds[:, None], np.ones(len(seconds))
    for _ in range(40):
        x = np.linalg.lstsq(rows * weights[:, None], weights, rcond=None)[0]
        weights = 1 / np.sqrt(np.maximum(np.abs(rows @ x - 1), 1e-3))
    return x


def fit_messages(points):
    """Return alpha, beta, step and jump: of all places for a step the one that leaves the least."""
    n = np.array([size for size, _ in points])
    t = np.array([np.median(seconds) for _, seconds in points])
    found = []
    for step in n[2:-2]:
        rows = np.stack([np.ones(len(n)), n, n >= step], axis=1)
        x = solve(rows, t)
        found.append((np.abs(rows @ x / t - 1).sum(), step, x))
    _, step, (alpha, beta, jump) = min(found, key=lambda each: each[0])
    return {"alpha": alpha, "beta": beta, "step": step, "jump": jump}


def fit_products(points):
    """Return rate and half: the FLOP at which half of the rate is reached (Hockney 1982)."""
    work = np.array([flop for flop, _ in points])
    t = np.array([np.median(seconds) for _, seconds in points])
    first, slope = solve(np.stack([np.ones(len(work)), work], axis=1), t)
    return {"rate": 1 / slope, "half": first / slope}


def terms(fit, job, ranks):
    """Return a step's seconds by cause: ranks share the samples, gradients go by recursive doubling."""
    compute = sum((flop / ranks + fit["half"]) / fit["rate"] for flop in job.products)
    late = fit["alpha"] + (job.gradient >= fit["step"]) * fit["jump"]
    rounds = log2(ranks)
    return {"compute": compute, "communication": rounds * (late + job.gradient * fit["beta"])}


def band(fits, job, ranks):
    """Return what nine of ten next days lie between: Student's t of seven days, of the logarithm."""
    steps = np.log([sum(terms(fit, job, ranks).values()) for fit in fits])
    wide = 1.943 * np.sqrt(1 + 1 / len(steps)) * steps.std(ddof=1)
    return np.exp(steps.mean() - wide), np.exp(steps.mean() + wide)


def read_off(measured, predicted):
    """Return SPREAD and SLOWER of a machine: from a run on 4 ranks of 2 nodes and what was predicted for it."""
    latest = NormalDist().inv_cdf((4 - 0.375) / (4 + 0.25))
    compute = predicted["compute"]
    return measured["waiting"] / compute / latest, measured["compute"] / compute - 1


# What each machine calls for: a learner needs one of them, under the name `repaired`.
def nic(fit, job, ranks, nodes):
    """Return the terms where the ranks of a node share its NIC: in rounds that leave it they share its bandwidth."""
    predicted, each = terms(fit, job, ranks), ranks // nodes
    more = log2(nodes) * (each - 1) * job.gradient * fit["beta"]
    return {**predicted, "communication": predicted["communication"] + more, "waiting": 0.0}


def jitter(fit, job, ranks, nodes):
    """Return the terms where ranks are late by chance: all wait for the latest of them (Blom 1958)."""
    predicted = terms(fit, job, ranks)
    latest = NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))
    return {**predicted, "waiting": SPREAD * latest * predicted["compute"]}


def contention(fit, job, ranks, nodes):
    """Return the terms where each further rank of a node slows the computing of all its ranks."""
    predicted = terms(fit, job, ranks)
    slower = 1 + SLOWER * (ranks // nodes - 1)
    return {**predicted, "compute": slower * predicted["compute"], "waiting": 0.0}


FIT_M, FIT_P, SAYS = "Your fit of the mess", "Your fit of the matm", "Your prediction"
HOLD, WIDTH = "Your bands contain", "Your bands are not too wide"
ENDS = "np.exp(steps.mean() - wide), np.exp(steps.mean() + wide)"
ROWS, SQUARES = (
    "solve(np.stack([np.ones(len(work)), work], axis=1)",
    "(lambda a, b: np.linalg.lstsq(a, b)[0])",
)
SPREADS = "wide = 1.943 * np.sqrt(1 + 1 / len(steps)) * steps.std(ddof=1)"
# mistake -> (function, text, what stands there instead, the law that must break, its words)
MISTAKES = {
    "mean of repeats": (
        "fit_messages",
        "np.median(seconds)",
        "np.mean(seconds)",
        FIT_M,
        "some of the nine measurements",
    ),
    "one line": (
        "fit_messages",
        "for step in n[2:-2]",
        "for step in n[:1]",
        FIT_M,
        "which a single line cannot",
    ),
    "no jump": ("fit_messages", '"jump": jump', '"jump": 0.0', FIT_M, "which a single line cannot"),
    "largest leap": (
        "fit_messages",
        "np.abs(rows @ x / t - 1).sum(), step, x",
        "-dict(zip(n[1:], t[1:] / t[:-1]))[step], step, x",
        FIT_M,
        "A single slow size",
    ),
    "one size early": ("fit_messages", '"step": step', '"step": step / 2', FIT_M, "size too early"),
    "a jump in microseconds": (
        "fit_messages",
        '"jump": jump',
        '"jump": 1e6 * jump',
        FIT_M,
        "in the wrong unit",
    ),
    "a step of zero": ("fit_messages", '"step": step', '"step": 0', FIT_M, "below all sizes"),
    "bytes a second": (
        "fit_messages",
        '"beta": beta',
        '"beta": 1 / beta',
        FIT_M,
        "seconds per byte",
    ),
    "infinite": ("fit_messages", '"beta": beta', '"beta": np.inf', FIT_M, '"beta" is inf'),
    "a tuple": (
        "fit_messages",
        'return {"alpha": alpha, "beta": beta, "step": step, "jump": jump}',
        "return alpha, beta",
        FIT_M,
        "returns a dict",
    ),
    "mean of products": (
        "fit_products",
        "np.median(seconds)",
        "np.mean(seconds)",
        FIT_P,
        "some of the nine measurements",
    ),
    "the largest product": (
        "fit_products",
        '{"rate": 1 / slope, "half": first / slope}',
        '{"rate": work[-1] / t[-1], "half": 0.0}',
        FIT_P,
        "almost nothing to compute",
    ),
    "in seconds": (
        "fit_products",
        f"{ROWS}, t)",
        f"{ROWS}, t)".replace("solve", SQUARES),
        FIT_P,
        "almost nothing",
    ),
    "squares of shares": (
        "fit_products",
        f"{ROWS}, t)",
        f"{ROWS} / t[:, None], t / t)".replace("solve", SQUARES),
        FIT_P,
        "all nine",
    ),
    "squares": (
        "fit_messages",
        "solve(rows, t)",
        f"{SQUARES}(rows / t[:, None], t / t)",
        FIT_M,
        "all nine",
    ),
    "seconds per FLOP": (
        "fit_products",
        '"rate": 1 / slope',
        '"rate": slope',
        FIT_P,
        "FLOP per second",
    ),
    "no rate": ("fit_products", '"rate": 1 / slope', '"rate": 0', FIT_P, '"rate" is 0'),
    "all samples": ("terms", "flop / ranks", "flop", SAYS, "Which rank works on"),
    "half is shared": (
        "terms",
        '(flop / ranks + fit["half"])',
        '(flop + fit["half"]) / ranks',
        SAYS,
        "as long to start",
    ),
    "no half": ("terms", ' + fit["half"]', "", SAYS, "does not reach the rate"),
    "one message": ("terms", "rounds = log2(ranks)", "rounds = 1", SAYS, "how many rounds"),
    "a round a rank": (
        "terms",
        "rounds = log2(ranks)",
        "rounds = ranks - 1",
        SAYS,
        "In each round, twice as many contributions are in a rank's sum as before",
    ),
    "one latency": (
        "terms",
        'rounds * (late + job.gradient * fit["beta"])',
        'late + rounds * job.gradient * fit["beta"]',
        SAYS,
        "Each round is a message, which pays its own latency",
    ),
    "one jump": (
        "terms",
        'rounds * (late + job.gradient * fit["beta"])',
        '(rounds - 1) * (fit["alpha"] + job.gradient * fit["beta"]) + late + job.gradient * fit["beta"]',
        SAYS,
        "Each round is a message, and each is above the size of your step",
    ),
    "one latency, all jumps": (
        "terms",
        'rounds * (late + job.gradient * fit["beta"])',
        'rounds * (late + job.gradient * fit["beta"]) - (rounds - 1) * fit["alpha"]',
        SAYS,
        "Each round is a message, which pays its own latency",
    ),
    "there and back": (
        "terms",
        "rounds = log2(ranks)",
        "rounds = 2 * log2(ranks)",
        SAYS,
        "A rank sends and receives at the same time",
    ),
    "the natural logarithm": (
        "terms",
        "rounds = log2(ranks)",
        "rounds = 0.6931 * log2(ranks)",
        SAYS,
        "That is the number of rounds",
    ),
    "parts": (
        "terms",
        "job.gradient * fit",
        "job.gradient / ranks * fit",
        SAYS,
        "the whole gradient",
    ),
    "never a jump": (
        "terms",
        ' + (job.gradient >= fit["step"]) * fit["jump"]',
        "",
        SAYS,
        "Is this gradient below or above the size of your step",
    ),
    "always a jump": (
        "terms",
        '(job.gradient >= fit["step"]) * ',
        "",
        SAYS,
        "Is this gradient below or above the size of your step",
    ),
    "after the step": (
        "terms",
        'job.gradient >= fit["step"]',
        'job.gradient > fit["step"]',
        SAYS,
        "exactly the size",
    ),
    "it stops": ("terms", "log2(ranks)", "log2(0)", SAYS, "stopped with ValueError"),
    "lowest to highest": (
        "band",
        ENDS,
        "np.exp(steps.min()), np.exp(steps.max())",
        HOLD,
        "how often is that the eighth",
    ),
    "of the mean": (
        "band",
        "np.sqrt(1 + 1 / len(steps))",
        "np.sqrt(1 / len(steps))",
        HOLD,
        "a single new day",
    ),
    "a twentieth": ("band", SPREADS, "wide = 0.05", HOLD, "Does one width suit all machines"),
    "a quarter": ("band", SPREADS, "wide = 0.25", WIDTH, "has to come from the spread"),
    "anything": ("band", ENDS, "0, 1e9", WIDTH, "times as wide"),
    "upside down": (
        "band",
        ENDS,
        "np.exp(steps.mean() + wide), np.exp(steps.mean() - wide)",
        HOLD,
        "the lower one first",
    ),
    "one end": ("band", ENDS, "np.exp(steps.mean())", HOLD, "two numbers"),
}
