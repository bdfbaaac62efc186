"""The price of a step: bytes of weights and cache, roofs, and what no scheduling may change."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from services import large, tiny

from lib_dlhpc.costs.layer_rates import LOSS, SAMPLES
from lib_dlhpc.errors import SpecError
from lib_dlhpc.serving.price import Chunk, Prices, StepTime, pairs
from lib_dlhpc.serving.shard import shard_of
from lib_dlhpc.spec.layer_rate import LayerRate


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp8", "int4", "nvfp4", "mxfp4"])
def test_weights_are_parameters_times_bytes(precision):
    width = {"fp32": 4, "bf16": 2, "fp8": 1, "int4": 0.5, "nvfp4": 9 / 16, "mxfp4": 17 / 32}[
        precision
    ]
    service = large(precision=precision)
    assert shard_of(service).weights == service.model.parameters * width


@pytest.mark.parametrize(
    ("model", "bytes_a_token"),
    [
        ("llama3-8b", 32 * 2 * 8 * 128 * 2),  # grouped queries: 8 heads of keys and values
        ("llama2-7b", 32 * 2 * 32 * 128 * 2),  # all 32 of them
        ("palm-8b", 32 * 2 * 1 * 256 * 2),  # one
        ("deepseek-v3", 61 * (512 + 64) * 2),  # a latent vector and a rotated key
        ("deepseek-v3.2", 61 * (512 + 64 + 128) * 2),  # and a key of the indexer: none is forgotten
    ],
)
def test_the_cache_has_what_attention_keeps(model, bytes_a_token):
    assert shard_of(large(model)).kv_cache_bytes(1000) == 1000 * bytes_a_token


def test_weights_in_fp8_leave_attention_in_16_bits():
    """With many tokens both wait for FLOP: products in fp8 have twice the peak, and their own share of it."""
    wide, narrow = (
        Prices(large(precision=precision)).step([Chunk(4096)]) for precision in ("bf16", "fp8")
    )
    assert narrow.attention == wide.attention > 0
    device = large().machine.device
    faster = 1979 / 989 * device.fp8_efficiency / device.efficiency
    assert narrow.arithmetic == pytest.approx(wide.arithmetic / faster)
    older = Prices(large(machine="selene", precision="fp8")).step([Chunk(4096)])
    assert older.arithmetic > 2 * narrow.arithmetic  # such a device computes in 16 bits


@pytest.mark.parametrize("machine", ["h100-pod", "h800-pod", "h200-pod", "b200-pod", "gb200-nvl72"])
def test_fp8_is_never_slower_than_16_bits_and_takes_half_the_time_of_what_waits_for_weights(
    machine,
):
    wide, narrow = (Prices(large(machine=machine, precision=p)) for p in ("bf16", "fp8"))
    for batch in (1, 16, 64, 512, 4096):
        one, other = (each.decode(batch, 1000) for each in (wide, narrow))
        assert other.total < one.total
        if not one.arithmetic:
            assert other.weights == pytest.approx(one.weights / 2, rel=0.05)
    short, long = (Prices(large(machine=machine, cache_precision=p)) for p in ("fp8", "bf16"))
    one, other = (each.decode(8, 100_000) for each in (short, long))
    assert one.cache == pytest.approx(other.cache / 2) and one[:2] == other[:2]


def test_products_in_four_bits_where_the_device_has_the_rate():
    """B200 has four times its rate in 16 bits; elsewhere weights are expanded, and decoding still reads fewer bytes."""
    wide, four = (Prices(large(machine="b200-pod", precision=p)) for p in ("bf16", "nvfp4"))
    many = [each.step([Chunk(8192)]) for each in (wide, four)]
    assert many[1].arithmetic == pytest.approx(many[0].arithmetic / 4, rel=0.02)
    assert many[1].attention == many[0].attention > 0
    assert four.decode(1, 100).weights == pytest.approx(
        wide.decode(1, 100).weights * 9 / 32, rel=0.02
    )
    older, plain = (Prices(large(precision=p)) for p in ("mxfp4", "bf16"))
    assert older.step([Chunk(8192)]).arithmetic == plain.step([Chunk(8192)]).arithmetic
    assert older.decode(1, 100).weights < plain.decode(1, 100).weights / 3


@pytest.mark.parametrize("cache", ["bf16", "fp8"])
def test_sparse_attention_by_hand(cache):
    """The indexer reads a key of each token before; attention reads the latent vectors of 2,048 of them."""
    width, context = {"bf16": 2, "fp8": 1}[cache], 100_000
    service = large("deepseek-v3.2", machine="h200-pod", devices=8, cache_precision=cache)
    prices = Prices(service)
    index, sparse = sorted(prices.shard.attention, key=lambda each: each.window)
    assert (index.stored, sparse.stored) == (128 * width, 576 * width)
    assert (index.flop, sparse.flop) == (2 * 64 * 128, 2 * 128 / 8 * (2 * 512 + 64))
    read = 128 * width * context + 576 * width * 2048
    found = prices.decode(16, context)
    assert found.cache == pytest.approx(61 * 16 * read / prices.bandwidth)
    assert prices.index_rate == prices.attention_rate * (1979 / 989 if cache == "fp8" else 1)
    several = sum(prices.decode(16, context + at).total for at in range(5))
    assert prices.decodes([([context] * 16, 5)])[0] == pytest.approx(several)
    # A prompt: all pairs for the indexer, at most 2,048 for each query of attention, which each reads for itself.
    chunk = Chunk(8192, 50_000)
    work = index.flop * pairs(chunk) / prices.index_rate
    own = pairs(chunk, 2048)
    times = sparse.flop * own / prices.attention_rate, sparse.stored * own / prices.bandwidth
    step = prices.step([chunk])
    assert step.attention + step.cache == pytest.approx(61 * (work + max(times)))


def test_sparse_attention_reaches_what_the_guide_says(repository):
    prices = Prices(large("deepseek-v3.2", machine="h800-pod"))
    text = (repository / "docs/guide/serve.md").read_text(encoding="utf-8")
    assert f"run at {prices.attention_rate / 1e12:.0f} TFLOP/s here" in text


def test_long_contexts_cost_a_fraction_of_dense_attention_and_short_ones_more():
    dense, sparse = (
        Prices(large(name, machine="h200-pod", devices=8))
        for name in ("deepseek-v3", "deepseek-v3.2")
    )
    each = [sum(p.decode(8, 128_000)[2:4]) for p in (sparse, dense)]
    assert each[0] < 0.3 * each[1]
    assert sum(sparse.decode(8, 1000)[2:4]) > sum(dense.decode(8, 1000)[2:4])


def test_a_window_bounds_the_cache_and_the_step():
    service = large("mistral-7b")
    shard, prices = shard_of(service), Prices(service)
    assert shard.kv_cache_bytes(9000) == shard.kv_cache_bytes(4096) > shard.kv_cache_bytes(4000)
    assert prices.decode(8, 9000).total == prices.decode(8, 4096).total


def test_devices_divide_weights_and_cache_until_heads_are_copied():
    alone, eight, more = (shard_of(large("llama3-70b", devices=n)) for n in (1, 8, 16))
    assert (
        alone.kv_cache_bytes(100) == 8 * eight.kv_cache_bytes(100) == 8 * more.kv_cache_bytes(100)
    )
    # norms, and keys and values of more than 8 devices, are on each
    assert alone.weights / 8 < eight.weights < 1.001 * alone.weights / 8
    assert alone.weights / 16 < more.weights < 1.05 * alone.weights / 16


@pytest.mark.parametrize("devices", [3, 5, 24])
def test_devices_divide_the_heads(devices):
    with pytest.raises(SpecError, match=f"service.devices = {devices}"):
        Prices(large(devices=devices))


@given(st.integers(1, 40), st.integers(0, 40), st.integers(0, 30))
def test_pairs_are_those_that_see_each_other(tokens, before, window):
    many = range(before, before + tokens)
    assert pairs(Chunk(tokens, before), window) == sum(min(i + 1, window or i + 1) for i in many)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(0, 20))
def test_chunks_of_a_prompt_have_its_pairs(sizes, window):
    chunks = [Chunk(size, sum(sizes[:at])) for at, size in enumerate(sizes)]
    assert sum(pairs(each, window) for each in chunks) == pairs(Chunk(sum(sizes)), window)


def test_all_decodes_of_an_answer_are_the_sum_of_its_steps():
    for service in (large("mistral-7b", batch=8), tiny()):
        prices = Prices(service)
        steps = sum((prices.decode(3, 4090 + at) for at in range(1, 12)), StepTime())
        assert prices.answers(3, 4090, 12).total == pytest.approx(steps.total, rel=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 512), st.integers(1, 8000))
def test_more_work_takes_longer_and_less_than_one_by_one(batch, context):
    prices = PRICES
    one, both = prices.decode(batch, context).total, prices.decode(batch + 1, context).total
    assert one <= both <= one + prices.decode(1, context).total
    assert one <= prices.decode(batch, context + 1).total


PRICES = Prices(large())


def test_a_small_batch_waits_for_weights_and_a_large_one_for_the_cache():
    device = PRICES.device
    weights = PRICES.shard.model.layer_parameters.sum() * 2
    weights /= device.memory_bandwidth * device.streaming
    assert PRICES.decode(1, 100).weights == pytest.approx(weights, rel=1e-3)
    assert PRICES.decode(1, 100).bound == "weights"
    assert PRICES.decode(256, 4000).bound == "cache"
    assert PRICES.prefill(4000).bound == "arithmetic"


@pytest.mark.parametrize("graph", [True, False])
def test_a_kernel_that_starts_is_no_arithmetic(graph):
    """A faster start makes launches shorter and nothing else; without it, a single sequence waits for no FLOP."""
    service = large(precision="int4", graph=graph)
    at_once = replace(service.machine.device, half_work=0.0)
    quick = Prices(replace(service, machine=replace(service.machine, device=at_once)))
    for step in ((), [1000]), ([Chunk(2000)], ()), ([Chunk(64, 500)], [1000] * 8):
        slow, fast = Prices(service).step(*step), quick.step(*step)
        assert slow.launch > fast.launch
        assert slow._replace(launch=0.0) == fast._replace(launch=0.0)
    assert Prices(service).decode(1, 1000).arithmetic == 0.0
    each, all_at_once = Prices(service).decode(3, 1000), Prices(service).answers(3, 999, 2)
    assert all_at_once == pytest.approx(each, rel=1e-12)


def test_a_later_chunk_expands_the_latent_vectors_before_it():
    """128 heads, each a key of 128 and a value of 128 numbers, from a vector of 512."""
    prices, heads = Prices(large("deepseek-v3", devices=8)), 128 // 8
    seen = 2 * heads * (192 + 128) * pairs(Chunk(2048, 4096))
    expanded = 2 * 512 * heads * (128 + 128) * 4096
    found = prices.step([Chunk(2048, 4096)]).attention
    assert found == pytest.approx(61 * (seen + expanded) / prices.attention_rate)


def test_fewer_bytes_of_weights_are_read_sooner():
    times = [Prices(large(precision=p)).decode(1, 100).weights for p in ("bf16", "int8", "int4")]
    assert times[0] > 1.9 * times[1] > 3.5 * times[2]


def test_few_tokens_read_few_experts():
    prices = Prices(large("mixtral-8x7b", devices=2))
    one, many = prices.decode(1, 100).weights, prices.decode(256, 100).weights
    assert 2 * one < many < 4.1 * one  # 2 of 8 experts, and all


def test_experts_that_no_token_chose_do_not_start():
    prices = Prices(large("qwen3-30b-a3b"))
    one, many = prices.decode(1, 100).launch, prices.decode(256, 100).launch
    assert 2 * one < many  # 8 of 128 experts, and all; other kernels start in both


def test_tensor_parallelism_exchanges_twice_a_layer():
    prices = Prices(large(devices=4))
    reduced = [each for each in prices.shard.exchanges if each.goal == "allreduce"]
    assert len(reduced) == 2 * 32 + 1  # and the embedding's rows
    assert prices.decode(1, 100).communication > 0 == PRICES.decode(1, 100).communication


def test_attention_sequence_by_sequence_launches_as_often():
    together, apart = (Prices(large(attention=how)) for how in ("together", "apart"))
    assert together.decode(1, 9).total == apart.decode(1, 9).total
    added = apart.decode(5, 9).launch - together.decode(5, 9).launch
    assert added == pytest.approx(4 * 32 * apart.device.launch)


def test_a_device_without_the_precision_is_named():
    service = large("llama2-7b", "selene")
    old = replace(service.machine.device, peak={"fp64": 1e12})
    with pytest.raises(SpecError, match=r"service\.precision = 'bf16'"):
        Prices(replace(service, machine=replace(service.machine, device=old)))


def test_serving_copies_no_samples_and_has_no_loss():
    service = tiny()
    rates = {name: LayerRate(launch=1e-3, bandwidth=1e6) for name in (SAMPLES, LOSS)}
    device = replace(service.machine.device, layers=rates)
    other = replace(service, machine=replace(service.machine, device=device))
    assert Prices(other).step([Chunk(8)]) == Prices(service).step([Chunk(8)])
