"""`dlhpc validate`: compare predictions with published results."""

import argparse
from collections.abc import Sequence
from typing import Any

from lib_dlhpc.commands.output import add_output, print_result


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `validate` to the command line."""
    many = subparsers.add_parser("validate", help="compare predictions with published results")
    many.add_argument(
        "families", nargs="*", help="only these families, such as goyal17 (default: all)"
    )
    add_output(many)
    many.set_defaults(command=_validate)


def _validate(options: argparse.Namespace) -> int:
    from lib_dlhpc.prediction.validation.validate import standings, summary, validate

    rows, known = validate(options.families), standings(options.families)
    left_out = {key: item.why for key, item in known.items() if item.status == "left out"}
    if options.json:
        fields = (
            "id",
            "group",
            "quantity",
            "predicted",
            "published",
            "unit",
            "error",
            "tolerance",
            "tolerance_from",
            "verdict",
            "reason",
        )
        table = [{field: getattr(row, field) for field in fields} for row in rows]
        status = {key: {"status": item.status, "why": item.why} for key, item in known.items()}
        known_rows = {"status": status, "left_out": left_out}
        print_result(options, {"rows": table, **known_rows, "summary": summary(rows)})
    else:
        _print_rows(rows)
        for reason in dict.fromkeys(left_out.values()):
            same = [identity for identity, why in left_out.items() if why == reason]
            print(f"left out: {', '.join(same)}: {reason}")
        _print_summary(summary(rows))
        found = [item.status for item in known.values()]
        print(
            f"{len(found)} published rows: {found.count('scored')} scored, {found.count('input')} inputs,"
            f" {found.count('left out')} left out"
        )
    return int(any(row.verdict == "FAIL" for row in rows))


def _print_rows(rows: Sequence[Any]) -> None:
    for group in dict.fromkeys(row.group for row in rows):
        columns = f"{'predicted':>12} {'published':>12} {'unit':<12} {'error':>7} {'allowed':>8}"
        print(f"{group}\n{'  row':<38} {columns}")
        first: dict[str, str] = {}  # row with a reason
        for row in (row for row in rows if row.group == group):
            why = f": {row.reason}" if row.verdict != "ok" else ""
            if why and first.setdefault(row.reason, row.id) != row.id:
                why = f": as {first[row.reason]}"
            print(
                f"  {row.id:<36} {row.predicted:>12,.5g} {row.published:>12,.5g} {row.unit:<12}"
                f" {row.error:>+z7.1%} {row.tolerance:>8.1%}  {row.verdict}{why}"
            )
        print()


def _print_summary(classes: dict[str, dict[str, float]]) -> None:
    width = max(map(len, classes), default=0)
    head = f"{'class':<{width}} {'rows':>5} {'ok':>5} {'median':>8} {'mean':>8} {'worst':>8}"
    print(f"\n{head}   accuracy = 1 - |error|")
    for group, line in classes.items():
        print(
            f"{group:<{width}} {line['rows']:>5} {line['ok']:>5} {line['median']:>8.1%}"
            f" {line['mean']:>8.1%} {line['worst']:>8.1%}"
        )
