"""`dlhpc store` for a user: output, error messages, exit status."""

import os
import subprocess
import sys

import pytest

from lib_dlhpc.cli import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    place = tmp_path / "my data"
    for name in ("cats/old", "Öffnung", "empty"):
        (place / name).mkdir(parents=True)
    (place / "cats" / "1.txt").write_bytes(b"meow\n" * 1000)
    (place / "cats" / "old" / "2.bin").write_bytes(bytes(range(256)))
    (place / "Öffnung" / "größe").write_bytes(b"")
    (place / "two\nlines").write_bytes(b"x")
    monkeypatch.chdir(tmp_path)
    return place


@pytest.fixture
def store(folder, capsys):
    assert main(["store", "pack", str(folder), "data.store", "--codec", "zlib"]) == 0
    capsys.readouterr()
    return "data.store"


@pytest.mark.parametrize("codec", ["none", "zlib", "zstd"])
def test_pack_prints_a_summary(folder, capsys, codec):
    made = ["store", "pack", str(folder), "out", "--partitions", "2", "--codec", codec]
    assert main(made) == 0
    result = capsys.readouterr().out
    assert result.startswith("out: 4 files, 4 folders, 5.26 kB; stored as ")
    assert " in 2 partitions" in result
    assert (f" to 1 with {codec}" in result) is (codec != "none")


def test_ls_lists_like_ls(store, capsys):
    main(["store", "ls", store])
    assert capsys.readouterr().out == "cats/\nempty/\ntwo\\nlines\nÖffnung/\n"
    main(["store", "ls", store, "cats"])
    assert capsys.readouterr().out == "1.txt\nold/\n"
    main(["store", "ls", store, "./cats//old/"])
    assert capsys.readouterr().out == "2.bin\n"
    main(["store", "ls", store, "cats/1.txt"])
    assert capsys.readouterr().out == "cats/1.txt\n"
    main(["store", "ls", store, "empty"])
    assert capsys.readouterr().out == ""
    main(["store", "ls", store, "-R"])
    every = "cats/ cats/1.txt cats/old/ cats/old/2.bin empty/ two\\nlines Öffnung/ Öffnung/größe"
    assert capsys.readouterr().out.split() == every.split()


def test_ls_long_has_sizes_with_units_and_times(folder, store, capsys):
    os.utime(folder / "cats" / "1.txt", (0, 0))
    main(["store", "ls", store, "cats", "-l"])
    lines = capsys.readouterr().out.splitlines()
    main(["store", "ls", store, "-l"])
    assert capsys.readouterr().out.startswith("4 files, 4 folders, 5.26 kB; ")
    assert lines[0].split()[:2] == ["5", "kB"] and lines[0].endswith("1.txt")
    assert lines[1].endswith("old/") and "1970" not in lines[0]  # the time is that at packing


def test_cat_is_byte_exact(folder, capfdbinary):
    main(["store", "pack", str(folder), "data.store", "--codec", "zlib"])
    capfdbinary.readouterr()
    names = ["cats/old/2.bin", "Öffnung/größe", "cats/1.txt"]
    assert main(["store", "cat", "data.store", *names]) == 0
    assert capfdbinary.readouterr().out == bytes(range(256)) + b"meow\n" * 1000


def test_verify_is_silent_about_nothing(store, capsys):
    assert main(["store", "verify", store]) == 0
    assert "no problems; 4 files" in capsys.readouterr().out


def test_verify_reports_every_problem_with_file_and_partition_and_exits_1(folder, tmp_path, capsys):
    main(["store", "pack", str(folder), "plain", "--partitions", "1"])
    [partition] = [
        file
        for file in (tmp_path / "plain").iterdir()
        if file.stat().st_size > 5000 and file.suffix not in (".json", ".npz")
    ]
    content = bytearray(partition.read_bytes())
    content[content.find(b"meow\n") + 7] ^= 1
    content[content.find(bytes(range(256))) + 7] ^= 1
    partition.write_bytes(content)
    capsys.readouterr()
    assert main(["store", "verify", "plain"]) == 1
    result = capsys.readouterr()
    for name in ("cats/1.txt", "cats/old/2.bin"):
        assert any(name in line and partition.name in line for line in result.out.splitlines())
    assert "Öffnung" not in result.out and "problem" in result.err
    assert main(["store", "cat", "plain", "cats/1.txt"]) == 2
    result = capsys.readouterr()
    assert "cats/1.txt" in result.err and partition.name in result.err and not result.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pack", "nowhere", "new"], "nowhere"),
        (["pack", "my data", "data.store"], "data.store"),
        (["pack", "my data", "new", "--codec", "zstdd"], "Did you mean 'zstd'"),
        (["pack", "my data", "new", "--partitions", "0"], "partitions"),
        (["pack", "my data", "my data/new"], "my data"),
        (["pack", "my data", "no/such/new"], "no/such"),
        (["ls", "nowhere"], "nowhere"),
        (["ls", "my data"], "my data"),
        (["ls", "data.store", "dogs"], "no such file or folder"),
        (["ls", "data.store", "cats/1.tx"], "Did you mean 'cats/1.txt'"),
        (["ls", "data.store", "../my data"], "no such file or folder"),
        (["cat", "data.store", "cats"], "cats is a folder"),
        (["cat", "data.store", "cats/1.txt", "cats/3.txt"], "cats/3.txt"),
        (["verify", "nowhere"], "nowhere"),
        (["cat", "nowhere", "cats/1.txt"], "nowhere"),
    ],
)
def test_an_error_is_reported_in_one_line_and_exits_2(folder, store, arguments, words, capsys):
    before = sorted(os.listdir())
    assert main(["store", *arguments]) == 2
    result = capsys.readouterr()
    assert words in result.err and result.err.startswith("dlhpc: ") and result.err.count("\n") == 1
    assert not result.out and sorted(os.listdir()) == before


@pytest.mark.parametrize("made", [[], ["nothing"]])
def test_an_empty_folder_and_one_with_an_empty_file_are_stores_too(tmp_path, made, capsys):
    (tmp_path / "tree").mkdir()
    for name in made:
        (tmp_path / "tree" / name).touch()
    target = str(tmp_path / "store")
    assert main(["store", "pack", str(tmp_path / "tree"), target]) == 0
    assert main(["store", "verify", target]) == 0
    capsys.readouterr()
    assert main(["store", "ls", target]) == 0
    assert capsys.readouterr().out.split() == made


def test_verify_reports_a_lost_partition_and_a_folder_that_is_no_store(folder, store, capsys):
    lost = sorted(file for file in os.listdir(store) if "partition" in file)[0]
    os.remove(f"{store}/{lost}")
    assert main(["store", "verify", store]) == 1
    assert lost in capsys.readouterr().out
    assert main(["store", "verify", str(folder)]) == 1
    assert "not a packed store" in capsys.readouterr().out


@pytest.mark.parametrize("encoding", ["ascii", "utf-8", "latin-1"])
def test_names_are_listed_on_any_terminal(store, encoding):
    words = [sys.executable, "-m", "lib_dlhpc.cli", "store", "ls", "-R", store]
    done = subprocess.run(
        words, capture_output=True, check=True, env=os.environ | {"PYTHONIOENCODING": encoding}
    )
    shown = done.stdout.decode(encoding)
    assert ("Öffnung/größe" in shown) is (encoding != "ascii")
    assert len(shown.splitlines()) == 8


def test_a_reader_that_leaves_early_is_no_error(folder, tmp_path):
    (folder / "large").write_bytes(bytes(1 << 20))
    dlhpc = f"{sys.executable} -m lib_dlhpc.cli store"
    done = subprocess.run(
        [
            "bash",
            "-c",
            f"set -o pipefail; {dlhpc} pack 'my data' new && {dlhpc} cat new large | head -c 1",
        ],
        capture_output=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0 and not done.stderr
    assert done.stdout.endswith(b"\0")


@pytest.mark.parametrize(
    "action", ["cat data.store cats/1.txt", "ls data.store", "verify data.store"]
)
def test_output_that_cannot_be_written_is_reported_in_one_line(store, action, require):
    require(os.path.exists("/dev/full"), "no device that is always full")
    words = [sys.executable, "-m", "lib_dlhpc.cli", "store", *action.split()]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr == "dlhpc: the output cannot be written: No space left on device.\n"
