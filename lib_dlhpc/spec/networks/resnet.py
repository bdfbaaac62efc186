"""Residual networks (He et al. 2015, table 1; pre-activation: He et al. 2016)."""

from typing import Literal

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.networks.builder import Builder
from lib_dlhpc.spec.networks.family import family


@family
def resnet(
    blocks: tuple[int, ...] = (3, 4, 6, 3),
    bottleneck: bool = True,
    stride_in: Literal["1x1", "3x3"] = "3x3",
    image: int = 224,
    classes: int = 1000,
) -> Builder:
    """ResNet for ImageNet: `blocks` in each stage; the resolution halves between stages.

    stride_in: the strided convolution of a bottleneck, the first 1x1 (the paper,
    "v1") or the 3x3 ("v1.5", Goyal et al. 2017).
    """
    net = Builder(3, image, image)
    _conv_norm(net, 64, 7, stride=2, padding=3)
    net.relu()
    net.max_pool(3, stride=2, padding=1)
    for stage, count in enumerate(blocks):
        width = 64 * 2**stage
        for number in range(count):
            stride = 2 if stage > 0 and number == 0 else 1
            with net.block(f"stage{stage + 1}.block{number + 1}"):
                if bottleneck:
                    _bottleneck(net, width, stride, stride_in)
                else:
                    _basic(net, width, stride)
    net.global_avg_pool()
    net.dense(classes)
    return net


def _bottleneck(net: Builder, width: int, stride: int, stride_in: str) -> None:
    source = net.last
    first, second = (stride, 1) if stride_in == "1x1" else (1, stride)
    _conv_norm(net, width, 1, stride=first)
    net.relu()
    _conv_norm(net, width, 3, stride=second, padding=1)
    net.relu()
    _residual(net, _conv_norm(net, 4 * width, 1), source, stride)


def _basic(net: Builder, width: int, stride: int) -> None:
    source = net.last
    _conv_norm(net, width, 3, stride=stride, padding=1)
    net.relu()
    _residual(net, _conv_norm(net, width, 3, padding=1), source, stride)


def _residual(net: Builder, branch: str, source: str, stride: int) -> None:
    """Add the block's input to its branch, through a 1x1 convolution if the shape changes."""
    shape = net.shape(branch)
    if net.shape(source) != shape:
        source = _conv_norm(net, shape[0], 1, stride=stride, after=source)
    net.add((branch, source))
    net.relu()


def _conv_norm(
    net: Builder, channels: int, kernel: int, stride: int = 1, padding: int = 0, after: str = ""
) -> str:
    net.conv(channels, kernel, stride, padding, bias=False, after=after)
    return net.batch_norm()


@family
def resnet_cifar(depth: int = 1001, image: int = 32, classes: int = 10) -> Builder:
    """Pre-activation bottleneck ResNet of depth 9n + 2 for small images: n blocks in 3 stages."""
    if depth < 11 or (depth - 2) % 9:
        near = 9 * max(1, round((depth - 2) / 9)) + 2
        raise SpecError(
            f"model family 'resnet_cifar': depth = {depth}: must be 9n + 2 with n >= 1, "
            f"such as {near}."
        )
    net = Builder(3, image, image)
    net.conv(16, 3, padding=1, bias=False)
    for stage in range(3):
        width = 16 * 2**stage
        for number in range((depth - 2) // 9):
            stride = 2 if stage > 0 and number == 0 else 1
            with net.block(f"stage{stage + 1}.block{number + 1}"):
                _pre_activation(net, width, stride)
    net.batch_norm()
    net.relu()
    net.global_avg_pool()
    net.dense(classes)
    return net


def _pre_activation(net: Builder, width: int, stride: int) -> None:
    source = net.last
    net.batch_norm()
    activated = net.relu()
    net.conv(width, 1, stride, bias=False)
    net.batch_norm()
    net.relu()
    net.conv(width, 3, padding=1, bias=False)
    net.batch_norm()
    net.relu()
    branch = net.conv(4 * width, 1, bias=False)
    if net.shape(source) != net.shape(branch):
        source = net.conv(4 * width, 1, stride, bias=False, after=activated)
    net.add((branch, source))
