"""Length of a run in tokens: one pass over as many samples of the model's sequence as hold them."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.dataset import Dataset, cut
from lib_dlhpc.spec.schema import check_value, number

if TYPE_CHECKING:
    from lib_dlhpc.spec.experiment import Experiment

TOKENS = "run.tokens"  # read, never written: it is a length in samples then
SAME = ("run.epochs", "dataset.samples")  # state the length, too
AMOUNT = number(positive=True, most=1e15).metadata


def over_tokens(experiment: "Experiment", tokens: Any, stated: Collection[str]) -> dict[str, Any]:
    """Return the data set and the run of an experiment over a number of tokens; each has as many bytes as before.

    stated: the fields given beside it. Raises SpecError if they state the length, too, and for a model that reads no
    tokens.
    """
    amount, model, data = check_value(AMOUNT, tokens, TOKENS), experiment.model, experiment.dataset
    if both := [field for field in SAME if field in stated]:
        raise SpecError(f"{TOKENS} and {both[0]} both state the length of a run; give one of them.")
    if not model.reads_tokens:
        name = model.name or "the model"
        raise SpecError(f"{TOKENS} = {tokens}: {name} reads no tokens; give run.epochs.")
    sequence = model.input_shape[0]
    samples = np.maximum(np.round(amount / sequence / (1 - data.test_share)), 1)
    per_token = data.bytes / data.samples / (data.sample_shape or (sequence,))[0]
    sizes = {"samples": samples.astype(np.int64), "bytes": samples * sequence * per_token}
    if not np.ndim(samples):
        sizes = {name: size.item() for name, size in sizes.items()}
    return {
        "dataset": replace(data, sample_shape=(sequence,), **sizes),
        "run": replace(experiment.run, epochs=1.0),
    }


def cut_anew(before: "Experiment", after: "Experiment", other: bool) -> Dataset:
    """Return the data set of a changed experiment, a text cut into samples of its model's sequence.

    The tokens of a run stay what they were: before, each sample had the sequence of the model of then. other: the data
    set was changed for another.
    """
    data, was, sequence = after.dataset, before.model.input_shape, after.model.input_shape
    if other:
        return cut(data, sequence)
    both = before.model.reads_tokens and after.model.reads_tokens and len(data.sample_shape) <= 1
    if was == sequence or not (both or data.sample_shape == was):
        return data
    stated = replace(data, sample_shape=was)
    fitted = cut(stated, sequence)
    return data if fitted is stated else fitted


def parted(run: Any, dataset: Any) -> tuple[Any, Any, set[str]]:
    """Return the table of a run without its tokens, these or None, and the fields that both tables state."""
    if not isinstance(run, Mapping) or "tokens" not in run:
        return run, None, set()
    tables = {"run": run, "dataset": dataset if isinstance(dataset, Mapping) else {}}
    stated = {f"{section}.{key}" for section, table in tables.items() for key in table}
    return {k: v for k, v in run.items() if k != "tokens"}, run["tokens"], stated
