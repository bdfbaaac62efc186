"""AlexNet in its two forms, VGG and LeNet-5: convolutions, then the dense layers that weigh most."""

from typing import Literal

from lib_dlhpc.spec.networks.builder import Builder
from lib_dlhpc.spec.networks.family import family


@family
def alexnet(variant: Literal["grouped", "owt"] = "grouped", classes: int = 1000) -> Builder:
    """AlexNet: two groups of channels on 227x227 images, or one tower on 224x224.

    grouped: Krizhevsky et al. 2012, as CaffeNet lays it out (pool before normalisation; the
    local response normalisation itself has no weights and is left out). owt: "One weird trick"
    (Krizhevsky 2014).
    """
    grouped = variant == "grouped"
    net = Builder(3, 227, 227) if grouped else Builder(3, 224, 224)
    groups = 2 if grouped else 1
    first, second, third, fourth = (96, 256, 384, 384) if grouped else (64, 192, 384, 256)
    net.conv(first, 11, stride=4, padding=0 if grouped else 2)
    net.relu()
    net.max_pool(3, stride=2)
    net.conv(second, 5, padding=2, groups=groups)
    net.relu()
    net.max_pool(3, stride=2)
    net.conv(third, 3, padding=1)
    net.relu()
    net.conv(fourth, 3, padding=1, groups=groups)
    net.relu()
    net.conv(256, 3, padding=1, groups=groups)
    net.relu()
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
