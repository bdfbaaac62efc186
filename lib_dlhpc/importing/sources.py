"""Where a network comes from: a path, the table of a configuration, or a torch.nn.Module."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lib_dlhpc.errors import SpecError, reason_of
from lib_dlhpc.importing.hugging_face import from_config
from lib_dlhpc.importing.imported import Imported
from lib_dlhpc.importing.onnx_file import from_onnx
from lib_dlhpc.importing.torch_module import from_module


def import_model(source: Any, sequence: int = 0, sample: Any = None) -> Imported:
    """Return a network of another tool as a model, with its layer graph.

    source: a `config.json` of Hugging Face, its table, or a folder that holds one; an ONNX file; or a torch.nn.Module.
    sequence: words of a sample; 0: as many as the configuration has positions for. sample: for a module, the shape
    of a sample of numbers, or a tensor of one. Raises SpecError, which names what is not understood.
    """
    if isinstance(source, Mapping):
        return from_config(source, sequence)
    if hasattr(source, "parameters"):
        if sample is None:
            raise SpecError(
                "sample: a torch.nn.Module needs the shape of a sample, such as (3, 224, 224)."
            )
        return from_module(source, sample)
    path = Path(source)
    if path.suffix == ".onnx":
        return from_onnx(path)
    if path.is_dir():
        path /= "config.json"
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise SpecError(f"{path}: objects or lists are nested too deeply for a model.") from None
    except (OSError, ValueError) as error:
        raise SpecError(f"{path}: cannot be read as JSON: {reason_of(error)}.") from None
    if not isinstance(table, dict):
        raise SpecError(f"{path}: must be a JSON object, such as the config.json of a model.")
    return from_config(table, sequence, str(path))
