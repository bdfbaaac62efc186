"""The path of the course is what modules/README.md shows."""

from lib_dlhpc.explore.course import PATH


def test_the_table_of_modules_is_the_path(repository):
    text = (repository / "modules" / "README.md").read_text("utf-8")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| [")]
    assert len(rows) == len(PATH)
    for (name, asks, minutes, needs, labs), module in zip(rows, PATH, strict=True):
        assert name == f"| [{module.number} {module.title}]({module.file})"
        assert (asks, int(minutes)) == (module.question, module.minutes)
        assert needs == (", ".join(module.needs) or "nothing")
        assert all(f"../labs/{lab}/README.md" in labs for lab in module.labs)
        assert labs.count("README.md") == len(module.labs)
