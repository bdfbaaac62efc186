"""The command line: dlhpc predict, simulate, run, compare, calibrate and more, each a command."""

import atexit
import gc
import sys

from lib_dlhpc.lifetime import signals

if __name__ == "__main__" or sys.argv[0].endswith("dlhpc"):
    signals.end_at_once()  # before slow imports
    # Searches for cycles took a tenth of a prediction, most of that at its end, and freed nothing.
    gc.set_threshold(100_000)
    atexit.register(gc.freeze)

import argparse
import contextlib
import io
import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from lib_dlhpc import __version__
from lib_dlhpc.commands.output import notes_of

# heavier modules are imported after the signal handlers
from lib_dlhpc.errors import SpecError, suggest
from lib_dlhpc.extras import CORE, EXTRA, missing

DESCRIPTION = """\
Describe a training run once, in a TOML file. Predict it in closed form, simulate it rank by rank, run it on MPI ranks,
and compare the three, term by term. A run is a file, the name of a published run such as goyal-2017, a model on a
machine such as llama3-8b@h100-pod, or - for standard input."""
FIRST = (
    "predict",
    "model",
    "crate",
    "show",
)  # commands that a file is meant for, where it stands in their place
GROUPS = {  # files of lib_dlhpc/commands, as --help lists them
    "predict and simulate": (
        "predict",
        "sweep",
        "simulate",
        "plan",
        "catalog",
        "import",
        "validate",
    ),
    "run": ("run", "serve", "compare", "couple", "submit", "jobs", "network", "export"),
    "measure": ("calibrate", "trace"),
    "store": ("store", "snapshots"),
    "teach and set up": ("explore", "class", "grade", "doctor", "completion"),
}
VERBS = tuple(verb for verbs in GROUPS.values() for verb in verbs)
PATHS = {  # options whose value may not be empty
    "copy": "folder",
    "out": "folder or file",
    "resume": "run folder",
    "save": "file",
    "trace": "file",
}
PATHS |= {
    "rows": "folder",
    "work": "folder",
    "csv": "file",
    "key": "file",
    "similar": "file",
    "rubrics": "folder",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status: 0 done, 1 a result is out of bounds, 2 an input error or a file that
    cannot be written, 3 a comparison without a verdict; ended by a signal, as in a shell: 130 by Ctrl-C, 143 by TERM,
    129 by HUP.
    """
    _print_anything()
    try:
        with signals.taken():
            return _ended(arguments)
    except KeyboardInterrupt as stop:
        with contextlib.suppress(OSError):  # the terminal may be closed
            print(f"dlhpc: {str(stop) or 'Cancelled.'}", file=sys.stderr, flush=True)
        return signals.status()


def _ended(arguments: Sequence[str] | None) -> int:
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        options = parser_of(*words[:1]).parse_args(words)
        _check_paths(options)
        with notes_of(options):
            status = int(options.command(options))
        if sys.stdout:  # None where it was closed
            sys.stdout.flush()
        return status
    except SpecError as error:
        print(f"dlhpc: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if error.name not in EXTRA and error.name not in CORE:
            raise
        print(f"dlhpc: {missing(error.name)}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        _drop_output()
        return 0
    except OSError as error:
        if error.filename is None:
            _drop_output()
        named = error.filename and os.fsdecode(error.filename)
        what = named or "the output cannot be written"
        print(f"dlhpc: {what}: {error.strerror or error}.", file=sys.stderr)
        return 2


def _check_paths(options: argparse.Namespace) -> None:
    """Raise SpecError for an empty name, such as an unset "$OUT", which would mean the current folder."""
    for option, what in PATHS.items():
        if getattr(options, option, None) == "":
            raise SpecError(f"--{option}: expected a {what}, found an empty name.")


def _print_anything() -> None:
    """Replace characters that the encoding of the output lacks, such as Σ in a pipe on Windows, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def _drop_output() -> None:
    """Redirect stdout to /dev/null so that Python's final flush does not raise BrokenPipeError."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Parser(argparse.ArgumentParser):
    """A parser whose errors name the nearest legal command, value or option."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            legal = action.choices or ()
            hint = suggest(value, legal, 0.6)
            first = next((each for each in FIRST if each in legal), "")
            if not hint and first and _names_a_run(value):
                hint = f" A command comes first: {self.prog} {first} {value}."
            head, choose, names = error.message.partition(" (choose from ")
            if choose and hint:
                error.message = f"{head}.{hint} Choose from {names.removesuffix(')')}."
            raise

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown options here, where the command's own are known, not in the parser of all commands."""
        self._words = list(args or ())
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            hint = self._hint(unknown)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{'.' if hint else ''}{hint}")
        return options, unknown

    def error(self, message: str) -> NoReturn:
        """End with the usage; of a missing argument, with the misspelled option or the commands to choose from."""
        if message.startswith("the following arguments are required"):
            verbs = (a for a in self._actions if isinstance(a, argparse._SubParsersAction))
            names = ", ".join(verb.dest for each in verbs for verb in each._get_subactions())
            hint = self._hint(self._words) or (f" Choose from {names}." if names else "")
            message = f"{message}.{hint}" if hint else message
        super().error(message)

    def _hint(self, words: Sequence[str]) -> str:
        """Return a sentence with the option that the first unknown word stands for, or an empty string."""
        if "--against" in self._option_string_actions and words and _names_a_run(words[0]):
            return f" To compare two runs: --against {words[0]}."
        names = [each.partition("=")[0] for each in words if each.startswith("-")]
        unknown = [each for each in names if each not in self._option_string_actions]
        hint = "".join(suggest(each, self._option_string_actions, 0.75) for each in unknown[:1])
        if hint or not unknown or "--set" not in self._option_string_actions:
            return hint
        from lib_dlhpc.spec.experiment import field_meant

        field = field_meant(unknown[0].lstrip("-").replace("-", "_"))
        of_a_run = field.startswith(("model.", "run.", "strategy.")) and not field.endswith(".")
        return f" A field of the run: --set {field}=VALUE." if of_a_run else ""


def _names_a_run(word: str) -> bool:
    from lib_dlhpc.spec import catalog

    runs = (name for kind in catalog.RUNS for name in catalog.names(kind))
    return "@" in word or os.path.exists(word) or word in runs


class _Grouped(argparse.RawDescriptionHelpFormatter):
    """Help with the commands in groups."""

    def add_argument(self, action: argparse.Action) -> None:
        if not isinstance(action, argparse._SubParsersAction):
            super().add_argument(action)
            return
        lines = {each.dest: each for each in action._get_subactions()}
        for title, verbs in GROUPS.items():
            self.end_section()
            self.start_section(title)
            self.add_arguments([lines[verb] for verb in verbs if verb in lines])


def parser_of(verb: str = "") -> argparse.ArgumentParser:
    """Return the parser of one verb, which imports no other verb, or of all of them."""
    parser = _Parser(prog="dlhpc", description=DESCRIPTION, formatter_class=_Grouped)
    parser.add_argument("--version", action="version", version=f"dlhpc {__version__}")
    parser.set_defaults(json=False, quiet=False, parser=parser_of)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name in [verb] if verb in VERBS else [] if verb == "--version" else VERBS:
        import_module(f"lib_dlhpc.commands.{name}").add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
