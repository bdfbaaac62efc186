"""Laws of multi-token prediction: what its modules add to a decoder, and where they are refused."""

import pytest
from split_runs import split

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layout import chain, parts
from lib_dlhpc.parallel import steps
from lib_dlhpc.prediction import predict
from lib_dlhpc.program import prove
from lib_dlhpc.serving import read_service
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec.experiment import Experiment, read_model
from lib_dlhpc.timeline import breakdown
from lib_dlhpc.training.check import check

H, S, V = 64, 32, 96
WAYS = [
    {"data": 2},
    {"data": 2, "recompute": "full"},
    {"data": 2, "pipeline": 2, "microbatches": 4},
    {"data": 1, "pipeline": 4, "microbatches": 4},
    {"data": 2, "pipeline": 2, "microbatches": 4, "schedule": "interleaved", "chunks": 2},
    {"data": 2, "pipeline": 2, "microbatches": 4, "schedule": "zb-h1"},
    {"data": 2, "pipeline": 2, "microbatches": 8, "schedule": "dualpipe"},
    {"data": 4, "pipeline": 2, "microbatches": 4, "zero": 3},
    {"data": 2, "pipeline": 2, "microbatches": 4, "tensor": 2, "sequence_parallel": True},
    {"data": 4, "experts": 4, "pipeline": 2, "microbatches": 4},
]


def model_of(mtp, **options):
    return {
        "family": "decoder",
        "layers": 3,
        "hidden": H,
        "sequence": S,
        "vocabulary": V,
        "attention": {"heads": 4},
        "feed_forward": {"features": 96},
        "experts": {"dense": 1, "experts": 8, "chosen": 2, "features": 32, "shared": 32},
        "mtp": mtp,
        **options,
    }


def counts(mtp, **options):
    model = read_model(model_of(mtp, **options))
    return model.parameters, model.forward_flop


def test_a_bias_of_the_last_matrix_is_refused_in_words_where_modules_would_share_it():
    with pytest.raises(SpecError, match="mtp: modules share the last matrix, not its bias"):
        read_model(model_of(1, logits_bias=True))
    read_model(model_of(0, logits_bias=True))
    read_model(model_of(1, logits_bias=True, tied=True))


@pytest.mark.parametrize("tied", [False, True])
def test_a_module_adds_a_block_a_product_of_twice_the_width_three_norms_and_no_table(tied):
    """DeepSeek-AI 2024, section 2.2: a block like the last one, and logits by the matrix of the model."""
    none, one, two = (counts(mtp, tied=tied) for mtp in (0, 1, 2))
    deeper = counts(0, tied=tied, layers=4)
    assert one[0] - none[0] == deeper[0] - none[0] + 2 * H * H + 3 * H
    assert one[1] - none[1] == deeper[1] - none[1] + S * (2 * 2 * H * H + 2 * H * V)
    assert [two[at] - one[at] for at in (0, 1)] == [one[at] - none[at] for at in (0, 1)]


def test_deepseek_v3_has_14_billion_more_with_the_tables_that_its_module_shares():
    """The main network stays exact; 685 billion with the module, as DeepSeek-AI says of its files."""
    run = Experiment(model="deepseek-v3", machine="h800-pod", dataset="webtext")
    more = run.set({"model.mtp": 1})
    assert run.model.parameters == 671_026_404_352
    shared = 2 * 129_280 * 7168
    assert more.model.parameters + shared == pytest.approx(685e9, abs=1e9)
    assert more.model.forward_flop > run.model.forward_flop * (1 + 1 / 61)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("ways", WAYS, ids=str)
def test_predicted_is_what_is_played_and_takes_longer_than_without(ways, tied):
    without, run = (split(model_of(mtp, tied=tied), precision="bf16", **ways) for mtp in (0, 1))
    prove(steps(run))
    predicted = predict(run)
    played = breakdown(simulate(run))
    assert played.step_time == pytest.approx(float(predicted.step_time), rel=1e-9)
    assert float(predicted.step_time) > float(predict(without).step_time)


def test_a_stage_has_a_copy_of_each_table_that_its_module_shares_with_another():
    run = split(model_of(2), data=1, pipeline=8, microbatches=8, precision="bf16")
    stages = [held[0] for held in chain(run)]
    at = {layer.name: part.stage for part in stages for layer in part.model.layers if layer.inputs}
    for name in ("words", "logits"):
        uses = {at[name], at[f"mtp1.{name}"], at[f"mtp2.{name}"]}
        assert len(uses) > 1, name
        (owner,) = (layer for layer in run.model.layers if layer.name == name)
        for part in stages:
            assert (name in part.shared) == (part.stage in uses)
            own = [layer for layer in part.model.layers if layer.name == name]
            assert [layer.parameters for layer in own] == [owner.parameters] * (part.stage in uses)


@pytest.mark.parametrize("tied", [False, True])
def test_tensor_ranks_hold_its_products_and_tables_once(tied):
    run = split(model_of(1, tied=tied), tensor=2, precision="bf16")
    held = [
        {layer.name: layer.parameters for layer in parts(run, rank)[0].model.layers}
        for rank in range(2)
    ]
    for name in ("words", "logits", "mtp1.words", "mtp1.logits", "mtp1.from_state"):
        (whole,) = (each.parameters for each in run.model.layers if each.name == name)
        assert [each[name] for each in held] == [whole / 2] * 2, name


def test_it_is_neither_trained_nor_served():
    run = split(model_of(1), data=1, precision="fp32")
    with pytest.raises(SpecError, match="no layer reads its output, so it cannot be trained"):
        check(run)
    with pytest.raises(
        SpecError, match=r"model.mtp = 1: its modules draft if \[draft\] names no model"
    ):
        read_service({"model": model_of(1), "machine": "h100-pod"})
