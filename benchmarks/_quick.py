"""The option that every benchmark has: the same measurement on its smallest sizes, so that a test can run all of them.

Quick figures are meaningless: they only show that the benchmark runs. The exit status is always 0.
"""

import argparse


def add_quick(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--quick",
        action="store_true",
        help="the smallest sizes, in about a second; figures are meaningless",
    )
