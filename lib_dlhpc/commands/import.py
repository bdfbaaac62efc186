"""`dlhpc import model SOURCE`: a network of another tool, as the [model] section of an experiment."""

import argparse
from pathlib import Path

from lib_dlhpc.commands.output import add_output, print_note, print_result
from lib_dlhpc.lifetime.files import write_text

EXAMPLE = """\
dlhpc import model config.json --sequence 8192 -o llama.toml
cat llama.toml rest_of_the_experiment.toml | dlhpc predict -"""


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `import` to the command line."""
    own = subparsers.add_parser("import", help="networks of other tools as models of an experiment")
    kinds = own.add_subparsers(required=True, metavar="KIND")
    model = kinds.add_parser(
        "model",
        help="a network: its layers, exact parameters and FLOP",
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
        metavar="WORDS",
        help="length of a training sample; default: as many words as the source has positions for",
    )
    add_output(model, "print counts and the [model] table as JSON")
    model.set_defaults(command=_model)


def _model(options: argparse.Namespace) -> int:
    from lib_dlhpc.importing import import_model

    found = import_model(options.source, options.sequence)
    model, text = found.model, found.toml()
    for note in found.notes:
        print_note(f"dlhpc: note: {note}")
    print_note(
        f"{found.source}: {model.parameters:,} parameters, {model.forward_flop:.4g} FLOP forward a sample."
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
