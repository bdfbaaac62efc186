"""Modules of torch as models: their parameters, the FLOP that torch counts, and what is not understood."""

import tomllib

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from lib_dlhpc.errors import SpecError
from lib_dlhpc.importing import import_model
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import read_model


class Block(nn.Module):
    """A residual block of ResNet-18 (He et al. 2015, figure 2)."""

    def __init__(self, inputs, channels, stride):
        super().__init__()
        self.a = nn.Conv2d(inputs, channels, 3, stride, 1, bias=False)
        self.b = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))
        self.active, self.side = nn.ReLU(inplace=True), nn.Identity()
        if stride > 1:
            conv = nn.Conv2d(inputs, channels, 1, stride, bias=False)
            self.side = nn.Sequential(conv, nn.BatchNorm2d(channels))

    def forward(self, x):
        y = self.norms[1](self.b(self.active(self.norms[0](self.a(x)))))
        y += self.side(x)
        return self.active(y)


def resnet18():
    layers, inputs = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()], 64
    layers.append(nn.MaxPool2d(3, 2, 1))
    for channels in (64, 128, 256, 512):
        stride = 1 if channels == inputs else 2
        layers += [Block(inputs, channels, stride), Block(channels, channels, 1)]
        inputs = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def test_resnet18_is_that_of_the_catalog():
    module = resnet18()
    model, known = import_model(module, sample=(3, 224, 224)).model, read_model("resnet18")
    for name in ("parameters", "forward_flop", "stored", "mask_bytes"):
        assert getattr(model, name) == getattr(known, name)
    with FlopCounterMode(display=False) as counter:
        module.to("meta")(torch.zeros(1, 3, 224, 224, device="meta"))
    assert counter.get_total_flops() == model.forward_flop
    assert "resnet18" in catalog.names("models")


def test_words_and_the_toml_is_the_model_again():
    norm, dropped = nn.LayerNorm(16), nn.Dropout(0.1)
    module = nn.Sequential(nn.Embedding(50, 16), norm, nn.Linear(16, 32), nn.GELU(), dropped)
    found = import_model(module, sample=torch.zeros(7, dtype=torch.long))
    kinds = ["embedding", "layer_norm", "dense", "gelu", "dropout"]
    assert [layer.kind for layer in found.model.layers] == kinds
    assert read_model(tomllib.loads(found.toml())["model"]).layers == found.model.layers
    assert module.training and next(module.parameters()).device.type == "cpu"


shared = nn.Linear(4, 4)


@pytest.mark.parametrize(
    ("module", "sample", "words"),
    [
        (
            nn.Sequential(nn.Softplus(), nn.Linear(4, 4), nn.Hardswish()),
            (4,),
            ["softplus", "hardswish"],
        ),
        (nn.Sequential(shared, nn.ReLU(), shared), (4,), ["40 parameters", "the module 20"]),
        (nn.Conv2d(2, 2, 3, dilation=2), (2, 9, 9), ["dilation = [2, 2]"]),
        (nn.Conv2d(2, 2, 3, padding="same"), (2, 9, 9), ["padding = 'same'"]),
        (nn.AdaptiveAvgPool2d(3), (2, 7, 7), ["from 7 to 3"]),
        (nn.LayerNorm([3, 4]), (3, 4), ["layer_norm"]),
        (nn.Linear(4, 4), None, ["sample", "(3, 224, 224)"]),
    ],
)
def test_what_is_not_understood_is_named(module, sample, words):
    with pytest.raises(SpecError) as error:
        import_model(module, sample=sample)
    for word in words:
        assert word in str(error.value)
