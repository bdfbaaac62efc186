"""The terms of a step add up to it, and mean the same whatever framework wrote the trace."""

import numpy as np
import pytest

from lib_dlhpc import SpecError
from lib_dlhpc.timeline import from_rows
from lib_dlhpc.timeline.analysis import analyze
from lib_dlhpc.timeline.formats import read
from lib_dlhpc.timeline.spans import in_order
from lib_dlhpc.timeline.steps import find_steps, step_terms
from lib_dlhpc.timeline.steps.report import as_text

# Of the network in make_torch.py, make_jax.py.
GRADIENTS = 4 * (784 * 128 + 128 + 128 * 64 + 64 + 64 * 10 + 10)


@pytest.fixture(scope="module")
def traces(repository):
    folder = repository / "tests" / "data" / "frameworks"
    return {name: step_terms(read(folder / name)) for name in ("pytorch", "jax", "nccl")}


@pytest.mark.parametrize("name", ["pytorch", "jax", "nccl"])
def test_a_step_is_the_sum_of_its_terms(traces, name, repository):
    found = traces[name]
    table = in_order(read(repository / "tests" / "data" / "frameworks" / name))
    assert found.seconds == pytest.approx(np.diff(find_steps(table).edges, axis=1), rel=1e-9)
    assert all((seconds >= 0).all() for seconds in found.terms.values())
    assert np.all(found.terms["exposed communication"] <= found.communication + 1e-12)
    for term in ("compute", "exposed communication", "idle"):
        assert found.terms[term].any()


def test_the_steps_are_those_that_the_frameworks_annotate(traces, repository):
    """Six steps each of two ranks; they are as long as from the first annotation to the end of the last."""
    table = read(repository / "tests" / "data" / "frameworks" / "pytorch")
    steps = table.select(table.where("host", "step") & (table.rank == 1))
    found = traces["pytorch"]
    assert found.seconds.shape == traces["jax"].seconds.shape == (2, 6)
    assert found.found == traces["jax"].found == "annotations"
    span = steps.stop.max() - steps.start.min()
    assert found.seconds[1].sum() == pytest.approx(span, rel=1e-9)


def test_pytorch_and_jax_exchange_the_same_gradients(traces):
    """One network, batch and optimizer: one allreduce of all gradients in each step, no matter who trains it."""
    for name in ("pytorch", "jax"):
        (exchange,) = traces[name].exchanges
        assert (exchange.name, exchange.bytes, exchange.calls) == ("allreduce", GRADIENTS, 1.0)
        assert traces[name].terms["input wait"].min() > 0


def test_the_buckets_of_nccl_are_the_parameters_of_resnet_50(traces):
    """Five allreduces a step; the batch normalizations' buffers are broadcast."""
    found = traces["nccl"]
    reduced = [each for each in found.exchanges if each.name == "allreduce"]
    assert sum(each.bytes * each.calls for each in reduced) == 4 * 25_557_032
    assert len(reduced) == 5 and {each.name for each in found.exchanges} == {
        "allreduce",
        "broadcast",
    }
    assert (found.rank, found.ranks, found.steps) == ([0], 2, 3)
    assert 0 < found.exposed_share < 1  # on a stream of their own, beside the backward pass


def one_rank(*rows):
    return step_terms(from_rows([(0, *row) for row in rows], 1, "measured"))


def test_a_moment_counts_once():
    found = one_rank(
        ("host", "step", "1", 0.0, 10.0),
        ("compute", "kernel", "a", 1.0, 4.0),
        ("compute", "kernel", "b", 3.0, 5.0),
        ("communication", "collective", "all_reduce", 4.0, 7.0, 100),
        ("input", "input", "batch", 6.0, 9.0),
    )
    assert {term: float(seconds[0, 0]) for term, seconds in found.terms.items()} == {
        "compute": 4.0,
        "exposed communication": 2.0,
        "input wait": 2.0,
        "checkpoint": 0.0,
        "idle": 2.0,
    }
    assert found.communication[0, 0] == 3.0 and found.exposed_share == pytest.approx(2 / 3)


def test_what_collates_a_batch_on_the_processor_is_no_compute():
    """A loader in the process itself calls operators for the batch: no other work runs meanwhile."""
    found = one_rank(
        ("host", "step", "1", 0.0, 4.0),
        ("compute", "input", "loader", 0.0, 2.0),
        ("compute", "kernel", "aten::stack", 0.5, 1.0),
        ("compute", "kernel", "aten::mm", 2.0, 4.0),
    )
    assert found.terms["compute"][0, 0] == found.terms["input wait"][0, 0] == 2.0


def test_a_simulation_has_steps_by_its_updates():
    rows = [
        ("compute", kind, kind, 3.0 * step + k, 3.0 * step + k + 1)
        for step in range(4)
        for k, kind in enumerate(("forward", "backward", "update"))
    ]
    found = one_rank(*rows)
    assert found.found == "updates" and found.seconds.tolist() == [[3.0] * 4]


def test_without_annotations_a_step_is_the_period_of_the_kernels(traces, repository):
    """The kernels of ResNet-50 repeat three times; without the steps' names the same compute is found."""
    table = read(repository / "tests" / "data" / "frameworks" / "nccl")
    found = step_terms(table.select(~table.where("", "step")))
    assert (found.found, found.steps) == ("repetition", 3)
    named = traces["nccl"].terms["compute"].mean()
    assert found.terms["compute"].mean() == pytest.approx(named, rel=0.01)


def test_a_trace_without_steps_says_what_was_expected():
    row = ("compute", "kernel", "once", 0.0, 1.0)
    with pytest.raises(SpecError, match="No step found in the trace: expected steps that"):
        one_rank(row)


def test_traces_stand_side_by_side(traces):
    text = as_text({name: traces[name] for name in ("pytorch", "jax")})
    head, *lines = text.splitlines()
    assert head.split()[-2:] == ["pytorch", "jax"]
    (moved,) = [line for line in lines if line.startswith("bytes exchanged")]
    assert moved.split()[2:4] == moved.split()[4:6] == ["438", "kB"]


def test_of_a_program_whose_calls_were_recorded_the_rest_is_compute():
    """As Score-P and `dlhpc trace run` record MPI; a step is the period of the calls."""
    rows = [
        ("communication", "collective", name, 4.0 * step + at, 4.0 * step + at + 0.5, 8)
        for step in range(5)
        for name, at in (("Bcast", 0.0), ("Allreduce", 1.0))
    ]
    found = one_rank(*rows, ("compute", "region", "main", 0.0, 16.0))
    assert (found.found, found.steps) == ("repetition", 5)
    assert found.terms["compute"][0, :4].tolist() == [3.0] * 4
    assert not found.terms["idle"].any()
    assert {each.name for each in found.exchanges} == {"broadcast", "allreduce"}


def test_the_analysis_of_waits_counts_the_same_compute(traces, repository):
    """NCCL runs beside the backward pass: a rank computes in its collectives too, and not where no kernel runs."""
    whole = analyze(read(repository / "tests" / "data" / "frameworks" / "nccl"))
    found = traces["nccl"]
    assert whole.compute[0] == pytest.approx(found.terms["compute"].sum(), rel=0.02)
    exposed = found.terms["exposed communication"].sum()
    assert whole.exposed[0] == pytest.approx(exposed, rel=0.02)


def test_a_step_of_kernels_that_are_all_alike_ends_where_its_collectives_repeat(repository):
    """Two matrix products and an allreduce, sixteen times, and a few other collectives."""
    found = step_terms(read(*sorted((repository / "tests" / "data" / "kineto").glob("*.json"))))
    assert (found.found, found.steps) == ("repetition", 16)
    assert (found.exchanges[0].name, found.exchanges[0].calls) == ("allreduce", 1.0)
