"""`dlhpc calibrate --device KIND`: measure devices of torch, as a machine for experiments."""

import argparse
from pathlib import Path

from lib_dlhpc.commands.output import print_note, print_result
from lib_dlhpc.errors import SpecError
from lib_dlhpc.lifetime.files import write_text


def calibrate_device(options: argparse.Namespace, seconds: float, out: Path | None) -> int:
    """Measure, and write the machine to `out`, or print it. Raises SpecError."""
    from lib_dlhpc.calibration.device.machine import device_machine
    from lib_dlhpc.calibration.device.measure import measure_device
    from lib_dlhpc.calibration.device.report import as_dict, as_lines, as_toml

    if options.io:
        raise SpecError("--io: not with --device; `dlhpc calibrate io DIR` measures a file system.")
    print_note(f"Measuring {options.device} for about {seconds:g} s, and the start of torch ...")
    raw = measure_device(options.device, options.ranks or 0, seconds)
    found = device_machine(raw)
    text = as_toml(found, raw)
    if out is None:
        print_result(options, as_dict(found, raw), *text.splitlines())
        return 0
    try:
        write_text(out, text)
    except OSError as error:
        raise SpecError(f"--out {out}: {error.strerror}.") from None
    print_result(options, as_dict(found, raw), *as_lines(found, raw))
    print_note(f"{out}: the measured devices, for `dlhpc predict FILE --machine {out}`.")
    return 0
