"""What other tools know: networks as models, and outputs of benchmarks as measurements of a machine.

Parameters and FLOP of networks are exact; what is not understood is an error that names it.

imported.py        Imported: a model, and notes on what its source says beyond that
sources.py         import_model: of a path, a configuration or a torch.nn.Module
hugging_face/      `config.json` of causal language models, by its fields
onnx_file.py       an ONNX file, its operators as layers
torch_module.py    a torch.nn.Module, by torch.export; operators.py: its operators as layers
configuration.py   the fields of a configuration: each is read, known not to matter, or an error
measurements/      outputs of benchmarks and of tools that list hardware, one file a tool
"""

from lib_dlhpc.importing.imported import Imported
from lib_dlhpc.importing.sources import import_model

__all__ = ["Imported", "import_model"]
