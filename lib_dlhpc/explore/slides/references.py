"""Addresses of the papers that a text names by their arXiv number or their DOI."""

import re
from collections.abc import Iterator

NAMED = re.compile(r"(arXiv:\d{4}\.\d{4,5}|doi:10\.\d{4,}/[^\s;,]*[\w/])")
HOSTS = {"arXiv": "https://arxiv.org/abs/", "doi": "https://doi.org/"}


def parts(text: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a text, each with its address, or with "" where it names no paper."""
    for part in filter(None, NAMED.split(text)):
        kind, _, number = part.partition(":")
        yield part, HOSTS[kind] + number if NAMED.fullmatch(part) else ""
