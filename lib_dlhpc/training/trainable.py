"""Which models can be trained: layers that cannot be trained are refused by name, before any work."""

from collections.abc import Collection

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers import KINDS
from lib_dlhpc.spec.model import Model
from lib_dlhpc.training.messages import trained

# Of a sample, by its dimensions.
SHAPES = {
    1: "one row of features",
    2: "(positions, features)",
    3: "channels with 2 or 3 dimensions of space",
}


def check_layers(model: Model, sends: Collection[str] = ()) -> None:
    """Raise SpecError for layers that can be predicted but not trained.

    sends: the outputs that a stage of a pipeline sends.
    """
    read = {name for layer in model.layers for name in layer.inputs} | {*sends}
    layers = {layer.name: layer for layer in model.layers if not layer.traits.message}
    for layer in model.layers:
        if not trained(layer):
            legal_kinds = [
                kind
                for kind in KINDS
                if hasattr(KINDS[kind], "forward") and not KINDS[kind].message
            ]
            raise SpecError(
                f"{layer.name}: a {layer.kind} layer can be predicted but not trained; trainable kinds:"
                f" {', '.join(legal_kinds)}."
            )
        legal = layer.traits.dimensions
        if legal and min(len(layer.input_shape), 3) not in legal:
            raise SpecError(
                f"{layer.name}: a layer of kind {layer.kind} is trained on samples of"
                f" {' or '.join(SHAPES[count] for count in legal)}; its input is"
                f" {layer.input_shape}."
            )
        if layer.traits.lookup and not layer.traits.stand_in and layer.inputs != ("input",):
            raise SpecError(
                f"{layer.name}: reads {layer.inputs[0]}; to be trained it must read the samples' own"
                " integers, 'input'."
            )
        owner = layers.get(layer.attributes.get("tied", ""))
        features = layer.input_shape[-1]
        if owner and (not owner.traits.lookup or owner.attributes["features"] != features):
            raise SpecError(
                f"{layer.name}: tied = {owner.name!r} is a layer of kind {owner.kind} and output"
                f" {owner.output_shape}; to be trained it must be an embedding of {features}"
                " features."
            )
        unread = layer.name not in read and not layer.traits.stand_in
        if unread and layer is not model.layers[-1]:
            raise SpecError(
                f"{layer.name}: no layer reads its output, so it cannot be trained; only the last"
                f" layer, {model.layers[-1].name}, may be unread."
            )
