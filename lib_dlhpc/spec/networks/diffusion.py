"""Networks that remove noise: the diffusion transformer (DiT), and the U-Net of DDPM."""

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.networks.builder import Builder
from lib_dlhpc.spec.networks.family import family


@family
def dit(
    layers: int,
    hidden: int,
    heads: int,
    patch: int = 2,
    latent: int = 32,
    channels: int = 4,
    classes: int = 1000,
    frequencies: int = 256,
) -> Builder:
    """DiT with adaLN-Zero (Peebles and Xie 2023, "Scalable diffusion models with transformers", section 3.2, figure 3).

    A sample is a latent of `channels` x latent x latent, with a timestep and a label; the output has, for each patch,
    its noise and a covariance. One more row of the label's table stands for no label (classifier-free guidance).
    With l layers, h hidden, p patch, c channels, k classes and f frequencies it has
    l (18 h^2 + 15 h) + 3 h^2 + h (f + 3 p^2 c + k + 6) + 2 p^2 c parameters. The table of positions is fixed.
    """
    if latent % patch:
        raise SpecError(f"model family 'dit': patch = {patch} must divide latent = {latent}.")
    net = Builder(channels, latent, latent)
    net.label_embedding(classes + 1, hidden, name="label")
    _timestep(net, frequencies, hidden)
    condition = net.add((net.last, "label"), name="condition")
    net.conv(hidden, patch, patch, name="patches", after="input")
    net.tokens(name="tokens")
    net.fixed_positions(name="positions")
    for _ in net.blocks(layers):
        _block(net, hidden, heads, condition)
    source = net.last
    net.silu(name="last_silu", after=condition)
    vector = net.dense(2 * hidden, name="last_modulation")
    net.layer_norm(bias=False, scale=False, name="last_norm", after=source)
    net.modulate((net.last, vector), name="last_modulated")
    net.dense(2 * patch**2 * channels, name="noise_and_covariance")
    return net


def _timestep(net: Builder, frequencies: int, hidden: int) -> None:
    net.timestep(frequencies, name="timestep", after="input")
    net.dense(hidden, name="timestep_expand")
    net.silu(name="timestep_silu")
    net.dense(hidden, name="timestep_mix")


def _block(net: Builder, hidden: int, heads: int, condition: str) -> None:
    """Append attention and feed-forward network, each after a shift and scale and before a gate."""
    source = net.last
    net.silu(after=condition)
    vector = net.dense(6 * hidden, name="modulation")
    net.layer_norm(bias=False, scale=False, after=source)
    net.modulate((net.last, vector), 0)
    net.dense(3 * hidden, name="qkv")
    net.attention(heads, name="attention")
    net.dense(hidden, name="projection")
    net.modulate((net.last, vector), 2, "gate", name="gate1")
    source = net.add((net.last, source))
    net.layer_norm(bias=False, scale=False)
    net.modulate((net.last, vector), 3)
    net.dense(4 * hidden, name="expand")
    net.gelu()
    net.dense(hidden, name="contract")
    net.modulate((net.last, vector), 5, "gate", name="gate2")
    net.add((net.last, source))


@family
def unet(
    image: int = 32,
    channels: int = 128,
    widths: tuple[int, ...] = (1, 2, 2, 2),
    blocks: int = 2,
    attention: tuple[int, ...] = (16,),
    heads: int = 1,
    groups: int = 32,
    dropout: float = 0.1,
    colors: int = 3,
) -> Builder:
    """U-Net of DDPM (Ho et al. 2020, "Denoising diffusion probabilistic models", appendix B).

    widths: channels of each resolution, from the finest on, in multiples of `channels`; each resolution is half the
    one before and has `blocks` residual blocks down and one more up. attention: the resolutions that have it. Every
    output on the way down is concatenated to an input on the way up, the last one first.
    """
    coarsest = 2 ** (len(widths) - 1)
    if image % coarsest:
        raise SpecError(
            f"model family 'unet': image = {image} must be a multiple of {coarsest}: {len(widths)} widths."
        )
    net = Builder(colors, image, image)
    _timestep(net, channels, 4 * channels)
    block = _Residual(net, net.last, groups, dropout, heads)
    skips = [net.conv(channels, 3, padding=1, name="first", after="input")]
    for level, width in enumerate(widths, 1):
        for _ in range(blocks):
            block.append(f"down{level}", width * channels, attention)
            skips.append(net.last)
        if level < len(widths):
            skips.append(net.conv(width * channels, 3, 2, 1, name=f"down{level}.halve"))
    block.append("middle", widths[-1] * channels, net.shape()[-1:])
    block.append("middle", widths[-1] * channels)
    for level, width in reversed(list(enumerate(widths, 1))):
        for _ in range(blocks + 1):
            block.append(f"up{level}", width * channels, attention, skips.pop())
        if level > 1:
            net.upsample(2, name=f"up{level}.double")
            net.conv(width * channels, 3, padding=1, name=f"up{level}.smooth")
    net.group_norm(groups, name="last_norm")
    net.silu(name="last_silu")
    net.conv(colors, 3, padding=1, name="noise")
    return net


class _Residual:
    """Numbered residual blocks that all read the timestep."""

    def __init__(
        self, net: Builder, timestep: str, groups: int, dropout: float, heads: int
    ) -> None:
        self.net, self.timestep, self.groups = net, timestep, groups
        self.dropout, self.heads, self.number = dropout, heads, 0

    def append(
        self, name: str, channels: int, attention: tuple[int, ...] = (), skip: str = ""
    ) -> None:
        """Append a block, after `skip` if there is one, with attention at these resolutions."""
        net, self.number = self.net, self.number + 1
        with net.block(f"layer{self.number}.{name}"):
            if skip:
                net.concat((net.last, skip))
            self._convolve(channels)
            if net.shape()[-1] in attention:
                self._attend()

    def _convolve(self, channels: int) -> None:
        """Append two convolutions, between which the timestep is added, and the shortcut."""
        net, source = self.net, self.net.last
        net.group_norm(self.groups)
        net.silu()
        image = net.conv(channels, 3, padding=1)
        net.silu(name="timestep_silu", after=self.timestep)
        vector = net.dense(channels, name="timestep")
        net.shift((image, vector))
        net.group_norm(self.groups)
        net.silu()
        if self.dropout:
            net.dropout(self.dropout)
        own = net.conv(channels, 3, padding=1)
        if net.shape(source)[0] != channels:
            source = net.conv(channels, 1, name="shortcut", after=source)
        net.add((own, source))

    def _attend(self) -> None:
        """Append attention of all pixels to all, with its residual."""
        net, source, (channels, *space) = self.net, self.net.last, self.net.shape()
        net.group_norm(self.groups)
        net.tokens()
        net.dense(3 * channels, name="qkv")
        net.attention(self.heads)
        net.dense(channels, keep=False, name="projection")
        net.untokens(tuple(space))
        net.add((net.last, source))
