"""Site: settings of a batch system that do not depend on the run: account, partition, modules, launcher.

It is a TOML file; `catalog/sites` has examples to copy. Every text of it goes into a job script, so every text must
consist of letters, digits and @ % + = : , . / - _ only, none of which is special to a shell. A value of "?" is for the
user to fill in.
"""

import re
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from lib_dlhpc.errors import SpecError, listed, reason_of
from lib_dlhpc.launch.systems import NAMES
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.units import DAY, parse_quantity

SCHEDULERS = (*NAMES, "local")
LAUNCHERS = ("mpiexec", "mpirun", "srun", "ibrun", "jsrun")
MODULE_VERBS = ("load", "unload", "swap", "use", "purge", "reset", "restore")
FILL_IN = "?"
ROOT = catalog.ROOT / "sites"
LARGEST_FILE = 100_000  # bytes; real ones have a few hundred
LONGEST = 500  # characters of one text

# The characters that Python's shlex.quote leaves unquoted; no text begins like an option.
SIGNS = "only letters, digits and @ % + = : , . / - _, and begins with a letter, a digit, / or _"
_WORD = re.compile(r"[A-Za-z0-9_/][A-Za-z0-9@%+=:,./_-]*")
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
# Scheduler options that the run sets itself, or that would run another program.
OURS = (
    *("account", "array", "bcast", "chdir", "error", "export", "get-user-env", "input"),
    *("job-name", "nodes", "ntasks", "ntasks-per-node", "output", "partition"),
    *("parsable", "prolog", "epilog", "task-prolog", "task-epilog", "test-only", "time"),
    *("uid", "wait", "wrap"),
)


@dataclass(frozen=True)
class Site:
    """The settings of one user on one cluster.

    modules: lines `module load NAME ...` (or only NAME). setup: lines `export NAME=VALUE` or `source FILE`, run after
    the modules. launcher: the command that starts ranks; "mpiexec" is that of the Python environment. ranks_per_node:
    None puts all ranks on one node. time_limit: s, default of submissions. extra: scheduler options by their long
    names, such as {qos = "debug"}. python: the interpreter of the ranks; "": the submitting one. Raises SpecError for
    texts that a job script must not contain.
    """

    name: str = "site"
    scheduler: str = "slurm"
    account: str = ""
    partition: str = ""
    modules: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    launcher: str = "mpiexec"
    ranks_per_node: int | None = None
    time_limit: float | None = None
    exclusive: bool = False
    extra: Mapping[str, str] = field(default_factory=dict)
    python: str = ""

    def __post_init__(self) -> None:
        _choice("scheduler", self.scheduler, SCHEDULERS)
        _choice("launcher", self.launcher, LAUNCHERS)
        for name in ("name", "account", "partition", "python"):
            check_word(getattr(self, name), f"site.{name}", empty=name != "name")
        for name in ("modules", "setup"):
            lines = getattr(self, name)
            if isinstance(lines, str) or not all(isinstance(line, str) for line in lines):
                raise SpecError(f'site.{name}: expected a list of lines, such as ["..."].')
            object.__setattr__(self, name, tuple(lines))
        for number, line in enumerate(self.modules):
            module_words(line, f"site.modules[{number}]")
        for number, line in enumerate(self.setup):
            setup_words(line, f"site.setup[{number}]")
        per_node = self.ranks_per_node
        if per_node is not None and (type(per_node) is not int or not 1 <= per_node <= 10_000):
            raise SpecError(f"site.ranks_per_node = {per_node!r}: expected a whole number from 1.")
        if self.time_limit is not None:
            object.__setattr__(self, "time_limit", read_time(self.time_limit, "site.time_limit"))
        if type(self.exclusive) is not bool:
            raise SpecError(f"site.exclusive = {self.exclusive!r}: expected true or false.")
        _check_extra(self.extra)

    def missing(self) -> list[str]:
        """Return the fields that the user must still fill in."""
        return [each.name for each in fields(self) if getattr(self, each.name) == FILL_IN]

    def lines(self) -> list[str]:
        """Return the lines of a job script before the run, every word quoted."""
        words = [module_words(line, "site.modules") for line in self.modules]
        words += [setup_words(line, "site.setup") for line in self.setup]
        return [shlex.join(line) for line in words]


def load_site(name: str | Path, **changes: Any) -> Site:
    """Return a site of the catalog or of a TOML file, with `changes` of its fields. Raises SpecError."""
    path = Path(name)
    if str(name) in site_names():
        path = ROOT / f"{name}.toml"
    elif not path.is_file():
        head = f"--site {name}: no such file, and no site of that name;"
        raise SpecError(listed(head, name, site_names(), "sites:"))
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise SpecError(f"{path}: larger than {LARGEST_FILE} bytes; that is not a site file.")
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SpecError(f"{path}: cannot be read: {reason_of(error)}.") from None
    try:
        return replace(read_site(table, path.stem), **changes)
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None


def read_site(table: Mapping[str, Any], name: str = "site") -> Site:
    """Build a Site from its TOML table. Raises SpecError."""
    legal = [each.name for each in fields(Site)]
    kept = {key: value for key, value in table.items() if key not in ("title", "sources")}
    for key in kept:
        if key not in legal:
            raise SpecError(listed(f"site.{key}: no such field;", key, legal))
    for key in ("modules", "setup"):
        if key in kept and not isinstance(kept[key], list):
            raise SpecError(f'site.{key}: expected a list of lines, such as ["..."].')
    return Site(**{"name": name, **kept})


def site_names() -> tuple[str, ...]:
    """Return the sites of the catalog."""
    return tuple(sorted(path.stem for path in ROOT.glob("*.toml")))


def check_word(value: Any, what: str, empty: bool = False) -> str:
    """Return a text that a shell reads as one literal word. Raises SpecError."""
    if not isinstance(value, str):
        raise SpecError(f"{what} = {value!r}: expected text in quotes.")
    legal = len(value) <= LONGEST and (_WORD.fullmatch(value) or value == FILL_IN)
    if not legal and not (empty and not value):
        raise SpecError(f"{what} = {value[:80]!r}: expected a word that has {SIGNS}.")
    return value


def module_words(line: str, what: str) -> list[str]:
    """Return the words of a line `module load NAME ...`. Raises SpecError."""
    words = line.split(" ")
    if words[0] != "module":
        words = ["module", "load", *words]
    if len(words) < 2 or words[1] not in MODULE_VERBS:
        raise SpecError(f"{what} = {line[:80]!r}: expected module {' | '.join(MODULE_VERBS)} NAME.")
    for word in words[2:]:
        check_word(word, what)
    return words


def setup_words(line: str, what: str) -> list[str]:
    """Return the words of a line `export NAME=VALUE` or `source FILE`. Raises SpecError."""
    verb, _, rest = line.partition(" ")
    if verb == "source":
        start = "~/" if rest.startswith("~/") else ""
        check_word(rest.removeprefix(start), what)
        return ["source", str(Path(rest).expanduser())]
    name, equals, value = rest.partition("=")
    if verb != "export" or not equals or not _VARIABLE.fullmatch(name):
        raise SpecError(f"{what} = {line[:80]!r}: expected export NAME=VALUE, or source FILE.")
    check_word(value, what, empty=True)
    return ["export", rest]


def read_time(value: Any, what: str) -> float:
    """Return a time limit in s, of a number or a text such as "10min". Raises SpecError."""
    seconds = parse_quantity(value, "s", what)
    if not 1 <= seconds <= 365 * DAY:
        raise SpecError(f"{what} = {value!r}: expected from 1 s to 365 days.")
    return seconds


def _choice(name: str, value: Any, legal: tuple[str, ...]) -> None:
    if value not in legal:
        raise SpecError(listed(f"site.{name} = {value!r}:", value, legal))


def _check_extra(extra: Any) -> None:
    if not isinstance(extra, Mapping):
        raise SpecError(f"site.extra = {extra!r}: expected a table of options and their values.")
    for key, value in extra.items():
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise SpecError(f"site.extra: {str(key)[:80]!r}: expected an option such as qos.")
        if key.lower() in OURS:
            raise SpecError(f"site.extra.{key}: set by dlhpc itself, from the other fields.")
        check_word(value, f"site.extra.{key}")
