"""Fine-tuning with adapters: what frozen weights do not need is gone, in closed form; the rest is as it was."""

import pytest

from lib_dlhpc import Experiment, SpecError, simulate, sweep
from lib_dlhpc.costs.checkpoints import checkpoint_bytes, saving
from lib_dlhpc.costs.exchanges import weights_read
from lib_dlhpc.costs.roofline import layer_times, update_time
from lib_dlhpc.parallel import program
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.sweeps.grid import predict_points
from lib_dlhpc.program import Collective, prove
from lib_dlhpc.timeline import breakdown
from lib_dlhpc.training.check import check

RANK = 8
LLAMA = {"name": "llama2-7b", "layers": 2}
RUN = Experiment(
    model=LLAMA,
    machine="h100-pod",
    strategy={"batch": 2, "precision": "bf16", "optimizer": "adam", "fused_attention": "on"},
)
TUNED = RUN.set({"strategy.lora": RANK})
LAYERS, TOKENS, HIDDEN, INNER = 2, 4096, 4096, 11008
REPLICAS = int(RUN.devices)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_frozen_weights_have_no_gradients_and_no_state(zero):
    memory = predict(TUNED.set({"strategy.zero": zero})).memory
    model, shares = TUNED.model, [REPLICAS if zero >= level else 1 for level in (3, 2, 1)]
    assert memory["weights"] == pytest.approx(2 * model.parameters / shares[0])
    assert memory["gradients"] == pytest.approx(2 * model.trained / shares[1])
    assert memory["master weights"] == pytest.approx(4 * model.trained / shares[2])
    assert memory["optimizer state"] == pytest.approx(8 * model.trained / shares[2])


def test_frozen_products_do_not_store_their_inputs():
    """Gone are the inputs of both products of the perceptron and of the last; adapters add their products of low rank.

    The input of queries, keys and values stays, for the adapters, and fused attention reads its own output.
    """
    every = TUNED.set({"strategy.adapted": "all"})
    full, tuned, all_ = (predict(run).memory["activations"] for run in (RUN, TUNED, every))
    block = TOKENS * (HIDDEN + INNER) - TOKENS * 2 * RANK
    assert full - tuned == 2 * 2 * (LAYERS * block + TOKENS * HIDDEN)  # samples x bytes
    low = LAYERS * TOKENS * 7 * RANK
    assert full - all_ == 2 * 2 * (TOKENS * HIDDEN - low)


def exchanged(run):
    """Elements of each kind of collective of gradients and weights in a step of one microbatch."""
    step, found = program(run), {}
    (stage,) = step.stages
    blocks = (stage[0].forward, stage[0].last)
    posted = [each for block in blocks for each in block.variants[0].instructions]
    for each in (*posted, *(row[0] for row in step.end)):
        if isinstance(each, Collective):
            found[each.goal] = found.get(each.goal, 0) + each.elements
    return found


def test_replicas_exchange_gradients_of_adapters_and_gather_what_is_sharded():
    trained, read = TUNED.model.trained, sum(weights_read(TUNED.model))
    for zero, expected in (
        (0, {"allreduce": trained}),
        (1, {"reduce_scatter": trained, "allgather": trained}),
        (2, {"reduce_scatter": trained, "allgather": trained}),
        (3, {"reduce_scatter": trained, "allgather": 2 * read}),
    ):
        run = TUNED.set({"strategy.zero": zero})
        assert exchanged(run) == pytest.approx(expected)
        prove((program(run),))


def test_backward_of_a_frozen_product_takes_as_long_as_its_forward():
    full, tuned = (layer_times(run.model, run.machine.device, 2, "bf16") for run in (RUN, TUNED))
    at = {layer.name: n for n, layer in enumerate(RUN.model.layers)}
    for n, layer in enumerate(TUNED.model.layers):
        if layer.traits.lookup:
            assert tuned.backward[n] == 0
        elif layer.frozen and layer.kind == "dense":
            assert tuned.backward[n] == pytest.approx(tuned.forward[n], rel=1e-12)
        elif layer.name in at and layer.kind != "fused_attention":
            assert tuned.backward[n] == full.backward[at[layer.name]]


def test_only_adapters_are_updated():
    one, other = (update_time(run.model, run.machine.device, "adam") for run in (RUN, TUNED))
    assert other / one == pytest.approx(TUNED.model.trained / RUN.model.trained)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_checkpoint_has_adapters_and_a_restart_reads_all(optimizer):
    tier = "gpfs"
    more = {"strategy.optimizer": optimizer, "storage.tier": tier, "machine.name": "summit"}
    run = TUNED.set({**more, "strategy.precision": "fp16"})
    size = checkpoint_bytes(run.model, "fp16", optimizer)
    assert size == {"sgd": 6, "adam": 14}[optimizer] * run.model.trained
    found, whole = saving(run), saving(run.set({"strategy.lora": 0}))
    assert found.size == found.written == size
    assert found.blocked < whole.blocked and found.restart < whole.restart


@pytest.mark.parametrize("fidelity", ["rounds", "events"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"zero": 3, "shards": 2},
        {"pipeline": 2, "microbatches": 2, "recompute": "full"},
        {"context": 2, "zero": 1, "adapted": "all"},
    ],
)
def test_both_simulations_have_the_predicted_step(fidelity, more):
    run = Experiment(
        model={"family": "gpt", "layers": 4, "hidden": 64, "heads": 4, "sequence": 32},
        machine={"name": "h100-pod", "jitter": 0.0},
        strategy={"batch": 8, "devices_per_node": 4, "lora": 4, **more},
    )
    played = breakdown(simulate(run, fidelity))
    assert played.step_time == pytest.approx(float(predict(run).step_time), rel=2e-3)


def test_a_table_of_two_stages_is_not_summed_where_it_is_frozen():
    run = RUN.set({"model.name": "gpt2-1.5b", "model.layers": 4, "strategy.pipeline": 2})
    swaps = [
        sum(type(each).__name__ == "PairAllreduce" for row in program(one).end for each in row)
        for one in (run, run.set({"strategy.lora": RANK}))
    ]
    assert swaps[0] > swaps[1] == 0


def test_ranks_are_swept_one_by_one_beside_arrays():
    found = sweep(RUN, {"strategy.lora": [0, 8, 64], "strategy.nodes": [1, 2]})
    for row, rank in zip(found.step_time, (0, 8, 64), strict=True):
        for step, nodes in zip(row, (1, 2), strict=True):
            one = predict(RUN.set({"strategy.lora": rank, "strategy.nodes": nodes}))
            assert step == pytest.approx(float(one.step_time), rel=1e-12)
    columns = {"strategy.lora": [0, 8], "strategy.batch": [1, 2]}
    points = predict_points(RUN, columns, 0, 4)
    assert points["memory_total"][3] == pytest.approx(float(predict(TUNED).memory_total))


@pytest.mark.parametrize(
    ("field", "value"),
    [("tensor", 2), ("update", "local"), ("offload", "all"), ("schedule", "zb-h1")],
)
def test_what_is_not_priced_is_refused(field, value):
    with pytest.raises(SpecError, match=f"strategy.lora = {RANK}: .*strategy.{field} = .*legal"):
        TUNED.set({f"strategy.{field}": value})


def test_a_run_refuses_adapters():
    with pytest.raises(SpecError, match="priced, not trained"):
        check(TUNED.set({"strategy.precision": "fp32"}))
