"""Laws of the program of a step with context parallelism: what travels, beside what, and how much of it."""

from dataclasses import replace
from itertools import pairwise

import pytest
from split_runs import GPT, split

from lib_dlhpc import SpecError, parallel
from lib_dlhpc.costs.roofline import layer_times, streaming_rate
from lib_dlhpc.layout import parts
from lib_dlhpc.parallel import step
from lib_dlhpc.prediction import predict
from lib_dlhpc.program import Collective, Compute, Wait, prove
from lib_dlhpc.schedules.checks import ProofError
from lib_dlhpc.simulation import simulate
from lib_dlhpc.timeline import breakdown
from lib_dlhpc.training.check import check

GROUPED = {
    "family": "llama",
    "layers": 2,
    "hidden": 64,
    "heads": 8,
    "kv_heads": 4,
    "feed_forward": 96,
    "sequence": 32,
    "vocabulary": 64,
}
WAYS = {"heads": {}, "ring": {"context_exchange": "ring", "fused_attention": "auto"}}
GATHERED = {"context_exchange": "gather", "fused_attention": "auto", "precision": "bf16"}


def run_of(way, model=GROUPED, context=4, **strategy):
    return split(model, context=context, **{**WAYS[way], **strategy})


def blocks(run):
    chunk = parallel.program(run).stages[0][0]
    layers = chunk.forward.prices[0].model.layers
    for phase in ("forward", "backward", "last"):
        yield phase, layers, getattr(chunk, phase).variants[0].instructions


def exchanged(instructions):
    return [
        each for each in instructions if isinstance(each, Collective) and each.group == "context"
    ]


@pytest.mark.parametrize("tensor", [1, 2])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_heads_are_exchanged_before_and_after_the_work_of_attention(tensor, recompute):
    """Queries, keys and values one way, outputs the other; in backward their gradients. Grouped keys are fewer."""
    run = run_of("heads", context=2, tensor=tensor, recompute=recompute)
    own = 32 // 2 * 64 // tensor
    for phase, layers, instructions in blocks(run):
        inside = [each for each in instructions if not getattr(each, "stream", "")]
        inside = [each for each in inside if getattr(each, "group", "context") == "context"]
        worked = [
            at
            for at, each in enumerate(inside)
            if isinstance(each, Compute) and "attention" in layers[each.layer].kind
        ]
        again = 2 if recompute == "full" and phase != "forward" else 1
        assert len(worked) == again * GROUPED["layers"]
        for at in worked:
            sizes = [inside[at + side].elements for side in (-1, 1)]
            forward = inside[at].phase == "forward"
            assert sizes == ([2 * own, own] if forward else [own, 2 * own])
        assert len(exchanged(instructions)) == 2 * len(worked)


@pytest.mark.parametrize("way", WAYS)
def test_a_norm_of_heads_sends_nothing(way):
    """It treats each token by itself: what travels is what travels without it (Qwen3)."""
    size = {"layers": 2, "hidden": 64, "sequence": 32, "vocabulary": 64}
    attention = {"heads": 8, "kv_heads": 4}
    model = {"family": "decoder", **size, "feed_forward": {"features": 96}}
    found = [
        [
            [(each.elements, each.pairs) for each in exchanged(instructions)]
            for _, _, instructions in blocks(run_of(way, model | {"attention": own}, context=2))
        ]
        for own in (attention, attention | {"normed": True})
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("tensor", [1, 2])
@pytest.mark.parametrize("way", WAYS)
def test_latent_attention_sends_the_keys_and_values_of_its_heads(way, tensor):
    """Queries, keys and values of a head, and the rotated part that all share (DeepSeek-V2, section 2.1.2)."""
    latent = {"heads": 8, "latent": 16, "plain": 6, "rotated": 4, "values": 5}
    size = {"layers": 2, "hidden": 64, "sequence": 32, "vocabulary": 64}
    model = {"family": "decoder", **size, "feed_forward": {"features": 96}, "attention": latent}
    run = run_of(way, model, context=2, tensor=tensor)
    heads, tokens = 8 // tensor, 32 // 2
    keys = tokens * (heads * (6 + 5) + 4)
    there, home = tokens * heads * (6 + 4) + keys, tokens * heads * 5
    _, _, instructions = next(blocks(run))
    sent = [each.elements for each in exchanged(instructions)]
    assert sent == (2 * [there, home] if way == "heads" else 2 * [keys])


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_ring_sends_keys_and_values_c_minus_one_times_and_their_gradients_once_more(ranks):
    run = run_of("ring", context=ranks)
    keys = 32 // ranks * 64  # of half as many heads as queries, both
    for phase, layers, instructions in blocks(run):
        many = (2 * ranks - 1) if phase != "forward" else ranks - 1
        found = exchanged(instructions)
        assert len(found) == many * GROUPED["layers"]
        assert all(each.elements == keys == each.pairs[0][2] for each in found)
        ends = {pair[:2] for each in found for pair in each.pairs}
        assert ends == {(rank, (rank + 1) % ranks) for rank in range(ranks)}
        assert len({each.key for each in found}) == many
        computed = [each for each in instructions if isinstance(each, Compute)]
        of = [each for each in computed if "attention" in layers[each.layer].kind]
        assert len(of) == ranks * GROUPED["layers"]
        waits = [
            each for each in instructions if isinstance(each, Wait) and each.stream == "context"
        ]
        assert len(waits) == len(found)


@pytest.mark.parametrize("slow", [1e6, 1e9, 1e12])
def test_a_ring_hides_what_is_shorter_than_a_block(slow):
    """Forward: max(block, message) for each message, and the last block (Liu et al. 2023, section 3.2)."""
    run = run_of("ring", links={"latency": 0.0, "bandwidth": slow}, microbatches=1)
    chunk = parallel.program(run).stages[0][0]
    prices, ranks = chunk.forward.prices[0], 4
    at = next(n for n, layer in enumerate(prices.model.layers) if "attention" in layer.kind)
    block = prices.seconds["forward"][at] / ranks
    one = next(each for each in exchanged(chunk.forward.variants[0].instructions))
    message = prices.priced(one).seconds
    link, nics = run.machine.inter_node, run.machine.nics
    assert message == pytest.approx(32 // 4 * 64 * 8 * 4 / (slow * link.efficiency * nics))
    back = prices.seconds["backward"][at] / ranks
    exposed = 3 * max(0, message - block)
    # Backward: keys beside the first block; then the gradients of one block and the keys of the next.
    exposed += (
        max(0, message - back) + 2 * max(0, 2 * message - back) + max(0, message - back) + message
    )
    found = float(predict(run).exposed["context"])
    assert found == pytest.approx(GROUPED["layers"] * exposed, rel=1e-9)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "ways",
    [
        {"data": 2, "zero": 3},
        {"data": 2, "zero": 3, "shards": 2},
        {"tensor": 2, "sequence_parallel": True, "context": 2},
        {"pipeline": 2, "microbatches": 4, "schedule": "zb-h1"},
        {"recompute": "full", "offload": "activations"},
    ],
    ids=str,
)
def test_the_program_trains(way, ways):
    prove(parallel.steps(run_of(way, **ways)))


def test_experts_are_reached_by_tokens_of_any_rank():
    run = split(GPT | {"experts": 8, "chosen": 2}, context=2, data=2, experts=4)
    step = parallel.program(run)
    prove([step])
    assert step.in_step.size == 4


def test_gradients_are_summed_and_state_is_sharded_over_all_ranks():
    """Neighbors in the data group, as in Megatron: data x context ranks."""
    run = run_of("heads", context=2, data=2, zero=1)
    alone = split(GROUPED, data=4, zero=1)
    groups = parallel.program(run).groups
    assert groups["data"].size == 4 and groups["context"].rows.tolist() == [[0, 1], [2, 3]]
    assert run.global_batch * 2 == alone.global_batch
    for name in ("weights", "gradients", "optimizer state"):
        assert predict(run).memory[name] == predict(alone).memory[name]


def is_ring(each):
    return isinstance(each, Wait | Collective) and each.stream == "context"


MUTANTS = {
    "a block after others": lambda found: [
        *found,
        next(e for e in found if isinstance(e, Compute) and "block" in e.phase),
    ],
    "messages that nobody waits for": lambda found: [
        each for each in found if not (isinstance(each, Wait) and is_ring(each))
    ],
    "waits for nothing": lambda found: [
        each for each in found if not (isinstance(each, Collective) and is_ring(each))
    ],
}


@pytest.mark.parametrize("number, name", list(enumerate(MUTANTS)))
def test_a_ring_that_cannot_be_is_refused(number, name, monkeypatch):
    def mistaken(experiment, held, passes):
        passes.forward = MUTANTS[name](passes.forward)

    monkeypatch.setattr(step, "PASSES", (*step.PASSES, mistaken))
    with pytest.raises(ProofError):
        prove(parallel.steps(run_of("ring", bucket=2.5e4 + number)))


def test_the_blocks_of_a_layer_follow_one_another():
    for _, layers, instructions in blocks(run_of("ring")):
        computed = [each.layer for each in instructions if isinstance(each, Compute)]
        changes = sum(one != other for one, other in pairwise(computed))
        assert changes == len(layers) - 1


@pytest.mark.parametrize("ranks", [2, 4])
def test_keys_of_all_heads_are_gathered_once_and_their_gradients_go_round_in_32_bits(ranks):
    """Keys and values of each of eight heads of queries, though they have four; twice the bytes of bf16."""
    run = split(GROUPED, context=ranks, **GATHERED)
    own = 2 * 32 // ranks * 64
    chunk = parallel.program(run).stages[0][0]
    for phase, layers, instructions in blocks(run):
        found = exchanged(instructions)
        gathers = [each for each in found if each.goal == "allgather"]
        shifts = [each for each in found if each.goal == "shift"]
        assert [each.elements for each in gathers] == [ranks * own] * GROUPED["layers"]
        assert [each.elements for each in shifts] == [own] * len(shifts)
        assert len(shifts) == (phase != "forward") * ranks * GROUPED["layers"]
        prices = chunk.forward.prices[0]
        assert {prices.bytes(each) for each in shifts} <= {8 * 4.0 * own}
        assert {prices.bytes(each) for each in gathers} == {8 * 2.0 * own * ranks}
        for at, each in enumerate(instructions):
            if each in found:  # a compiled model waits for each at once
                assert (instructions[at + 1].stream, instructions[at + 1].key) == each[5:7]
            if each in gathers:  # before the first block
                assert "attention" in layers[instructions[at + 2].layer].kind
    prove(parallel.steps(run))


@pytest.mark.parametrize("ranks", [2, 4])
def test_what_context_ranks_gather_and_send_is_exposed(ranks):
    """However fast the blocks: an all-gather in each direction, and a message behind each block of backward."""
    run = split(GROUPED, context=ranks, **GATHERED)
    chunk = parallel.program(run).stages[0][0]
    found = exchanged(chunk.backward.variants[0].instructions)
    found += exchanged(chunk.forward.variants[0].instructions)
    assert len(found) == (2 + ranks) * GROUPED["layers"]
    seconds = sum(chunk.forward.prices[0].priced(each).seconds for each in found)
    microbatches = run.strategy.microbatches
    assert float(predict(run).exposed["context"]) == pytest.approx(microbatches * seconds)


@pytest.mark.parametrize("ways", [{}, {"recompute": "early-stop"}, {"data": 2, "zero": 3}], ids=str)
def test_gathered_keys_play_as_predicted(ways):
    links = {"latency": 0.0, "bandwidth": 1e8}  # four times the bytes of a ring are exposed
    run = split(GROUPED, links, context=4, **GATHERED, **ways)
    predicted = predict(run)
    ring = predict(run.set({"strategy.context_exchange": "ring"}))
    assert predicted.step_time > ring.step_time
    assert predicted.memory_total > ring.memory_total
    shared = "data" in ways  # as events, messages of both groups share links
    for fidelity in ("rounds",) if shared else ("rounds", "events"):
        played = breakdown(simulate(run, fidelity)).step_time
        assert played == pytest.approx(float(predicted.step_time), rel=1e-6)


class Kernels:
    """Bytes that kernels move, each array once: what PyTorch's context_parallel calls for sums of blocks."""

    def __init__(self, own):
        self.own, self.moved = own, 0

    def call(self, *sizes):
        """Count a kernel that reads and writes arrays of `own` elements of these bytes."""
        self.moved += self.own * sum(sizes)

    def cast(self, old, new):
        if old != new:  # torch.Tensor.to returns an array that has this type
            self.call(old, new)

    def gather(self, size):
        for _ in "kv":
            self.call(size, size)  # torch.cat

    def forward(self, ranks, size):
        self.gather(size)
        self.cast(size, 4)
        for _ in range(1, ranks):
            self.call(size, 4, 4)
        self.cast(4, size)

    def backward(self, ranks, size):
        self.gather(size)
        for _ in "qkv":
            self.call(4)  # zeros
        for _ in range(ranks):
            for _ in "qkv":
                self.call(size, 4, 4)
            for _ in "kv":
                self.call(4, 4)  # torch.cat
        for _ in "qkv":
            self.cast(4, size)


@pytest.mark.parametrize(("precision", "size"), [("fp32", 4), ("tf32", 4), ("bf16", 2), ("fp8", 2)])
@pytest.mark.parametrize("how", [(2, 1), (4, 2), (8, 1), (16, 4)])
def test_sums_of_blocks_move_what_their_kernels_do(how, precision, size):
    ranks, tensor = how
    run = split(GROUPED, context=ranks, tensor=tensor, **{**GATHERED, "precision": precision})
    model = parts(run, 0)[0].model
    layer = next(each for each in model.layers if "attention" in each.kind)
    one, two = Kernels(32 // ranks * 64 // tensor), Kernels(32 // ranks * 64 // tensor)
    one.forward(ranks, size)
    two.backward(ranks, size)
    assert layer.traits.beside(layer, size) == (one.moved, two.moved)
    bare = layer_times(ring_of(model), run.machine.device, 3, precision)
    each, rate = (
        layer_times(model, run.machine.device, 3, precision),
        streaming_rate(run.machine.device),
    )
    for whole, without, moved in zip(each, bare, (one.moved, two.moved), strict=True):
        seconds = (whole - without)[model.layers.index(layer)]
        assert seconds == pytest.approx(3 * moved / rate, rel=1e-9)


def ring_of(model):
    """Return the network of a rank whose blocks are those of a ring."""
    layers = []
    for each in model.layers:
        ranks, place, _ = each.attributes.get("context", (1, 0, ""))
        ring = {"context": (ranks, place, "ring")} if ranks > 1 else {}
        layers.append(replace(each, attributes={**each.attributes, **ring}))
    return replace(model, layers=tuple(layers))


def test_gathered_keys_are_not_run():
    run = split(GROUPED, context=2, **{**GATHERED, "precision": "fp32"})
    with pytest.raises(SpecError, match="'gather': it is predicted and simulated, not run"):
        check(run)
