"""The program of a guide runs as it is printed."""

import re


def test_the_program_that_measures_bandwidth_by_ranks_runs(repository, capsys):
    text = (repository / "docs" / "guide" / "measure.md").read_text("utf-8")
    program = re.search(r"```python\n(.+?)```", text, re.S)[1]
    exec(program.replace("20_000_000", "1_000"), {})
    said = re.fullmatch(r"ranks: 1, bandwidth: ([\d.]+) GB/s\n", capsys.readouterr().out)
    assert float(said[1]) > 0
