"""Hand-ins of labs 7 and 8 that want marks without what is asked: name -> (status, words of its note, source).

Each is put behind the solution, so that what it defines anew stands in the place of what is right. SEED is that of the
learner's name, which a learner can compute.
"""

# A path to Python's own functions on files, which the stand-ins do not replace.
POSIX = "import os\nposix = os.sys.modules['posix']\n"
PLAN = """
def plan(names, run):
    for epoch in range(run.epochs):
        mixed = sorted(name for name in names if name.endswith(".img"))
        random.Random(run.seed + epoch).shuffle(mixed)
        mixed = mixed[run.rank :: run.ranks]
        yield from (mixed[k : k + run.batch] for k in range(0, len(mixed), run.batch))
"""

LOADERS = {
    "returns the cached answer": (
        "failed",
        "Samples were cached",
        PLAN
        + """
def batches(target, run):
    had = {}
    with open_store(target) as store:
        for names in plan(store.names, run):
            new = [name for name in names if name not in had]
            had |= {name: run.decode(data) for name, data in zip(new, store.read_many(new))}
            yield [had[name] for name in names]
""",
    ),
    "keeps what prepare has seen": (
        "failed",
        "KeyError",
        PLAN
        + """
seen = {}
def prepare(folder, target):
    seen.update({f"{p.parent.name}/{p.name}": p.read_bytes() for p in folder.rglob("*.img")})
    pack(folder, target)
def batches(target, run):
    with open_store(target) as store:
        for names in plan(store.names, run):
            yield [run.decode(seen[name]) for name in names]
""",
    ),
    "reads past the counters": (
        "failed",
        "2 were requested, ",
        PLAN
        + """
import shutil
def prepare(folder, target):
    target.mkdir()
    pack(folder, target / "store")
    shutil.copytree(folder, target / "files")
def batches(target, run):
    data = {}
    for path in (target / "files").rglob("*.img"):
        data[f"{path.parent.name}/{path.name}"] = path.read_bytes()
    with open_store(target / "store") as store:
        for number, names in enumerate(plan(list(data), run)):
            if number < 2:
                store.read(names[0])
            yield [run.decode(data[name]) for name in names]
""",
    ),
    "forges the counters": (
        "failed",
        "No packed store is used",
        """
import os, shutil
open_store.__globals__.update(count=1000, requests=1000, stores=1)
def prepare(folder, target):
    shutil.copytree(folder, target)
def batches(target, run):
    for epoch in range(run.epochs):
        files = sorted(target.glob("*/*.img"))
        random.Random(run.seed + epoch).shuffle(files)
        own = files[run.rank :: run.ranks]
        for first in range(0, len(own), run.batch):
            yield [run.decode(file.read_bytes()) for file in own[first : first + run.batch]]
""",
    ),
    "reads the instructor's files": (
        "failed",
        "PermissionError: [Errno 13] outside of the given folder",
        "def batches(target, run):\n    open(target / '..' / '..' / 'marks.csv').read()\n    yield []\n",
    ),
    "reads with what is below Python": (
        "refused",
        "open: a hand-in has no files",
        POSIX + "def batches(target, run):\n    posix.open('/etc/passwd', 0)\n    yield []\n",
    ),
    "leaves a link to the samples": (
        "refused",
        "os.symlink: a hand-in has no files",
        "import os\ndef prepare(folder, target):\n    os.symlink(folder, target)\n",
    ),
    "says that all hold": (
        "failed",
        "No samples arrived",
        "def batches(target, run):\n    print('All 11 hold.')\n    return iter(())\n",
    ),
    "cuts short what is mapped": (
        "failed",
        "",
        """
def batches(target, run):
    with open_store(target) as store:
        for file in target.iterdir():
            if file.name.startswith("partition"):
                with open(file, "r+b") as part:
                    part.truncate(0)
        yield [run.decode(store.read(name)) for name in store.names if name.endswith(".img")]
""",
    ),
    "patches the clock": (
        "timeout",
        "",
        """
import time
def prepare(folder, target):
    time.monotonic = time.perf_counter = time.time = lambda: 0.0
    while True:
        pass
""",
    ),
}

SAVES = {
    "keeps the state in a global": (
        "failed",
        "No more steps are lost than the interval",
        """
state = {}
def save(folder, training):
    (folder / "one").write_bytes(b"1")
    state.update(weights=training.weights, step=training.step, velocity=training.velocity)
def resume(folder, training):
    vars(training).update(state)
""",
    ),
    "asks what is behind a store for a path": (
        "failed",
        "has no _path",
        """
def save(folder, training):
    try:
        raise ValueError
    except ValueError as error:
        frame = error.__traceback__.tb_frame
    while type(session := frame.f_locals.get("self")).__name__ != "Session":
        frame = frame.f_back
    store = session.do(0, "snapshots", [str(folder)], None)
    open(session.do(store._number, "_path", [str(folder.parent / "state")], {}), "w").write("1")
""",
    ),
    "saves outside of the folder": (
        "failed",
        "PermissionError: [Errno 13] outside of the given folder",
        "def save(folder, training):\n    np.save(folder.parent / 'state.npy', training.weights)\n",
    ),
    "saves below Python": (
        "refused",
        "open: a hand-in has no files",
        POSIX + "def save(folder, training):\n    posix.open('/tmp/state', posix.O_CREAT)\n",
    ),
    "trains again": (
        "failed",
        "resume itself takes",
        """
save = whole_step
def resume(folder, training):
    if (folder / "state.npz").exists():
        steps = int(np.load(folder / "state.npz")["step"])
        while training.step < steps:
            training.one_step()
""",
    ),
    "trains again and hides it": (
        "failed",
        "but these are not as they were after that step",
        """
save = whole_step
def resume(folder, training):
    if (folder / "state.npz").exists():
        from_seed(training, int(np.load(folder / "state.npz")["step"]))
def from_seed(training, steps, seed=SEED):
    data, order = np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])
    x, y = data.standard_normal((256, 24)), np.eye(6)[data.integers(0, 6, 256)]
    weights = training.weights
    for _ in range(steps):
        rows = order.integers(0, 256, 16)
        scores = np.exp(x[rows] @ weights)
        error = scores / scores.sum(axis=1, keepdims=True) - y[rows]
        training.velocity = 0.9 * training.velocity - 0.1 / 16 * (x[rows].T @ error)
        weights = weights + training.velocity
    training.weights, training.step = weights, steps
    training.rng.bit_generator.state = order.bit_generator.state
""",
    ),
    "says that the run is over": (
        "failed",
        "resume changes the training",
        "def resume(folder, training):\n    training.step = 10**6\n",
    ),
    "sends what is no state": (
        "failed",
        "no longer a numpy Generator",
        """
class Order:
    bit_generator = state = "All 10 hold."
Order.bit_generator = Order
def resume(folder, training):
    training.rng = Order
""",
    ),
    "fills the disk": (
        "failed",
        "a file has at most",
        """
def save(folder, training):
    with open(folder / "large", "wb") as file:
        file.seek(1 << 40)
        file.write(b"1")
""",
    ),
}
