"""What was published, beside what is predicted of it: a table at the end of many lessons."""

from collections.abc import Sequence

from lib_dlhpc.explore.blocks.plain_text import Table


def published_table(
    families: Sequence[str], rows: Sequence[tuple[str, str, str]], heading: str = ""
) -> Table:
    """Return published figures, predictions and errors.

    families: where validation has the rows. rows: id, what it is, and the format of its number and unit.
    """
    from lib_dlhpc.prediction.validation.validate import validate  # most lessons have no such table

    known = {row.id: row for row in validate(families, [name for name, *_ in rows])}
    lines = [[heading, "published", "predicted", "error"]]
    for name, words, shown in rows:
        row = known[name]
        both = (shown.format(value, row.unit) for value in (row.published, row.predicted))
        lines.append([words, *both, f"{row.error:+z.1%}"])
    return Table(lines)
