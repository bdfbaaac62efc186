"""A shell completes commands, actions and options."""

import shutil
import subprocess
import sys

import pytest
from parsers import leaves

from lib_dlhpc.cli import GROUPS, main
from lib_dlhpc.commands.completion import SHELLS


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """The script for bash."""
    path = tmp_path_factory.mktemp("completion") / "dlhpc.sh"
    with path.open("w") as file:
        words = [sys.executable, "-m", "lib_dlhpc.cli", "completion", "bash"]
        subprocess.run(words, stdout=file, check=True)
    return path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("pre", {"predict"}),
        ("trace ", {"show", "run", "convert", "analyze"}),
        ("predict --ch", {"--check"}),
    ],
)
def test_bash_completes(script, words, expected, require):
    require(bash := shutil.which("bash"), "no bash")
    *before, last = ["dlhpc", *words.split(" ")]
    line = f"""
        source {script}
        COMP_WORDS=({" ".join([*before, repr(last)])}); COMP_CWORD={len(before)}
        $(complete -p dlhpc | sed 's/.*-F //; s/ .*//') dlhpc {last!r} {before[-1]}
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    found = subprocess.run([bash, "-c", line], capture_output=True, text=True, check=True).stdout
    assert expected <= set(found.split())


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_a_script_that_names_every_command(shell, capsys):
    assert main(["completion", shell]) == 0
    printed = capsys.readouterr().out
    assert all(words.split()[0] in printed for words in leaves())


def test_help_lists_every_command_in_a_group(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    printed = capsys.readouterr().out
    assert all(f"\n{title}:\n" in printed for title in GROUPS)
    assert all(f"\n  {words.split()[0]}" in printed for words in leaves())
