"""dlhpc completion: the script with which a shell completes commands, options and files."""

import argparse

SHELLS = ("bash", "zsh", "fish", "tcsh")
# Arguments that are paths.
FILES = {
    *("csv", "copy", "experiment", "workflow", "file", "files", "folder", "folders"),
    *("key", "machine", "out", "program", "resume", "rubrics", "run", "save", "similar"),
    *("site", "store", "trace"),
}


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    shell = commands.add_parser(
        "completion",
        help="print the completion script of a shell",
        description='Completion in bash: eval "$(dlhpc completion bash)"; in zsh: dlhpc completion zsh >'
        ' "${fpath[1]}/_dlhpc".',
    )
    shell.add_argument("shell", choices=SHELLS)
    shell.set_defaults(command=_print)


def _print(options: argparse.Namespace) -> int:
    import shtab

    parser = options.parser()
    _complete_files(parser)
    print(shtab.complete(parser, options.shell))
    return 0


def _complete_files(parser: argparse.ArgumentParser) -> None:
    """Mark the arguments of a parser and of its commands that are paths."""
    import shtab

    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                _complete_files(below)
        elif action.dest in FILES and not action.choices:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
