"""CosmoFlow: 3-D convolutions that infer cosmological parameters from a cube of matter density."""

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.networks.builder import Builder
from lib_dlhpc.spec.networks.family import family


@family
def cosmoflow(outputs: int = 3) -> Builder:
    """CosmoFlow as of SC18 (Mathuriya et al. 2018): one channel of 128^3, no padding."""
    net = Builder(1, 128, 128, 128)
    for channels, kernel, stride, pool in (
        (16, 3, 1, True),
        (32, 4, 1, True),
        (64, 4, 1, True),
        (128, 3, 2, False),
        (256, 3, 1, False),
        (256, 2, 1, False),
        (256, 2, 1, False),
    ):
        net.conv(channels, kernel, stride)
        net.leaky_relu(0.01)
        if pool:
            net.avg_pool(2)
    _regression(net, outputs, dropout=0.5)
    return net


@family
def cosmoflow_large(
    image: int = 512, channels: int = 4, outputs: int = 4, batch_norm: bool = False
) -> Builder:
    """CosmoFlow for large cubes (Oyama et al. 2020): 3x3x3 kernels, one more pool for each doubling.

    image: edge of the cube, 128 times a power of two; each pool halves it until 2^3 points remain.
    """
    pools = 5 + (image // 128).bit_length() - 1
    if image not in (128, 256, 512):
        raise SpecError(
            f"model family 'cosmoflow_large': image = {image}: must be one of 128, 256, 512."
        )
    net = Builder(channels, image, image, image)
    for number, width in enumerate((16, 32, 64, 128, 256, 256, 256), start=1):
        net.conv(width, 3, stride=2 if number == 4 else 1, padding=1, bias=False)
        if batch_norm:
            net.batch_norm()
        net.leaky_relu(0.01)
        if number <= pools:
            net.avg_pool(3, stride=2, padding=1)
    _regression(net, outputs, dropout=0.2)
    return net


def _regression(net: Builder, outputs: int, dropout: float) -> None:
    net.flatten()
    for features in (2048, 256):
        net.dropout(dropout)
        net.dense(features)
        net.leaky_relu(0.01)
    net.dropout(dropout)
    net.dense(outputs)
