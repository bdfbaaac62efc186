"""A typical data loader for a folder of samples, unaware of stores."""

import hashlib
import os
import random
from concurrent.futures import ThreadPoolExecutor
from os import listdir
from os.path import isdir, join
from pathlib import Path

import numpy as np


def samples(root):
    """Every file below `root`, in the order of their paths."""
    return sorted(join(folder, name) for folder, _, names in os.walk(root) for name in names)


def classes(root):
    """The folders of the data set, one a class."""
    return sorted(name for name in listdir(root) if isdir(join(root, name)))


def load(path):
    """A sample as an array, and its size on disk."""
    size = os.stat(path).st_size
    if path.endswith(".npy"):
        return np.load(path), size
    if path.endswith(".csv"):
        return np.loadtxt(path, delimiter=",", ndmin=2), size
    if path.endswith(".txt"):
        with open(path, encoding="utf-8") as lines:
            return np.array([len(line) for line in lines]), size
    return np.frombuffer(Path(path).read_bytes(), np.uint8), size


def epoch(root, seed, rank=0, ranks=1, threads=4):
    """What this rank sees in an epoch, in its order: path below the root, size, type, shape and hash of each."""
    order = samples(root)
    random.Random(seed).shuffle(order)
    with ThreadPoolExecutor(threads) as pool:
        mine = order[rank::ranks]
        seen = zip(mine, pool.map(load, mine), strict=True)
        return [
            (
                os.path.relpath(path, root).replace(os.sep, "/"),
                size,
                str(array.dtype),
                list(array.shape),
                hashlib.sha256(array.tobytes()).hexdigest(),
            )
            for path, (array, size) in seen
        ]
