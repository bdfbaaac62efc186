"""A process of a World: one rank of torch.distributed, which runs PROGRAMS until its input ends.

Started as `python -m lib_dlhpc.labs.torch_ranks.worker FOLDER RANK SIZE`; see world.py.
"""

import gc
import io
import os
import pickle
import sys
from contextlib import redirect_stdout
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

import torch
import torch.distributed as dist

from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.labs.program import Unusable, handed_in, mistake
from lib_dlhpc.labs.torch_ranks import programs
from lib_dlhpc.labs.torch_ranks.rank.steps import Misused
from lib_dlhpc.labs.torch_ranks.recorder import Recorder

PROGRAMS: dict[str, Any] = {
    each.__name__: each
    for each in (
        programs.data_parallel,
        programs.traced,
        programs.overlap,
        programs.pipeline,
        programs.sharded,
        programs.fsdp,
    )
}
LONGEST = timedelta(hours=1)  # the time limit is the World's, whose message says more than gloo's


class Messages(io.TextIOBase):
    """The pipe to the World; as a text file it passes on what the learner's file prints."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe

    def send(self, kind: str, what: Any = None) -> None:
        """Send a message."""
        self._pipe.write(pickle.dumps((kind, what)))
        self._pipe.flush()

    def write(self, text: str) -> int:
        """Send a line that is printed."""
        if text.strip():
            self.send("print", text.strip("\n"))
        return len(text)


def join(folder: Path, rank: int, size: int) -> None:
    """Join the other ranks through a file, without a port that could be taken."""
    if sys.platform.startswith("linux"):
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    store = (folder / "store").as_uri()
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=size, timeout=LONGEST)


def serve(requests: IO[bytes], messages: Messages) -> None:
    """Answer requests with a result or an error."""
    groups: dict[int, Any] = {}
    while True:
        try:
            ranks, program, file, names, arguments = pickle.load(requests)
        except EOFError:
            return
        if ranks not in groups:
            groups[ranks] = dist.new_group(list(range(ranks)))
        if dist.get_rank() >= ranks:
            messages.send("result")
            continue
        try:
            messages.send("result", run(program, file, names, arguments, groups[ranks], messages))
        except Unusable as error:
            messages.send("unusable", str(error))
        except (LabError, Misused) as error:
            messages.send("explained", str(error))
        except Exception as error:
            messages.send("error", mistake(error, file))


def run(
    program: str,
    file: str,
    names: tuple[str, ...],
    arguments: tuple[Any, ...],
    group: Any,
    messages: Messages,
) -> Any:
    """Return what the program returns for the learner's functions."""
    with redirect_stdout(messages):
        given = handed_in(file, names)
        recorder = Recorder(messages.send)
        functions = [given[name] for name in names]
        return PROGRAMS[program](*functions, *arguments, group, recorder)


def main() -> None:
    """Join the ranks and serve; what a library prints goes to stderr, the pipe is ours."""
    folder, rank, size = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    messages = Messages(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    join(folder, rank, size)
    # Imports of PyTorch at the first call must not count as a hang.
    with Recorder(lambda *_: None):
        dist.all_reduce(torch.ones(1))
    gc.freeze()  # what is here already is neither garbage nor a learner's
    messages.send("ready")
    serve(sys.stdin.buffer, messages)
    os._exit(0)  # gloo's threads have nothing left to do


if __name__ == "__main__":
    main()
