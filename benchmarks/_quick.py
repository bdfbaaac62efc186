"""The option that every benchmark has: the same measurement on its smallest sizes, so that a test can run all of them.

A quick figure says nothing: it shows that the benchmark still starts and comes to its end. The exit status is 0
whatever is measured.
"""

import argparse


def add_quick(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--quick", action="store_true", help="the smallest sizes, in a second or so; says nothing"
    )
