"""`dlhpc network -n 4 --bandwidth "100 Mb/s" --latency "1 ms"`: allreduces over an emulated slow network."""

import argparse
from pathlib import Path

from lib_dlhpc.commands.output import add_output, print_note, print_result
from lib_dlhpc.errors import SpecError
from lib_dlhpc.lifetime import owned
from lib_dlhpc.spec.units import parse_quantity


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `network` to the command line."""
    network = subparsers.add_parser(
        "network",
        help="run MPI ranks on this machine behind emulated slow links (Linux only)",
        description="Sets up a private network on this machine, with a switch that gives each rank's link a"
        " bandwidth and a latency. Measures and predicts allreduces in it, or runs your own"
        " program there: dlhpc network -n 4 -- script.py. Nothing is left behind afterwards.",
    )
    network.add_argument("-n", "--ranks", type=int, default=4, help="MPI ranks (default: 4)")
    network.add_argument(
        "--bandwidth",
        default="100 Mb/s",
        help="bandwidth of each link, in each direction (default: 100 Mb/s)",
    )
    network.add_argument(
        "--latency", default="1 ms", help="one-way latency from rank to rank (default: 1 ms)"
    )
    network.add_argument(
        "--algorithms",
        help="allreduces to measure, such as ring,binomial (default: ring,recursive_doubling,rabenseifner)",
    )
    network.add_argument(
        "--sizes", help='message sizes, such as "4 KiB,1 MiB" (default: 4 KiB to 1 MiB)'
    )
    add_output(network)
    network.add_argument(
        "program", nargs="*", metavar="PROGRAM", help="a Python program and its arguments, after --"
    )
    network.set_defaults(command=_network)


def _network(options: argparse.Namespace) -> int:
    from lib_dlhpc.launch.mpi import ends_all
    from lib_dlhpc.launch.network import crossover, lab

    if options.program:
        if options.json:
            raise SpecError(
                "--json: applies to measurements only; the output of a program is its own."
            )
        for name in ("algorithms", "sizes"):
            if getattr(options, name) is not None:
                raise SpecError(f"--{name}: applies to measurements only, not to a program.")
        if not options.program[0].startswith("-") and not Path(options.program[0]).exists():
            raise SpecError(f"{options.program[0]}: no such program.")
        with lab.network(options.ranks, options.bandwidth, options.latency) as net:
            words = net.command(options.ranks, *ends_all(options.program), *options.program)
            return owned.run(words, env=net.environment()).returncode
    given = (
        *(options.ranks, options.bandwidth, options.latency),
        crossover.ALGORITHMS if options.algorithms is None else _list(options.algorithms),
        crossover.SIZES
        if options.sizes is None
        else [_size(text) for text in _list(options.sizes)],
    )
    crossover.check(*given)
    print_note("Measuring, for about a minute ...")
    found = crossover.measure(*given)
    print_result(options, found.as_dict(), found.as_text())
    return 0


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _size(text: str) -> int:
    size = parse_quantity(text, "B", "--sizes")
    if not size.is_integer():
        raise SpecError(f"--sizes {text}: expected whole bytes.")
    return int(size)
