"""All pipelines by name: each takes ranks and microbatches, interleaved the chunks of a rank too."""

from collections.abc import Callable

from lib_dlhpc.schedules.dualpipe import dualpipe, overlapped_dualpipe
from lib_dlhpc.schedules.pipeline import Pipeline, gpipe, interleaved, one_f_one_b, zb_h1

PIPELINES: dict[str, Callable[..., Pipeline]] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved": interleaved,
    "zb-h1": zb_h1,
    "dualpipe": dualpipe,
    "overlapped dualpipe": overlapped_dualpipe,  # what a program makes of it where experts are sharded
}
