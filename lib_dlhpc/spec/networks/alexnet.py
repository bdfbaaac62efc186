"""AlexNet, VGG and LeNet-5: convolutions, then dense layers with most of the weights."""

from typing import Literal

from lib_dlhpc.spec.networks.builder import Builder
from lib_dlhpc.spec.networks.family import family


@family
def alexnet(
    variant: Literal["grouped", "owt"] = "grouped", batch_norm: bool = False, classes: int = 1000
) -> Builder:
    """AlexNet: two groups of channels on 227x227 images, or one tower on 224x224.

    grouped: Krizhevsky et al. 2012, in the layout of CaffeNet; owt: "One weird trick" (Krizhevsky
    2014). Local response normalization has no weights and is omitted; batch_norm adds a
    normalization after each convolution (AlexNet-BN).
    """
    if variant == "grouped":
        net, groups, padding, widths = Builder(3, 227, 227), 2, 0, (96, 256, 384, 384, 256)
    else:
        net, groups, padding, widths = Builder(3, 224, 224), 1, 2, (64, 192, 384, 256, 256)
    for number, (channels, kernel, pool) in enumerate(
        zip(widths, (11, 5, 3, 3, 3), (True, True, False, False, True), strict=True)
    ):
        net.conv(
            channels,
            kernel,
            stride=1 if number else 4,
            padding=kernel // 2 if number else padding,
            groups=groups if number in (1, 3, 4) else 1,
        )
        if batch_norm:
            net.batch_norm()
        net.relu()
        if pool:
            net.max_pool(3, stride=2)
    net.flatten()
    _classifier(net, classes)
    return net


@family
def vgg(
    convolutions: tuple[int, ...] = (2, 2, 3, 3, 3), image: int = 224, classes: int = 1000
) -> Builder:
    """VGG (Simonyan and Zisserman 2014, table 1): 3x3 convolutions in stages, a pool after each."""
    net = Builder(3, image, image)
    for stage, count in enumerate(convolutions):
        with net.block(f"stage{stage + 1}"):
            for _ in range(count):
                net.conv(min(64 * 2**stage, 512), 3, padding=1)
                net.relu()
            net.max_pool(2)
    net.flatten()
    _classifier(net, classes)
    return net


def _classifier(net: Builder, classes: int) -> None:
    for _ in range(2):
        net.dense(4096)
        net.relu()
        net.dropout(0.5)
    net.dense(classes)


@family
def lenet5(classes: int = 10) -> Builder:
    """LeNet-5 (LeCun et al. 1998) on 28x28 images, all maps connected, tanh and mean pools."""
    net = Builder(1, 28, 28)
    net.conv(6, 5, padding=2)
    net.tanh()
    net.avg_pool(2)
    net.conv(16, 5)
    net.tanh()
    net.avg_pool(2)
    net.flatten()
    net.dense(120)
    net.tanh()
    net.dense(84)
    net.tanh()
    net.dense(classes)
    return net
