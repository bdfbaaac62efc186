"""Diffusion networks: DiT and the U-Net of DDPM against published counts, and errors that help."""

import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.networks import build
from lib_dlhpc.spec.networks.builder import Builder

SMALL = {
    "layers": 3,
    "hidden": 24,
    "heads": 2,
    "patch": 4,
    "latent": 8,
    "channels": 3,
    "classes": 5,
}


def named(name):
    options = catalog.body("models", name)
    return build(options.pop("family"), options, name)


@pytest.mark.parametrize("changed", [{}, {"patch": 2}, {"layers": 1, "frequencies": 32}])
def test_dit_is_a_sum_over_its_matrices(changed):
    o = SMALL | {"frequencies": 256} | changed
    (depth, h, _, p, latent, c, k, f) = o.values()
    n = (latent // p) ** 2
    model = build("dit", o)
    ends = 3 * h**2 + h * (f + 3 * p**2 * c + k + 6) + 2 * p**2 * c
    assert model.parameters == depth * (18 * h**2 + 15 * h) + ends
    block = n * 12 * h**2 + 2 * n**2 * h + 6 * h**2  # attention and feed-forward; scores; adaLN
    patches = n * p**2 * c * h
    products = depth * block + f * h + h**2 + patches + 2 * h**2 + 2 * patches
    assert model.forward_flop == 2 * products
    assert model.output_shape == (n, 2 * p**2 * c)


def test_published_weights_of_dit_hold_its_fixed_positions_too():
    model = named("dit-xl2")
    positions = next(layer for layer in model.layers if layer.name == "positions")
    assert positions.parameters == 0
    assert model.parameters + 256 * 1152 == 675_129_632


def test_a_larger_latent_of_dit_costs_activations_and_no_weights():
    small, large = named("dit-xl2"), named("dit-xl2-512")
    assert large.parameters == small.parameters
    assert large.output_shape[0] == 4 * small.output_shape[0]


def test_ddpm_without_the_products_of_attention_is_the_published_count():
    model = named("ddpm-cifar10")
    attention = [layer for layer in model.layers if layer.kind == "attention"]
    assert [layer.output_shape[0] for layer in attention] == [256, 256, 16, 256, 256, 256]
    without = model.forward_flop - sum(layer.forward_flop for layer in attention)
    assert without / 2e9 == pytest.approx(6.1, rel=0.01)


def test_every_output_of_the_way_down_is_concatenated_on_the_way_up_the_last_first():
    model = named("ddpm-cifar10")
    first_of = {layer.name: at for at, layer in enumerate(model.layers)}
    skips = [layer.inputs[1] for layer in model.layers if layer.kind == "concat"]
    assert len(set(skips)) == len(skips) == 12  # one convolution, 4 x 2 blocks, 3 of stride 2
    order = [first_of[name] for name in skips]
    assert order == sorted(order, reverse=True)
    assert skips[-1] == "first"


@pytest.mark.parametrize(
    ("family", "options", "message"),
    [
        ("dit", SMALL | {"patch": 3}, "patch = 3 must divide latent = 8"),
        ("dit", SMALL | {"heads": 5}, "heads = 5 must divide the 24 features"),
        ("dit", SMALL | {"frequencies": 5}, "features = 5 must be even"),
        ("dit", SMALL | {"depth": 2}, "no option 'depth'"),
        ("unet", {"image": 36}, "image = 36 must be a multiple of 8: 4 widths"),
        ("unet", {"channels": 48}, "groups = 32 must divide its 48 channels"),
    ],
)
def test_an_impossible_network_is_refused_by_what_is_wrong(family, options, message):
    with pytest.raises(SpecError, match=message):
        build(family, options)


@pytest.mark.parametrize(
    ("shape", "kind", "options", "message"),
    [
        ((4, 6), "modulate", {}, r"reads \(4, 6\), \(6,\); legal: .* at least 12 elements"),
        ((4, 6), "modulate", {"first": 1, "form": "gate"}, "at least 12 elements"),
        ((6, 2, 2), "modulate", {"form": "gate"}, r"legal: \(positions, features\)"),
        ((5, 2, 2), "shift", {}, r"legal: \(channels, \*space\) and \(channels,\)"),
    ],
)
def test_a_vector_of_the_sample_must_fit(shape, kind, options, message):
    net = Builder(*shape)
    net.timestep(6, name="vector")
    with pytest.raises(SpecError, match=message):
        getattr(net, kind)(("input", "vector"), **options)


def test_positions_become_an_image_of_as_many_pixels():
    net = Builder(3, 4, 2)
    net.tokens()
    net.untokens((4, 2))
    assert net.shape() == (3, 4, 2)
    net.tokens()
    with pytest.raises(SpecError, match=r"space = \[3, 2\] has 6 positions; the input has 8"):
        net.untokens((3, 2))
