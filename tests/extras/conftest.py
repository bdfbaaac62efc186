"""Tests beside other tools, which `make test-extras` installs; elsewhere nothing is collected here."""

from importlib.util import find_spec

NEEDED = {
    "test_transformers.py": ("torch", "transformers"),
    "test_device.py": ("torch",),
    "test_torch.py": ("torch",),
    "test_torch_grading.py": ("torch",),
    "test_torch_labs.py": ("torch",),
    "test_trace_frameworks.py": ("torch", "jax"),
    "test_onnx.py": ("onnx",),
    "test_crate.py": ("rocrate",),
    "test_dask.py": ("distributed", "pyarrow"),
    "test_slides.py": ("pptx",),
    "test_hub.py": ("jupyterhub",),
}
collect_ignore = [
    file for file, names in NEEDED.items() if not all(find_spec(name) for name in names)
]
