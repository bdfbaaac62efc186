"""Lab 8, survive: a solution, and mistakes by name."""

import json
import math

import numpy as np

from lib_dlhpc.storage.snapshots import SnapshotStore


def expected_time(interval, work, save, restart, node_mtbf, nodes):
    """Return the expected seconds of a run with checkpoints and failures (Daly 2006)."""
    mtbf = node_mtbf / nodes
    period = math.exp(restart / mtbf) * math.expm1((interval + save) / mtbf)
    return work / interval * mtbf * period


def best_interval(save, restart, node_mtbf, nodes):
    """Return the seconds of training between two checkpoints (Daly 2006, equation 37)."""
    mtbf = node_mtbf / nodes
    x = save / (2 * mtbf)
    return math.sqrt(2 * save * mtbf) * (1 + math.sqrt(x) / 3 + x / 9) - save


def save(folder, training):
    """Publish a version; it is on the disk when this returns."""
    order = json.dumps(training.rng.bit_generator.state).encode()
    arrays = {"weights": training.weights, "velocity": training.velocity}
    arrays["order"] = np.frombuffer(order, np.uint8)
    SnapshotStore(folder / "versions").save(arrays, step=training.step)


def resume(folder, training):
    """Take up the newest version, if there is one."""
    if not (folder / "versions" / "format").exists():
        return
    store = SnapshotStore(folder / "versions")
    newest = store.newest()
    if newest is None:
        return
    arrays = store.load(newest)
    training.weights, training.velocity = arrays["weights"], arrays["velocity"]
    training.rng.bit_generator.state = json.loads(arrays["order"].tobytes())
    training.step = newest.step


# mistake -> (function, text, what stands there instead, the law that must break, its words)
FORMULAS = {
    "one node": (
        "expected_time",
        "node_mtbf / nodes",
        "node_mtbf",
        "Your formula: the exp",
        "any of them",
    ),
    "no restart": (
        "expected_time",
        "math.exp(restart / mtbf) * ",
        "",
        "Your formula: the exp",
        "there is a restart",
    ),
    "nothing fails while saving": (
        "expected_time",
        "expm1((interval + save) / mtbf)",
        "expm1(interval / mtbf)",
        "Your formula: the exp",
        "Does the run not stall while it saves",
    ),
    "nothing fails": (
        "expected_time",
        "work / interval * mtbf * period",
        "work / interval * (interval + save)",
        "Your formula: the exp",
        "in which nothing fails",
    ),
    "a restart never fails": (
        "expected_time",
        "mtbf * period",
        "(mtbf + restart) * math.expm1((interval + save) / mtbf)",
        "Your formula: the exp",
        "during a restart",
    ),
    "a restart in each interval": (
        "expected_time",
        "math.exp(restart / mtbf) * math.expm1((interval + save) / mtbf)",
        "math.expm1((interval + save + restart) / mtbf)",
        "Your formula: the exp",
        "without a failure has none",
    ),
    "half an interval": (
        "expected_time",
        "mtbf * period",
        "(interval + save) * (1 + ((interval + save) / 2 + restart) / mtbf)",
        "Your formula: the exp",
        "the repeated work",
    ),
    "the whole run at once": (
        "expected_time",
        "return work / interval * mtbf * period",
        "return mtbf * math.exp(restart / mtbf) * math.expm1(work * (1 + save / interval) / mtbf)",
        "Your formula: the exp",
        "what was saved is kept",
    ),
    "half an interval, without the save": (
        "expected_time",
        "mtbf * period",
        "(interval + save) * (1 + (interval / 2 + restart) / mtbf)",
        "Your formula: the exp",
        "the repeated work",
    ),
    "hours": (
        "expected_time",
        "return work / interval",
        "return work / 3600 / interval",
        "Your formula: the exp",
        "Seconds, please",
    ),
    "one interval": (
        "expected_time",
        "work / interval * ",
        "",
        "Your formula: the exp",
        "The number of intervals depends",
    ),
    "it stops": (
        "expected_time",
        "work / interval",
        "work / 0",
        "Your formula: the exp",
        "ZeroDivisionError",
    ),
    "one node's interval": (
        "best_interval",
        "node_mtbf / nodes",
        "node_mtbf",
        "Your formula: the int",
        "of one node, or of all?",
    ),
    "Young": (
        "best_interval",
        " * (1 + math.sqrt(x) / 3 + x / 9) - save",
        "",
        "Your formula: the int",
        "Young's",
    ),
    "first order": (
        "best_interval",
        " * (1 + math.sqrt(x) / 3 + x / 9)",
        "",
        "Your formula: the int",
        "first order",
    ),
    "the restart counts": (
        "best_interval",
        "math.sqrt(2 * save * mtbf) * (1 + math.sqrt(x) / 3 + x / 9)",
        "math.sqrt(2 * save * (mtbf + restart))",
        "Your formula: the int",
        "A restart takes the same time",
    ),
    "with the save": (
        "best_interval",
        " - save",
        "",
        "Your formula: the int",
        "the save comes after it",
    ),
    "not half": (
        "best_interval",
        "math.sqrt(2 * save",
        "math.sqrt(save",
        "Your formula: the int",
        "too little",
    ),
}
BOTH = 'training.weights, training.velocity = arrays["weights"], arrays["velocity"]'
# mistake -> (text of save or resume, what stands there instead, the law that must break, its words)
RESTARTS = {
    "no velocity": (
        BOTH,
        'training.weights = arrays["weights"]',
        "resume restores",
        "after that step: velocity.",
    ),
    "no order": (
        'training.rng.bit_generator.state = json.loads(arrays["order"].tobytes())',
        "pass",
        "resume restores",
        "after that step: order of samples.",
    ),
    "no step": (
        "training.step = newest.step",
        "pass",
        "resume restores",
        "Its step counter is 0, but its state",
    ),
    "single precision": (
        '"weights": training.weights,',
        '"weights": training.weights.astype(np.float32),',
        "resume restores",
        "after that step: weights.",
    ),
    "begins anew": (
        "    if newest is None:",
        "    if newest:",
        "No more steps",
        "begins at step 0",
    ),
    "gives it to nobody": (
        "    arrays = store.load(newest)",
        "    return store.load(newest)",
        "resume restores",
        "does it write that into `training`",
    ),
    "stops saving": (
        "    order = json",
        "    if training.step > 9:\n        return\n    order = json",
        "No more steps",
        "had returned",
    ),
    "trains in resume": (
        "training.step = newest.step",
        "training.step = newest.step\n    training.one_step()",
        "No more steps",
        "resume itself takes 1",
    ),
    "behind": (
        'SnapshotStore(folder / "versions").save(',
        'SnapshotStore(folder / "versions").save_async(',
        "No more steps",
        "What was on the disk",
    ),
    "save changes it": (
        "    order = json",
        "    training.velocity *= 0\n    order = json",
        "At the end",
        "save changes the training",
    ),
    "it raises": ("    order = json", "    order = jsn", "resume restores", "NameError"),
    "never ends": (
        "    order = json",
        "    while True:\n        pass\n    order = json",
        "resume restores",
        "did not continue",
    ),
}


def over_the_old_file(folder, training):
    """Save all of it, but where the last one stands: `save` of a learner whose file is empty for a moment."""
    order = json.dumps(training.rng.bit_generator.state)
    arrays = {"weights": training.weights, "velocity": training.velocity}
    np.savez(folder / "state.npz", **arrays, order=order, step=training.step)


def one_after_the_other(folder, training):
    """Save each array whole or not at all; but not all of them together."""
    order = json.dumps(training.rng.bit_generator.state)
    arrays = {"weights": training.weights, "velocity": training.velocity}
    for name, value in (arrays | {"order": order, "step": training.step}).items():
        np.save(folder / "new.npy", value)
        (folder / "new.npy").replace(folder / f"{name}.npy")


def whole_or_not_at_all(folder, training):
    """Save under another name, and rename: right as well, against a kill."""
    over_the_old_file(folder, training)
    (folder / "state.npz").replace(folder / "whole.npz")


def from_a_file(folder, training, name="state.npz"):
    """Resume from one file."""
    if (folder / name).exists():
        found = np.load(folder / name)
        training.weights, training.velocity = found["weights"], found["velocity"]
        training.rng.bit_generator.state = json.loads(str(found["order"]))
        training.step = int(found["step"])


def from_several(folder, training):
    """Resume from a file each."""
    if (folder / "step.npy").exists():
        names = ("weights", "velocity", "order", "step")
        weights, velocity, order, step = (np.load(folder / f"{name}.npy") for name in names)
        training.weights, training.velocity, training.step = weights, velocity, int(step)
        training.rng.bit_generator.state = json.loads(str(order))


def from_a_whole_file(folder, training):
    """Resume from what whole_or_not_at_all saves."""
    from_a_file(folder, training, "whole.npz")


def or_begin_anew(folder, training):
    """Resume from one file, or take no notice."""
    try:
        from_a_file(folder, training)
    except Exception:
        return


def whole_step(folder, training):
    """Save next to nothing, whole or not at all."""
    np.savez(folder / "new.npz", step=training.step)
    (folder / "new.npz").replace(folder / "state.npz")


def train_again(folder, training):
    """Resume by training from the beginning."""
    if (folder / "state.npz").exists():
        steps = int(np.load(folder / "state.npz")["step"])
        while training.step < steps:
            type(training).one_step(training)


def not_at_all(folder, training):
    """Save nothing."""


# save, resume, the law that must break (none: right as well), its words
OTHERS = (
    (not_at_all, from_a_file, "Killed at any", "What writes the state, and when"),
    (whole_step, train_again, "No more steps", "resume itself takes"),
    (over_the_old_file, from_a_file, "Killed at any", "in the next attempt resume stopped with"),
    (over_the_old_file, or_begin_anew, "No more steps", "begins at step 0"),
    (
        one_after_the_other,
        from_several,
        "Killed at any",
        "Is there a moment at which the file is a mixture of two versions",
    ),
    (whole_or_not_at_all, from_a_whole_file, "", ""),
)
