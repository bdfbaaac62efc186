"""The picture that a link to the front door is shown with: its question above the step of the published run.

write()   stores it with the files of the pages' template (python -m lib_dlhpc.explore.front.share)
"""

from html import escape
from pathlib import Path
from typing import Any

from lib_dlhpc.explore.front import results
from lib_dlhpc.explore.front.page import THEME
from lib_dlhpc.results.palette import BACKWARD, FORWARD, GRADIENTS, IDLE

PICTURE = THEME.with_name("share.png")
WIDTH, HEIGHT = 1200, 630  # pixels, what sites that show links ask for
LEFT, TOP, ROW = 80, 300, 34
TITLE = ("256 GPUs.", "Why not 256 times as fast?")
FONT = 'font-family="DejaVu Sans, Segoe UI, Helvetica, sans-serif"'


def picture(step: dict[str, Any]) -> str:
    """Return a step as SVG. step: of results.step()."""
    scale = (WIDTH - 2 * LEFT) / step["end"]

    def bar(row: int, start: float, stop: float, color: str) -> str:
        place = f'x="{LEFT + scale * start:.1f}" y="{TOP + row * ROW}"'
        return f'<rect {place} width="{scale * (stop - start):.1f}" height="24" fill="{color}"/>'

    bars = [
        bar(row, start, stop, color)
        for row, rank in enumerate(step["ranks"])
        for start, stop, color in (
            (0.0, rank["forward"], FORWARD),
            (rank["forward"], rank["backward"], BACKWARD),
            (rank["backward"], step["slowest"], IDLE),
            (step["slowest"], step["end"], GRADIENTS),
        )
    ]
    large = f'font-size="64" font-weight="700" fill="#1b1f24" {FONT}'
    lines = "".join(
        f'<text x="{LEFT}" y="{110 + 76 * i}" {large}>{escape(line)}</text>'
        for i, line in enumerate(TITLE)
    )
    key = f"{len(step['ranks'])} of {step['gpus']} ranks in one step: forward, backward, idle, gradient allreduce"
    words = f'<text x="{LEFT}" y="268" font-size="26" fill="#59616c" {FONT}>{key}</text>'
    ground = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fbfaf7"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}">'
    return f"{head}{ground}{lines}{words}{''.join(bars)}</svg>"


def write(file: Path = PICTURE) -> None:
    """Write the picture of the run that the front door begins with."""
    import vl_convert

    nodes, network = results.START
    run = results.goyal().set(
        {
            "strategy.nodes": results.NODES[nodes],
            "machine.inter_node.bandwidth": results.NETWORKS[network] * 1e9 / 8,
        }
    )
    file.write_bytes(vl_convert.svg_to_png(picture(results.step(run))))


if __name__ == "__main__":
    write()
