"""Laws of experts: what is shared out, what travels for it, and that an even share of one is a plain network."""

import pytest

from lib_dlhpc import Experiment, SpecError
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.experiment import read_model

GPT = {"family": "gpt", "layers": 4, "hidden": 512, "heads": 8, "sequence": 256, "vocabulary": 1024}
RUN = Experiment(
    model={
        "family": "gpt",
        "layers": 4,
        "hidden": 512,
        "heads": 8,
        "sequence": 256,
        "vocabulary": 1024,
        "experts": 16,
        "chosen": 2,
    },
    dataset="webtext",
    machine={"name": "selene", "jitter": 0.0},
    strategy={"nodes": 2, "batch": 8, "precision": "fp16", "optimizer": "adam", "overlap": False},
)


def test_a_network_with_experts_is_counted():
    """All experts are held, and each word pays for those that it takes."""
    plain, many = read_model(GPT), read_model({**GPT, "experts": 16, "chosen": 2})
    inner = 2 * 512 * 2048 + 2048 + 512
    assert many.parameters - plain.parameters == 4 * (15 * inner + 512 * 16)
    forward = 4 * (2 * 256 * 2 * 512 * 2048 * 1 + 2 * 256 * 512 * 16)
    assert many.forward_flop - plain.forward_flop == pytest.approx(forward)
    one = read_model({**GPT, "experts": 1, "chosen": 1})
    assert one.parameters - plain.parameters == 4 * 512
    with pytest.raises(SpecError, match="chosen = 3"):
        read_model({**GPT, "experts": 2, "chosen": 3})


def test_experts_of_any_width_with_some_that_all_words_take():
    """`shared` experts are a feed-forward network of their hidden sizes together, beside the chosen ones."""
    routed = read_model({**GPT, "experts": 16, "chosen": 2, "expert_hidden": 100})
    mixed = read_model({**GPT, "experts": 16, "chosen": 2, "expert_hidden": 100, "shared": 3})
    plain, inner = read_model(GPT), 2 * 512 * 100 + 100 + 512
    dense = 2 * 512 * 2048 + 2048 + 512
    assert routed.parameters - plain.parameters == 4 * (16 * inner + 512 * 16 - dense)
    assert mixed.parameters - routed.parameters == 4 * (2 * 512 * 300 + 300 + 512)
    assert mixed.forward_flop - routed.forward_flop == pytest.approx(4 * 4 * 256 * 512 * 300)
    for name in ("shared", "expert_hidden"):
        with pytest.raises(SpecError, match=f"experts = 0: with .*{name} = 2.*legal: 0"):
            read_model({**GPT, name: 2})


def test_a_capacity_below_an_equal_share_bounds_the_work():
    """An expert takes at most ceil(capacity x chosen x positions / experts) positions of a sample."""
    free, ample, half = (
        read_model({**GPT, "experts": 16, "chosen": 2, "capacity": capacity})
        for capacity in (0, 1.25, 0.5)
    )
    assert ample.forward_flop == free.forward_flop
    work = 4 * 4 * 512 * 2048 * 16 * (2 * 256 / 16 - 16)
    assert free.forward_flop - half.forward_flop == pytest.approx(work)
    with pytest.raises(SpecError, match=r"capacity = -1: must be a number from 0"):
        read_model({**GPT, "experts": 16, "capacity": -1})


def test_replicas_share_out_the_experts():
    whole = predict(RUN)
    inner = 4 * 16 * (2 * 512 * 2048 + 2048 + 512)
    for shared in (2, 4, 8, 16):
        part = predict(RUN.set({"strategy.experts": shared}))
        saved = inner * (1 - 1 / shared)
        assert whole.memory["weights"] - part.memory["weights"] == pytest.approx(2 * saved)
        assert part.messages["experts"].total > 0
        assert sum(part.terms.values()) == pytest.approx(part.step_time)


def test_positions_travel_to_their_experts_and_back():
    """Two exchanges forward and two backward of each layer, of (e-1)/e of k positions for each position."""
    found = predict(RUN.set({"strategy.experts": 8})).messages["experts"]
    link = RUN.machine.intra_node
    moved = 4 * 4 * 2 * 8 * 256 * 512 * 2 * 7 / 8
    least = moved / (link.bandwidth * link.efficiency)
    assert found.bandwidth >= least * (1 - 1e-12)
    assert found.total <= (least + 4 * 4 * 7 * link.latency) * (1 + 1e-12)  # one after another
    away = predict(RUN.set({"strategy.experts": 16})).messages["experts"]
    assert away.total > found.total


@pytest.mark.parametrize("split", [{"strategy.experts": 8}, {"strategy.tensor": 8}])
def test_all_wait_for_the_rank_with_most_positions(split):
    """Its compute, its stored activations and its all-to-alls grow with the imbalance; all else stays."""
    split = {**split, "machine.device.dispatch": 0.0}  # else the host hides part of the growth
    even, uneven = (
        predict(RUN.set({**split, "strategy.expert_imbalance": most})) for most in (1, 1.5)
    )
    rows = 4 * 2 * 8 * 256 / split.get("strategy.tensor", 1)
    device = RUN.machine.device
    least = 0.5 * rows * 4 * 512 * 2048 / (device.peak["fp16"] * device.efficiency)
    # Copied as they leave and summed at home, ordered twice where they travel, and activated.
    copies = 2 * 512 + 4 * 512 * ("strategy.experts" in split) + 2 * 2048
    least += 0.5 * rows * copies * 2 / device.memory_bandwidth
    assert uneven.terms["forward"] - even.terms["forward"] == pytest.approx(least, rel=0.3)
    before, after = (each.messages["experts"].total for each in (even, uneven))
    assert after <= 1.5 * before
    assert (after > 1.2 * before) == ("strategy.experts" in split)
    for kind in ("data", "tensor"):
        assert uneven.messages[kind].total == even.messages[kind].total
    grown = {name for name, held in uneven.memory.items() if held > even.memory[name]}
    assert "activations" in grown and "weights" not in grown


def test_an_experts_gradients_go_to_those_who_have_it_too():
    whole, eight, all_ = (
        predict(RUN.set({"strategy.experts": e})).messages["data"].bandwidth for e in (1, 8, 16)
    )
    assert whole > eight > all_ > 0


def test_what_cannot_be_sharded_is_reported():
    with pytest.raises(SpecError, match=r"experts = 3: it must divide the 16 replicas"):
        predict(RUN.set({"strategy.experts": 3}))
    with pytest.raises(SpecError, match=r"experts = 16: it must divide the 4 experts"):
        predict(RUN.set({"strategy.experts": 16, "model.experts": 4}))
    with pytest.raises(SpecError, match=r"experts = 2: .* has no experts"):
        predict(RUN.set({"strategy.experts": 2, "model.experts": 0}))


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ({"strategy.zero": 1, "strategy.shards": 2}, r"shards = 2: .* the legal value is 0"),
        ({"strategy.zero": 1, "strategy.offload": "all"}, r"offload = 'all': .*'activations'"),
    ],
)
def test_zero_with_experts_has_limits_that_are_reported(way, words):
    with pytest.raises(SpecError, match=words):
        RUN.set({"strategy.experts": 2, **way})


@pytest.mark.parametrize("experts", [2, 4, 8, 16])
def test_state_of_experts_is_sharded_over_those_that_hold_them_and_all_other_over_all(experts):
    """Together 16 replicas hold it once, however the experts are divided; with one holder, that is all of them."""
    run = RUN.set({"strategy.experts": experts, "model.experts": 16, "strategy.optimizer": "adam"})
    whole, own = predict(run), predict(run.set({"strategy.zero": 1}))
    model = run.model
    theirs = sum(each.trained for each in model.layers if each.traits.tensor == "experts")
    held = model.trained - theirs + theirs / experts
    sharded = {"optimizer state": 8, "gradients": 2, "weights": 2}  # B of a weight, by level
    for level, run_of in enumerate(
        (run, *(run.set({"strategy.zero": zero}) for zero in (1, 2, 3)))
    ):
        memory = predict(run_of).memory
        for at, (name, element) in enumerate(sharded.items(), 1):
            share = model.trained / 16 if level >= at else held
            assert memory[name] == pytest.approx(element * share), (level, name)
    sent = (each.messages["data"].bandwidth for each in (whole, own))
    assert next(sent) == pytest.approx(next(sent), rel=0.05)
    assert own.step_time == pytest.approx(whole.step_time, rel=0.2)
