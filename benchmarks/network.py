"""Allreduces in the network laboratory, measured beside predicted, in several networks; Linux only.

    python benchmarks/network.py              100 Mb/s and 1 ms, 10 Mb/s and 5 ms, 500 Mb/s and 0.2 ms
    python benchmarks/network.py --first      the first only

The aim is 15% at 100 Mb/s. As root, ranks and switch have real-time priority; otherwise use an idle machine.
"""

import argparse
import sys

from _quick import add_quick

from lib_dlhpc.launch.network import available
from lib_dlhpc.launch.network.crossover import SIZES, WITHIN, measure

NETWORKS = (
    ("100 Mb/s", "1 ms", SIZES),
    ("10 Mb/s", "5 ms", (4096, 32_768, 131_072, 262_144)),
    ("500 Mb/s", "0.2 ms", SIZES),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--first", action="store_true", help="only 100 Mb/s and 1 ms")
    add_quick(parser)
    arguments = parser.parse_args()
    if available():
        print(available())
        return
    worst, ranks = [], arguments.ranks
    networks = NETWORKS[:1] if arguments.first else NETWORKS
    if arguments.quick:
        ranks, networks = 2, (("1 Gb/s", "1 ms", SIZES[:1]),)
    for bandwidth, latency, sizes in networks:
        found = measure(ranks, bandwidth, latency, sizes=sizes)
        worst.append(max(abs(row.error) for row in found.rows))
        print(found.as_text(), end="\n\n", flush=True)
    print(f"worst error at {networks[0][0]}: {worst[0]:.0%}   (at most {WITHIN:.0%})")
    sys.exit(worst[0] > WITHIN and not arguments.quick)


if __name__ == "__main__":
    main()
