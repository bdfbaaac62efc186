"""The traces that `dlhpc trace` reads: by name, or from standard input."""

from typing import TYPE_CHECKING

from lib_dlhpc.commands.output import STDIN, given, print_note
from lib_dlhpc.errors import SpecError
from lib_dlhpc.lifetime import owned

if TYPE_CHECKING:
    from lib_dlhpc.timeline.table import Timeline

FILE = (
    "a timeline (.npz), a run folder, a Chrome or Perfetto trace (.json), traces of torch.profiler, XLA (JAX) or Nsight"
    " Systems (.sqlite) or a folder of them, an OTF2 archive; - for standard input (.npz, .json or .json.gz)"
)


def read_trace(names: list[str]) -> "Timeline":
    """Return the timeline of the files that a command names, - for standard input. Raises SpecError."""
    from lib_dlhpc.timeline.formats import read

    if STDIN not in names:
        return read(*names, tell=print_note)
    if len(names) > 1:
        raise SpecError("-: standard input is one trace; expected no other file with it.")
    content = given().buffer.read()
    endings = {b"PK": ".npz", b"\x1f\x8b": ".json.gz"}  # by the first two bytes
    with owned.temporary_folder("dlhpc-trace-") as folder:
        file = folder / f"stdin{endings.get(content[:2], '.json')}"
        file.write_bytes(content)
        try:
            return read(file, tell=print_note)
        except SpecError as error:
            raise SpecError(str(error).replace(str(file), "standard input")) from None
