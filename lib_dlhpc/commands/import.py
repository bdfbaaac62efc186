"""`dlhpc import`: take networks and measurements from other tools into an experiment.

`dlhpc import model SOURCE`: a network as the [model] section. `dlhpc import machine FILE...`: outputs of benchmarks as
a machine.
"""

import argparse
from pathlib import Path

from lib_dlhpc.commands.experiment import change
from lib_dlhpc.commands.output import STDIN, add_output, print_note, print_result, standard_input
from lib_dlhpc.errors import SpecError
from lib_dlhpc.lifetime.files import write_text

EXAMPLE = """\
dlhpc import model config.json --sequence 8192 -o llama.toml
dlhpc predict llama.toml@h100-pod"""
MACHINE_EXAMPLE = """\
FILE is the output of nccl-tests, OSU Micro-Benchmarks, Intel MPI Benchmarks, IOR, mdtest, fio, DLIO, STREAM,
darshan-parser, nvidia-smi -q, lstopo --of xml, or a SimGrid platform; - is standard input. Where the output does not
say what it measured, write PART=FILE: intra_node or inter_node (inter_node:64 with 64 ranks), storage.NAME, or device.

dlhpc import machine nccl.log inter_node=osu_latency.txt storage.scratch=ior.txt --base h100-pod --out my.toml
dlhpc predict run.toml --machine my.toml"""


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `import` to the command line."""
    own = subparsers.add_parser("import", help="import models and measurements from other tools")
    kinds = own.add_subparsers(required=True, metavar="KIND")
    model = kinds.add_parser(
        "model",
        help="a model: its layers, exact parameters and FLOP",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    model.add_argument(
        "source", help="a config.json of Hugging Face transformers, or its folder; or an ONNX file"
    )
    model.add_argument(
        "-o", "--output", metavar="FILE", help="write this TOML file, not standard output"
    )
    model.add_argument(
        "--sequence",
        type=int,
        default=0,
        metavar="TOKENS",
        help="length of a training sample (default: the number of positions in the source)",
    )
    add_output(model, "print counts and the [model] table as JSON")
    model.set_defaults(command=_model)
    _add_machine(kinds)


def _add_machine(kinds: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    machine = kinds.add_parser(
        "machine",
        help="a machine, with intervals, from output of nccl-tests, OSU, IMB, IOR, fio, ...",
        epilog=MACHINE_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    machine.add_argument("files", nargs="+", metavar="[PART=]FILE", help="the output of a tool")
    machine.add_argument(
        "--base",
        default="",
        metavar="MACHINE",
        help="a machine of the catalog, for the numbers that no file states",
    )
    machine.add_argument(
        "--set",
        action="extend",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="numbers of the machine that no file states: --set nodes=16 inter_node.latency='2 us'",
    )
    machine.add_argument("--out", metavar="FILE", help="write this TOML file, not standard output")
    add_output(machine, "print the machine, origins and intervals as JSON")
    machine.set_defaults(command=_machine)


def _model(options: argparse.Namespace) -> int:
    from lib_dlhpc.importing import import_model

    found = import_model(options.source, options.sequence)
    model, text = found.model, found.toml()
    for note in found.notes:
        print_note(f"dlhpc: note: {note}")
    print_note(
        f"{found.source}: {model.parameters:,} parameters, {model.forward_flop:.4g} FLOP forward per sample."
    )
    if options.output:
        write_text(Path(options.output), text)
        text = ""
    counts = {
        "parameters": model.parameters,
        "forward_flop": model.forward_flop,
        "layers": len(model.layers),
    }
    table = {"family": model.family, **model.options}
    print_result(
        options, {**counts, "model": table, "notes": list(found.notes)}, *text.splitlines()
    )
    return 0


def _machine(options: argparse.Namespace) -> int:
    from lib_dlhpc.calibration.imported_machine import import_machine, read_files
    from lib_dlhpc.calibration.imported_report import as_lines, as_toml

    files = read_files([(argument, _text(argument)) for argument in options.files])
    found = import_machine(files, options.base, dict(map(change, options.set)))
    for note in found.notes:
        print_note(f"dlhpc: note: {note}")
    text = as_toml(found)
    if options.out:
        try:
            write_text(Path(options.out), text)
        except OSError as error:
            raise SpecError(f"--out {options.out}: {error.strerror}.") from None
        print_note(f"{options.out}: a machine, for `dlhpc predict RUN --machine {options.out}`.")
    table = {
        "machine": dict(found.table),
        "origins": dict(found.origins),
        "notes": list(found.notes),
    }
    print_result(options, table, *(as_lines(found) if options.out else text.splitlines()))
    return 0


def _text(argument: str) -> str:
    """Return the text of a FILE or PART=FILE; raises SpecError if it cannot be read."""
    from lib_dlhpc.calibration.imported_machine import split_part

    name = split_part(argument)[1]
    if name == STDIN:
        return standard_input()
    try:
        return Path(name).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SpecError(f"{name}: cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        as_text = (
            f" `darshan-parser {name} > job.txt` writes it as text."
            if name.endswith(".darshan")
            else ""
        )
        raise SpecError(f"{name}: is not text.{as_text}") from None
