"""Inception-v3 (Szegedy et al. 2015, table 1), in the layout that torchvision ships."""

from lib_dlhpc.layers.base.windows import Size
from lib_dlhpc.spec.networks.builder import Builder
from lib_dlhpc.spec.networks.family import family


@family
def inception(image: int = 299, classes: int = 1000, auxiliary: bool = False) -> Builder:
    """Inception-v3; auxiliary adds the classifier that only training uses."""
    net = Builder(3, image, image)
    _conv(net, 32, 3, stride=2)
    _conv(net, 32, 3)
    _conv(net, 64, 3, padding=1)
    net.max_pool(3, stride=2)
    _conv(net, 80, 1)
    _conv(net, 192, 3)
    net.max_pool(3, stride=2)
    for pooled in (32, 64, 64):
        _mixed_5x5(net, pooled)
    _halve_35(net)
    for width in (128, 160, 160, 192):
        _mixed_7x7(net, width)
    if auxiliary:
        trunk = net.last
        _auxiliary(net, classes)
        _halve_17(net, trunk)
    else:
        _halve_17(net, net.last)
    for _ in range(2):
        _mixed_3x3(net)
    net.global_avg_pool()
    net.dropout(0.5)
    net.dense(classes)
    return net


def _mixed_5x5(net: Builder, pooled: int) -> None:
    """Figure 5: 1x1, 5x5, two 3x3, and a pool, in parallel."""
    x = net.last
    one = _conv(net, 64, 1, after=x)
    five = _conv(net, 64, 5, padding=2, after=_conv(net, 48, 1, after=x))
    _conv(net, 64, 1, after=x)
    _conv(net, 96, 3, padding=1)
    three = _conv(net, 96, 3, padding=1)
    pool = _conv(net, pooled, 1, after=net.avg_pool(3, stride=1, padding=1, after=x))
    net.concat((one, five, three, pool))


def _halve_35(net: Builder) -> None:
    """Figure 10: halve the resolution without a bottleneck."""
    x = net.last
    three = _conv(net, 384, 3, stride=2, after=x)
    _conv(net, 64, 1, after=x)
    _conv(net, 96, 3, padding=1)
    double = _conv(net, 96, 3, stride=2)
    net.concat((three, double, net.max_pool(3, stride=2, after=x)))


def _mixed_7x7(net: Builder, width: int) -> None:
    """Figure 6: 7x7 as 1x7 and 7x1, once and twice."""
    x = net.last
    one = _conv(net, 192, 1, after=x)
    _conv(net, width, 1, after=x)
    _conv(net, width, (1, 7), padding=(0, 3))
    single = _conv(net, 192, (7, 1), padding=(3, 0))
    _conv(net, width, 1, after=x)
    _conv(net, width, (7, 1), padding=(3, 0))
    _conv(net, width, (1, 7), padding=(0, 3))
    _conv(net, width, (7, 1), padding=(3, 0))
    double = _conv(net, 192, (1, 7), padding=(0, 3))
    pool = _conv(net, 192, 1, after=net.avg_pool(3, stride=1, padding=1, after=x))
    net.concat((one, single, double, pool))


def _auxiliary(net: Builder, classes: int) -> None:
    with net.block("auxiliary"):
        net.avg_pool(5, stride=3)
        _conv(net, 128, 1)
        _conv(net, 768, 5)
        net.global_avg_pool()
        net.dense(classes)


def _halve_17(net: Builder, x: str) -> None:
    _conv(net, 192, 1, after=x)
    three = _conv(net, 320, 3, stride=2)
    _conv(net, 192, 1, after=x)
    _conv(net, 192, (1, 7), padding=(0, 3))
    _conv(net, 192, (7, 1), padding=(3, 0))
    seven = _conv(net, 192, 3, stride=2)
    net.concat((three, seven, net.max_pool(3, stride=2, after=x)))


def _mixed_3x3(net: Builder) -> None:
    """Figure 7: 3x3 as 1x3 beside 3x1, for the widest grid."""
    x = net.last
    one = _conv(net, 320, 1, after=x)
    single = _split_3x3(net, _conv(net, 384, 1, after=x))
    _conv(net, 448, 1, after=x)
    double = _split_3x3(net, _conv(net, 384, 3, padding=1))
    pool = _conv(net, 192, 1, after=net.avg_pool(3, stride=1, padding=1, after=x))
    net.concat((one, *single, *double, pool))


def _split_3x3(net: Builder, x: str) -> tuple[str, str]:
    wide = _conv(net, 384, (1, 3), padding=(0, 1), after=x)
    return wide, _conv(net, 384, (3, 1), padding=(1, 0), after=x)


def _conv(
    net: Builder, channels: int, kernel: Size, stride: int = 1, padding: Size = 0, after: str = ""
) -> str:
    net.conv(channels, kernel, stride, padding, bias=False, after=after)
    net.batch_norm()
    return net.relu()
