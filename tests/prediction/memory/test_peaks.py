"""Peaks of many layouts as columns are those of each layout alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib_dlhpc.prediction.memory.peaks import TERMS, peaks
from lib_dlhpc.prediction.memory.rank_memory import peak, rank_columns
from lib_dlhpc.spec.experiment import Experiment

GPT = {"family": "gpt", "layers": 8, "hidden": 512, "heads": 8, "sequence": 128, "vocabulary": 512}
RUN = Experiment(
    model=GPT,
    machine="selene",
    strategy={"nodes": 1, "batch": 32, "precision": "bf16", "optimizer": "adam"},
)


@st.composite
def layouts(draw):
    pipeline = draw(st.sampled_from([1, 2, 4]))
    schedules = ["gpipe", "1f1b", "interleaved", "zb-h1", "dualpipe"] if pipeline > 1 else ["1f1b"]
    schedule = draw(st.sampled_from(schedules))
    runtimes = ["megatron"] if schedule == "dualpipe" else ["megatron", "pytorch"]
    changes = {
        "pipeline": pipeline,
        "schedule": schedule,
        "tensor": draw(st.sampled_from([1, 2])),
        "chunks": 2 if schedule == "interleaved" else 1,
        "microbatches": draw(st.sampled_from([8, 16, 32])),
        "zero": draw(st.integers(0, 3)),
        "pipeline_runtime": draw(st.sampled_from(runtimes)),
        "wire": draw(st.sampled_from(["same", "fp32"])),
        "gather": "usual",
        "recompute": draw(st.sampled_from(["none", "selective", "full"])),
    }
    return RUN.set({f"strategy.{name}": each for name, each in changes.items()})


@settings(max_examples=15)
@given(st.lists(layouts(), min_size=1, max_size=8))
def test_peaks_at_once_are_the_peak_of_each_layout(some):
    many = np.array([each.strategy.microbatches for each in some])
    schedules = np.array([each.strategy.schedule for each in some])
    found = peaks([rank_columns(each) for each in some], np.arange(len(some)), many, schedules)
    for each, terms in zip(some, found.T, strict=True):
        expected = peak(each)
        # Sums in another order differ by rounding; of equal ranks either may be named.
        assert terms.sum() == pytest.approx(expected.total, rel=1e-12)
        assert terms[TERMS.index("weights")] > 0
