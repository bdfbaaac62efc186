"""SRGAN (Ledig et al. 2017, figure 4): the generator and the discriminator, each a network."""

from lib_dlhpc.spec.networks.builder import Builder
from lib_dlhpc.spec.networks.family import family


@family
def srgan_generator(image: int = 24, blocks: int = 16, channels: int = 64) -> Builder:
    """Generator: a low-resolution image of `image` pixels square, upsampled four times."""
    net = Builder(3, image, image)
    net.conv(channels, 9, padding=4)
    first = net.prelu()
    for number in range(blocks):
        with net.block(f"block{number + 1}"):
            source = net.last
            net.conv(channels, 3, padding=1)
            net.batch_norm()
            net.prelu()
            net.conv(channels, 3, padding=1)
            net.batch_norm()
            net.add((net.last, source))
    net.conv(channels, 3, padding=1)
    net.batch_norm()
    net.add((net.last, first))
    for number in range(2):
        with net.block(f"finer{number + 1}"):
            net.conv(4 * channels, 3, padding=1)
            net.pixel_shuffle(2)
            net.prelu()
    net.conv(3, 9, padding=4, name="image")
    return net


@family
def srgan_discriminator(image: int = 96, channels: int = 64) -> Builder:
    """Discriminator: eight convolutions, each second one with stride 2; real or generated?"""
    net = Builder(3, image, image)
    for number in range(8):
        net.conv(channels * 2 ** (number // 2), 3, stride=1 + number % 2, padding=1)
        if number:
            net.batch_norm()
        net.leaky_relu(0.2)
    net.flatten()
    net.dense(1024)
    net.leaky_relu(0.2)
    net.dense(1)
    return net
