"""docs/epochs.md: its example runs, and its table of costs is that of the stored runs."""

import re

import numpy as np

from lib_dlhpc.convergence.accuracy_costs import upper
from lib_dlhpc.convergence.workloads import names, read


def page(repository):
    return (repository / "docs" / "epochs.md").read_text(encoding="utf-8")


def test_the_example_runs(repository, capsys):
    (code,) = re.findall(r"```python\n(.*?)```", page(repository), re.DOTALL)
    exec(compile(code, "epochs.md", "exec"), {"__name__": "__main__"})
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("90.0 ") and second.startswith("65,536 is beyond 8,192")


def test_costs_are_those_of_the_stored_runs(repository):
    cells = re.findall(
        r"^\| [^|]+ \| ([\d, a-z]+) \| [\d ±.]+ \| ([\d.]+) \| ([\d.]+) \|$",
        page(repository),
        re.MULTILINE,
    )
    shown = sorted((each, *two) for workers, *two in cells for each in workers.split(", "))
    stored = sorted(
        (
            str(row.get("workers", "any")),
            points(-np.mean(row["change"])),
            points(upper(row["change"])),
        )
        for row in read("mnist-linear").costs
    )
    assert shown == stored


def points(share):
    """Percentage points as the table has them: from ten on whole ones."""
    return f"{100 * share:.0f}" if share > 0.1 else f"{abs(100 * share):.1f}"


def test_every_workload_is_in_the_table(repository):
    text = page(repository).partition("## What was measured")[2]
    for name in names():
        network = read(name).title.split(" on ")[0].split()[0]
        assert network.lower() in text.lower()
