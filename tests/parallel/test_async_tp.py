"""Laws of products cut into pieces: n - 1 of n exchanges hide behind the next piece, as far as it is as long."""

import pytest
from split_runs import GPT, IMAGES, split

from lib_dlhpc import SpecError, parallel
from lib_dlhpc.costs.async_tp import cut_of
from lib_dlhpc.costs.roofline import streaming_rate
from lib_dlhpc.layout import parts
from lib_dlhpc.parallel import step
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.changes.no_effect import without_effect
from lib_dlhpc.program import Collective, Compute, Wait, prove
from lib_dlhpc.schedules.checks import ProofError
from lib_dlhpc.simulation import simulate
from lib_dlhpc.timeline import breakdown
from lib_dlhpc.training.check import check

MODEL = GPT | {"layers": 2, "hidden": 256, "sequence": 256}
LINKS = {"latency": 1e-6, "bandwidth": 2e10}


def run_of(pieces, links=LINKS, model=MODEL, **strategy):
    return split(model, links, **{"tensor": 2, "tensor_pieces": pieces, "batch": 4, **strategy})


def chunk_of(run):
    (chunk,) = parallel.program(run).stages[0]
    return chunk


def closed_form(run):
    """Return s of a forward and a backward pass: c + (n-1) max(c, r) + r of each product that is cut."""
    chunk, many = chunk_of(run), int(run.strategy.tensor_pieces)
    model, prices = chunk.forward.prices[0].model, chunk.forward.prices[0]
    cut, total = cut_of(model, many, run.strategy.tensor_overlap), []
    for way, block in (("forward", chunk.forward), ("backward", chunk.backward)):
        seconds, taken = prices.seconds, 0.0
        ends = {**cut.before[way], **cut.after[way]}
        for product, exchange in ends.items():
            c = seconds[f"{way}_block"][product]
            key = f"{model.layers[exchange].name} {way} 0"
            (one,) = {
                e
                for e in block.variants[0].instructions
                if getattr(e, "key", "") == key and isinstance(e, Collective)
            }
            r = prices.priced(one).seconds
            taken += c + (many - 1) * max(c, r) + r
        whole = [n for n in range(len(model.layers)) if n not in ends]
        inside = [e for e in block.variants[0].instructions if isinstance(e, Collective)]
        taken += sum(seconds[way][n] for n in whole)
        total.append(taken + sum(prices.priced(e).seconds for e in inside if not e.stream))
    return total


@pytest.mark.parametrize("bandwidth", [2e9, 2e10, 2e11])
@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("pieces", [2, 3, 8])
def test_a_pass_takes_the_closed_form(pieces, sequence, bandwidth):
    run = run_of(pieces, {"latency": 1e-6, "bandwidth": bandwidth}, sequence_parallel=sequence)
    forward, backward = closed_form(run)
    chunk = chunk_of(run)
    assert chunk.forward.alone(1.0)[0] == pytest.approx(forward, rel=1e-12)
    assert chunk.backward.alone(1.0)[0] == pytest.approx(backward, rel=1e-12)


@pytest.mark.parametrize("sequence", [False, True])
def test_nothing_is_hidden_where_nothing_overlaps(sequence):
    """As on machines without asynchronous progress: n c + n r."""
    run = run_of(4, sequence_parallel=sequence, overlap=False)
    chunk = chunk_of(run)
    for way, block in (("forward", chunk.forward), ("backward", chunk.backward)):
        sent = sum(each.seconds for each in block.messages)
        worked = float(getattr(block.prices[0], way).sum())
        assert block.alone(1.0)[0] == pytest.approx(worked + sent, rel=1e-12)
    prove(parallel.steps(run))


@pytest.mark.parametrize("sequence", [False, True])
def test_messages_are_cut_and_each_piece_pays_its_latency(sequence):
    whole, cut = (predict(run_of(n, sequence_parallel=sequence)) for n in (1, 4))
    before, after = whole.messages["tensor"], cut.messages["tensor"]
    assert after.bandwidth == pytest.approx(before.bandwidth, rel=1e-9)
    assert before.latency < after.latency <= 4 * before.latency * (1 + 1e-12)
    assert cut.memory == whole.memory


def test_a_piece_reads_the_weights_again_and_is_less_efficient():
    chunk = {n: chunk_of(run_of(n)).forward.prices[0] for n in (1, 4)}
    cut = chunk[4].cut
    for way, products in (("forward", cut.forward), ("backward", cut.backward)):
        for layer, pieces in enumerate(products):
            before, after = (chunk[n].seconds[way][layer] for n in (1, 4))
            kind = chunk[4].model.layers[layer].kind
            assert after > before if pieces > 1 and kind == "dense" else after == before


def test_one_piece_is_the_program_without_pieces(monkeypatch):
    ways = {"pipeline": 2, "microbatches": 2, "sequence_parallel": True, "data": 2, "zero": 1}
    before = predict(run_of(1, **ways))
    monkeypatch.setattr(step, "PASSES", step.PASSES[:-1])
    step._passes.cache_clear()
    assert predict(run_of(1, **ways)).terms == before.terms


@pytest.mark.parametrize("model", ["gpt", "llama"])
def test_async_tp_leaves_sums_of_gradients_whole(model):
    """Those of queries, keys and values, of a gate and an up-projection; of one up-projection it cuts them."""
    words = {k: v for k, v in MODEL.items() if k != "dropout" or model == "gpt"}
    words |= {"family": "llama", "kv_heads": 2, "feed_forward": 96} if model == "llama" else {}
    ways = {"sequence_parallel": True, "model": words, "precision": "bf16"}
    part = parts(run_of(4, tensor_overlap="async-tp", **ways), 0)[0].model
    every, some = (cut_of(part, 4, way) for way in ("all", "async-tp"))
    assert all({*some.before[way]} <= {*every.before[way]} for way in some.before)
    names = {way: [part.layers[n].name for n in some.after[way]] for way in some.after}
    last = {"gpt": "contract", "llama": "down"}[model]
    assert {name.partition(".")[2] for name in names["forward"]} == {last, "projection"}
    gradients = {name.partition(".")[2] for name in names["backward"]}
    assert gradients == ({"expand"} if model == "gpt" else set())
    assert all(name.startswith("layer") for each in names.values() for name in each)


def test_async_tp_adds_the_pieces_of_an_output_in_a_kernel_of_its_own():
    """It reads an output of all ranks' positions, writes those of one, and starts when the last piece is there."""
    ways = {"sequence_parallel": True, "precision": "bf16"}
    run = run_of(4, tensor_overlap="async-tp", **ways)
    chunk = chunk_of(run)
    prices, moved = chunk.forward.prices[0], 2 * 256 * (256 + 128) * 4  # B of 4 samples
    reduces = [*chunk.forward.prices[0].cut.after["forward"].values()]
    instructions = chunk.forward.variants[0].instructions
    assert len(reduces) == 2 * 2
    for number in reduces:
        rate = streaming_rate(run.machine.device)
        assert prices.seconds["forward"][number] == pytest.approx(moved / rate)
        at = next(n for n, e in enumerate(instructions) if e == Compute(number, "forward"))
        assert isinstance(instructions[at - 1], Wait) and instructions[at - 1].key.endswith(" 3")


def test_async_tp_is_not_run():
    with pytest.raises(SpecError, match="'async-tp': it is predicted and simulated, not run"):
        check(run_of(2, tensor_overlap="async-tp"))


def test_a_few_pieces_are_best():
    """More of them hide more of an exchange, and pay its latency and the start of a product more often."""
    large = GPT | {"layers": 2, "hidden": 4096, "sequence": 2048, "heads": 32}
    links = {"latency": 1e-5, "bandwidth": 2e11}
    one, two, many = (
        float(predict(run_of(n, links, large, precision="bf16")).step_time) for n in (1, 2, 512)
    )
    assert two < one < many


@pytest.mark.parametrize(
    "ways",
    [
        {"recompute": "full"},
        {"recompute": "selective", "sequence_parallel": True},
        {"data": 2, "zero": 3, "sequence_parallel": True},
        {"data": 2, "zero": 2, "gather": "forward"},
        {"pipeline": 2, "microbatches": 4, "schedule": "zb-h1", "sequence_parallel": True},
        {"context": 2, "context_exchange": "ring", "fused_attention": "auto"},
        {"overlap": False, "sequence_parallel": True},
        {"split": "column"},
        {"split": "row"},
        {"offload": "activations"},
    ],
    ids=str,
)
@pytest.mark.parametrize("model", ["gpt", "llama"])
def test_any_split_with_pieces_trains_and_is_predicted_as_simulated(ways, model):
    grouped = {"family": "llama", "kv_heads": 2, "feed_forward": 96}
    words = {**MODEL, **grouped} if model == "llama" else MODEL
    words = {k: v for k, v in words.items() if model == "gpt" or k != "dropout"}
    run = run_of(4, None, words, **ways)
    prove(parallel.steps(run))
    seconds = float(predict(run).step_time)
    assert breakdown(simulate(run)).step_time == pytest.approx(seconds, rel=1e-9)
    assert breakdown(simulate(run, "events")).step_time == pytest.approx(seconds, rel=1e-3)


def test_zero_bubbles_cut_the_gradients_of_inputs_alone():
    run = run_of(2, pipeline=2, microbatches=2, schedule="zb-h1")
    for stage in parallel.program(run).stages:
        cut = stage[0].forward.prices[0].cut
        found = [e for e in stage[0].backward.variants[0].instructions if isinstance(e, Compute)]
        assert {e.layer for e in found if e.phase == "input_grad_block"} == {
            *cut.before["backward"],
            *cut.after["backward"],
        }
        assert not any(e.phase == "backward_block" for e in found)


@pytest.mark.parametrize(
    "ways", [{"tensor": 1}, {"model": IMAGES, "batch": 8}, {"tensor_pieces": 512}]
)
def test_pieces_of_nothing_change_nothing_and_say_so(ways):
    run = run_of(**{"pieces": 2, **ways})
    assert [w for w in without_effect(run) if "tensor_pieces" in w]
    assert predict(run).terms == predict(run.set({"strategy.tensor_pieces": 1})).terms


def is_piece(each):
    return getattr(each, "stream", "") == "tensor"


MUTANTS = {
    "a piece that nobody waits for": lambda found: [
        e for e in found if not (isinstance(e, Wait) and is_piece(e))
    ],
    "waits for nothing": lambda found: [
        e for e in found if not (isinstance(e, Collective) and is_piece(e))
    ],
}


@pytest.mark.parametrize("number, name", list(enumerate(MUTANTS)))
def test_pieces_that_cannot_be_are_refused(number, name, monkeypatch):
    def mistaken(experiment, held, passes):
        passes.forward = MUTANTS[name](passes.forward)

    monkeypatch.setattr(step, "PASSES", (*step.PASSES, mistaken))
    with pytest.raises(ProofError):
        prove(parallel.steps(run_of(2, bucket=2.5e4 + number)))
