"""Allreduces in the network laboratory, measured beside predicted, in several networks; Linux only.

    python benchmarks/network.py              100 Mb/s and 1 ms, 10 Mb/s and 5 ms, 500 Mb/s and 0.2 ms
    python benchmarks/network.py --quick      the first only

Within 15 % at 100 Mb/s is the aim. As root, ranks and switch go before other programs; else keep the machine quiet.
"""

import argparse
import sys

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
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    if available():
        print(available())
        return
    worst = []
    for bandwidth, latency, sizes in NETWORKS[: 1 if arguments.quick else None]:
        found = measure(arguments.ranks, bandwidth, latency, sizes=sizes)
        worst.append(max(abs(row.error) for row in found.rows))
        print(found.as_text(), end="\n\n", flush=True)
    print(f"worst error at {NETWORKS[0][0]}: {worst[0]:.0%}   (at most {WITHIN:.0%})")
    sys.exit(worst[0] > WITHIN)


if __name__ == "__main__":
    main()
