"""Product names of devices, as drivers and tools print them, and their names in the catalog."""

import re

from lib_dlhpc.importing.measurements.measurement import Measurement, Note, Source, Value

# A pattern of the product name: the device of the catalog.
PRODUCTS = {
    r"A100-SXM4-40GB": "a100-sxm-40gb",
    r"A100-SXM-64GB": "a100-sxm-64gb",
    r"A100-SXM4-80GB": "a100-sxm-80gb",
    r"A800-SXM4-80GB": "a800-sxm-80gb",
    r"\bB200\b": "b200-sxm-180gb",
    r"\bGB200\b": "gb200-186gb",
    r"GH200 120GB": "gh200-96gb",
    r"GTX 1080 Ti": "gtx1080ti",
    r"H100 80GB HBM3": "h100-sxm-80gb",
    r"\bH200\b": "h200-sxm-141gb",
    r"\bH800\b": "h800-sxm-80gb",
    r"Tesla K80": "k80",
    r"Tesla M40": "m40",
    r"Tesla P40": "p40",
    r"P100-PCIE-16GB": "p100-pcie",
    r"P100-SXM2-16GB": "p100-sxm2",
    r"V100-SXM2-16GB": "v100-sxm2-16gb",
    r"V100-SXM2-32GB": "v100-sxm2-32gb",
    r"MI300X": "mi300x",
    r"MI300A": "mi300a",
    r"MI250X": "mi250x-gcd",
    r"Xeon\(R\) Platinum 8160": "xeon-8160",
    r"Xeon\(R\) Platinum 8280": "xeon-8280",
    r"Xeon\(R\) Gold 6148": "xeon-gold-6148",
    r"Xeon Phi\(TM\) CPU 7250": "xeon-phi-7250",
}


def device_named(product: str, source: Source) -> list[Measurement]:
    """Return the catalog's device of this product name, or a note that there is none."""
    for pattern, name in PRODUCTS.items():
        if re.search(pattern, product):
            return [Value("device", name, source)]
    return [
        Note(
            f"{source}: {product!r} is not a device of the catalog; give one with --set device=NAME."
        )
    ]
