"""Vision transformers."""

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.networks.builder import Builder
from lib_dlhpc.spec.networks.family import family


@family
def vit(
    layers: int,
    hidden: int,
    heads: int,
    feed_forward: int,
    patch: int = 16,
    image: int = 224,
    classes: int = 1000,
) -> Builder:
    """ViT (Dosovitskiy et al. 2021, section 3.1): patches of an image as words, and a token of the class.

    With l layers, h hidden, f feed-forward, p patch, n patches and c classes it has
    l (4 h^2 + 2 h f + 9 h + f) + h (3 p^2 + 1) + h + (n + 1) h + 2 h + (h + 1) c parameters.
    """
    if image % patch:
        raise SpecError(f"model family 'vit': patch = {patch} must divide image = {image}.")
    net = Builder(3, image, image)
    net.conv(hidden, patch, patch, name="patches")
    net.tokens(1, name="tokens")
    net.position_embedding(keep=True, name="positions")
    for _ in net.blocks(layers):
        source = net.last
        net.layer_norm()
        net.dense(3 * hidden, name="qkv")
        net.attention(heads, name="attention")
        net.dense(hidden, keep=False, name="projection")
        source = net.add((net.last, source))
        net.layer_norm()
        net.dense(feed_forward, name="expand")
        net.gelu()
        net.dense(hidden, keep=False, name="contract")
        net.add((net.last, source))
    net.layer_norm()
    net.gather(1, name="class_token")
    net.dense(classes, name="classes")
    return net
