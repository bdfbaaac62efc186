"""Names of events for a terminal: kernels and layers have long ones, which begin alike and end alike."""


def printable(name: str, width: int) -> str:
    """Return a name without control characters, cut in its middle to at most `width` characters."""
    clean = "".join(sign if sign.isprintable() else "?" for sign in name)
    if len(clean) <= width:
        return clean
    end = (width - 3 + 1) // 2
    return f"{clean[: width - 3 - end]}...{clean[-end:]}"
