"""A mounted store is a folder to plain Python code: same bytes, names, sizes and errors; nothing stays behind."""

# ruff: noqa: SIM115  (to open and read in one breath is what is tried here)

import builtins
import csv
import errno
import glob
import gzip
import io
import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import folder_loader
import numpy as np
import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.storage.mount import mounted
from lib_dlhpc.storage.pack import pack
from lib_dlhpc.storage.packed import open_store

FUNCTIONS = ("stat", "lstat", "listdir", "scandir", "access", "mkdir", "open", "remove", "replace")


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """A realistic data set: nested, spaces, Unicode, an empty file, an empty folder, arrays and text; and its store."""
    place = tmp_path_factory.mktemp("packed") / "folder"
    for name in ("cats", "dogs/big ones", "Öffnung", "empty"):
        (place / name).mkdir(parents=True)
    for number in range(6):
        (place / "cats" / f"{number}.bin").write_bytes(bytes(range(number * 40)))
    np.save(place / "dogs" / "array.npy", np.arange(12.0).reshape(3, 4))
    np.savez(place / "dogs" / "arrays.npz", a=np.arange(5), b=np.eye(2))
    (place / "dogs" / "big ones" / "table 1.csv").write_text("1,2\n3,4\n")
    (place / "Öffnung" / "größe.json").write_text('{"x": [1, "ü"]}', encoding="utf-8")
    (place / "words.txt").write_bytes("eins\r\nzwei\nö".encode())
    (place / "nothing").write_bytes(b"")
    pack(place, place.parent / "data.store", partitions=3, codec="zlib")
    return place.parent


@pytest.fixture
def folder(packed, tmp_path):
    """A copy of the data set."""
    return shutil.copytree(packed / "folder", tmp_path / "folder")


@pytest.fixture
def store(packed, tmp_path):
    shutil.copytree(packed / "data.store", tmp_path / "data.store")
    with open_store(tmp_path / "data.store") as store:
        yield store


@pytest.fixture
def there(store, tmp_path):
    """The prefix of the mounted store."""
    with mounted(store, tmp_path / "train") as prefix:
        yield prefix


def outcome(function):
    """What a call gives, or the kind and number of its error."""
    try:
        return function()
    except OSError as error:
        return type(error), error.errno


def below(root, paths):
    return sorted(os.path.relpath(path, root) for path in paths)


def test_an_unmodified_loader_sees_the_same_samples_in_the_same_order(folder, there):
    assert "lib_dlhpc" not in pathlib.Path(folder_loader.__file__).read_text()
    on_folder, on_store = folder_loader.epoch(folder, 7), folder_loader.epoch(there, 7)
    assert on_store == on_folder and len(on_folder) == 12
    assert folder_loader.epoch(there, 8) != on_store
    assert folder_loader.classes(there) == folder_loader.classes(folder)


@pytest.mark.parametrize(
    "read",
    [
        lambda root: open(f"{root}/words.txt", encoding="utf-8").read(),
        lambda root: open(f"{root}/words.txt", encoding="utf-8", newline="").read(),
        lambda root: open(f"{root}/words.txt", encoding="latin-1").readlines(),
        lambda root: open(f"{root}/words.txt", encoding="ascii", errors="replace").read(),
        lambda root: open(f"{root}/words.txt", "rb").read(),
        lambda root: open(os.fsencode(f"{root}/words.txt"), mode="rb").read(5),
        lambda root: open(file=f"{root}/cats/5.bin", mode="rb", buffering=0).read(),
        lambda root: io.open(f"{root}/nothing", "rb").read(),  # noqa: UP020
        lambda root: (pathlib.Path(root) / "words.txt").read_text("utf-8"),
        lambda root: (pathlib.Path(root) / "cats" / "3.bin").read_bytes(),
        lambda root: json.load(open(f"{root}/Öffnung/größe.json", encoding="utf-8")),
        lambda root: list(csv.reader(open(f"{root}/dogs/big ones/table 1.csv", newline=""))),
        lambda root: np.load(f"{root}/dogs/array.npy").tolist(),
        lambda root: np.load(pathlib.Path(root) / "dogs" / "arrays.npz")["b"].tolist(),
        lambda root: np.loadtxt(f"{root}/dogs/big ones/table 1.csv", delimiter=",").tolist(),
        lambda root: np.genfromtxt(f"{root}/dogs/big ones/table 1.csv", delimiter=",").tolist(),
        lambda root: sorted(os.listdir(root)),
        lambda root: sorted(os.listdir(os.fsencode(root))),
        lambda root: sorted(
            (
                entry.name,
                entry.is_dir(),
                entry.is_file(),
                entry.is_symlink(),
                stat.S_IFMT(entry.stat().st_mode),
            )
            for entry in os.scandir(f"{root}/dogs")
            if entry.is_file()
        ),
        lambda root: sorted(
            (os.path.relpath(at, root), sorted(folders), sorted(files))
            for at, folders, files in os.walk(root)
        ),
        lambda root: below(root, glob.glob(f"{root}/**/*.[bj]*", recursive=True)),
        lambda root: sorted(glob.glob("*", root_dir=root)),
        lambda root: below(root, pathlib.Path(root).rglob("*")),
        lambda root: below(root, pathlib.Path(root).glob("*/*.bin")),
        lambda root: below(root, pathlib.Path(root).iterdir()),
        lambda root: os.stat(f"{root}/words.txt").st_mtime_ns,
        lambda root: [os.path.getsize(path) for path in folder_loader.samples(root)],
        lambda root: [int(os.path.getmtime(path)) for path in folder_loader.samples(root)],
        lambda root: [
            ask(f"{root}/{name}")
            for ask in (os.path.exists, os.path.isfile, os.path.isdir, os.path.islink)
            for name in (
                "",
                "cats",
                "cats/",
                "nothing",
                "nothing/",
                "no",
                "nothing/x",
                "empty",
                ".",
            )
        ],
        lambda root: [
            os.access(f"{root}/{name}", os.R_OK) for name in ("", "cats", "nothing", "no")
        ],
        lambda root: open(f"{root}/dogs/../cats/./1.bin", "rb").read(),
        lambda root: open(f"{root}//cats//1.bin", "rb").seek(-3, os.SEEK_END),
        lambda root: os.path.samefile(f"{root}/cats/1.bin", f"{root}/cats/2.bin"),
        lambda root: os.path.samefile(f"{root}/cats/1.bin", f"{root}/cats/../cats/1.bin"),
        lambda root: below(root, [pathlib.Path(root, "cats", "1.bin").resolve()]),
        lambda root: outcome(lambda: os.readlink(f"{root}/nothing")),
    ],
)
def test_every_way_to_read_gives_what_the_folder_gives(folder, there, read):
    assert read(there) == read(str(folder))


@pytest.mark.parametrize("name", ["no", "no/no", "nothing/x", "nothing/", "cats", "cats/9.bin", ""])
@pytest.mark.parametrize(
    "ask",
    [
        lambda path: open(path).close(),
        lambda path: open(path, "rb").close(),
        lambda path: os.stat(path) and None,
        lambda path: os.lstat(path) and None,
        lambda path: len(os.listdir(path)),
        lambda path: len(list(os.scandir(path))),
        lambda path: os.path.getsize(path) >= 0,
        lambda path: pathlib.Path(path).exists(),
    ],
)
def test_a_mistake_raises_what_the_folder_raises(folder, there, name, ask):
    if name:
        name = f"/{name}"
    assert outcome(lambda: ask(f"{there}{name}")) == outcome(lambda: ask(f"{folder}{name}"))


def test_an_error_names_the_path_as_it_was_written(there):
    for path in (f"{there}/no", pathlib.Path(there, "no")):
        with pytest.raises(FileNotFoundError) as caught:
            open(path)
        assert caught.value.filename == path


@pytest.mark.parametrize("mode", ["", "q", "rw", "rr", "rbt", "b", "r+w"])
def test_an_invalid_mode_raises_as_open_does(folder, there, mode):
    for root in (folder, there):
        with pytest.raises(ValueError):
            open(f"{root}/nothing", mode)
    with pytest.raises(ValueError, match="binary mode"):
        open(f"{there}/nothing", "rb", encoding="utf-8")


def test_new_files_are_written_once_and_kept(there):
    os.makedirs(f"{there}/out/deep", exist_ok=True)
    assert os.listdir(f"{there}/out") == ["deep"] and os.path.isdir(f"{there}/out/deep")
    with open(f"{there}/out/deep/log.txt", "w", encoding="utf-16", newline="\r\n") as log:
        log.write("ö\n")
        assert not os.path.exists(f"{there}/out/deep/log.txt")  # visible on close
    np.save(f"{there}/out/array.npy", np.arange(4))
    pathlib.Path(there, "out", "bytes").write_bytes(b"\0\1")
    with open(f"{there}/out/x", "xb") as new:
        new.write(b"x")
    np.savez(f"{there}/out/arrays.npz", a=np.arange(3))
    with gzip.open(f"{there}/out/packed.gz", "wt") as packed:
        packed.write("words")
    with open(f"{there}/out/both", "w+") as both:
        both.write("abc")
        both.seek(1)
        assert both.read() == "bc"
    assert np.load(f"{there}/out/arrays.npz")["a"].tolist() == [0, 1, 2]
    assert gzip.open(f"{there}/out/packed.gz", "rt").read() == "words"
    assert open(f"{there}/out/deep/log.txt", "rb").read() == "ö\r\n".encode("utf-16")
    assert np.load(f"{there}/out/array.npy").tolist() == [0, 1, 2, 3]
    assert sorted(os.listdir(f"{there}/out")) == [
        *("array.npy", "arrays.npz", "both", "bytes", "deep", "packed.gz", "x")
    ]
    assert os.path.getsize(f"{there}/out/bytes") == 2
    with pytest.raises(FileExistsError):
        open(f"{there}/out/x", "xb")
    with pytest.raises(PermissionError, match="written once"):
        open(f"{there}/out/x", "w")


@pytest.mark.parametrize("mode", ["w", "wb"])
def test_a_new_file_whose_writing_fails_is_not_there(there, mode):
    with pytest.raises(ZeroDivisionError), open(f"{there}/new", mode) as new:
        new.write("half" if mode == "w" else b"half")
        1 / 0  # noqa: B018
    assert not os.path.exists(f"{there}/new")
    pathlib.Path(there, "new").write_text("whole")
    assert open(f"{there}/new").read() == "whole"


@pytest.mark.parametrize(
    "ask",
    [
        lambda root: np.fromfile(open(f"{root}/cats/5.bin", "rb"), np.uint8),
        lambda root: np.load(f"{root}/dogs/array.npy", mmap_mode="r"),
        lambda root: np.arange(3).tofile(open(f"{root}/new", "wb")),
        lambda root: open(f"{root}/words.txt").fileno(),
    ],
)
def test_a_request_for_a_descriptor_names_the_alternative(there, ask):
    with pytest.raises(io.UnsupportedOperation, match=r"packed store is in memory.*frombuffer"):
        ask(there)


@pytest.mark.parametrize(
    ("change", "number"),
    [
        (lambda root: open(f"{root}/words.txt", "a"), errno.EROFS),
        (lambda root: open(f"{root}/words.txt", "r+b"), errno.EROFS),
        (lambda root: open(f"{root}/new", "ab"), errno.EROFS),
        (lambda root: open(f"{root}/words.txt", "w+b"), errno.EPERM),
        (lambda root: open(f"{root}/words.txt", "w"), errno.EPERM),
        (lambda root: open(f"{root}/cats", "w"), errno.EISDIR),
        (lambda root: open(f"{root}/nothing/x", "w"), errno.ENOTDIR),
        (lambda root: os.mkdir(f"{root}/cats"), errno.EEXIST),
        (lambda root: os.mkdir(f"{root}/nothing/x"), errno.ENOTDIR),
        (lambda root: os.mkdir(f"{root}/no/x"), errno.ENOENT),
        (lambda root: os.remove(f"{root}/words.txt"), errno.EROFS),
        (lambda root: os.remove(f"{root}/no"), errno.ENOENT),
        (lambda root: os.replace(f"{root}/words.txt", f"{root}/other"), errno.EROFS),
        (lambda root: os.rename(__file__, dst=f"{root}/other"), errno.EROFS),
        (lambda root: pathlib.Path(root, "words.txt").unlink(), errno.EROFS),
        (lambda root: os.rmdir(f"{root}/empty"), errno.EROFS),
        (lambda root: os.chmod(f"{root}/words.txt", 0), errno.EROFS),
        (lambda root: os.open(f"{root}/words.txt", os.O_RDONLY), errno.EROFS),
        (lambda root: open(f"{root}/../folder/words.txt"), errno.EACCES),
        (lambda root: os.listdir(f"{root}/cats/../.."), errno.EACCES),
    ],
)
def test_what_a_store_cannot_do_is_refused_with_a_number(folder, there, change, number):
    before = folder_loader.epoch(there, 1)
    with pytest.raises(OSError) as caught:
        change(there)
    assert caught.value.errno == number and there in str(caught.value.filename)
    assert folder_loader.epoch(there, 1) == before == folder_loader.epoch(folder, 1)


def test_relative_paths_and_those_with_dots_lead_to_the_store(folder, there, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in ("train/nothing", "./train/nothing", "folder/../train/cats/../nothing"):
        assert open(path, "rb").read() == b"" and os.path.isfile(path)
    assert sorted(os.listdir("train")) == sorted(os.listdir("folder"))
    assert sorted(os.listdir("folder/../folder")) == sorted(os.listdir("folder"))  # no escape


def test_an_existing_folder_is_hidden_and_restored(folder, store, tmp_path, monkeypatch):
    real = tmp_path / "real"
    real.mkdir()
    (real / "own.txt").write_text("own")
    monkeypatch.chdir(real)
    with mounted(store, real):
        assert not os.path.exists(real / "own.txt") and not os.path.exists("own.txt")
        assert open("nothing").read() == ""
    assert os.listdir() == ["own.txt"] and open("own.txt").read() == "own"


def test_a_prefix_behind_a_symbolic_link_is_found_by_its_real_path_too(store, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with mounted(store, tmp_path / "link" / "train") as there:
        resolved = pathlib.Path(there).resolve()
        assert resolved == tmp_path / "real" / "train"
        assert os.listdir(resolved) == os.listdir(there)
        assert (resolved / "nothing").read_bytes() == b""


def test_a_tree_is_copied_out(folder, there, tmp_path):
    shutil.copytree(there, tmp_path / "copy")
    assert folder_loader.epoch(tmp_path / "copy", 3) == folder_loader.epoch(folder, 3)
    assert (tmp_path / "copy" / "empty").is_dir()


def test_all_functions_are_put_back_even_after_an_error(store, tmp_path):
    before = [builtins.open, io.open, os.path.exists, *(getattr(os, name) for name in FUNCTIONS)]
    sets = [set(os.supports_fd), set(os.supports_dir_fd), set(os.supports_follow_symlinks)]
    with pytest.raises(ZeroDivisionError), mounted(store, tmp_path / "train"):
        assert builtins.open is not before[0]
        assert {os.stat, os.listdir} <= os.supports_fd  # what os says of them holds of ours
        assert os.stat in os.supports_follow_symlinks
        1 / 0  # noqa: B018
    after = [builtins.open, io.open, os.path.exists, *(getattr(os, name) for name in FUNCTIONS)]
    assert all(one is other for one, other in zip(before, after, strict=True))
    assert sets == [os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks]
    assert folder_loader.listdir is os.listdir
    assert not os.path.exists(tmp_path / "train" / "words.txt")


def test_a_function_imported_while_mounted_works_afterwards(store, tmp_path):
    with mounted(store, tmp_path / "train") as there:
        taken = [open]  # a list is not looked through
        assert taken[0](f"{there}/nothing").read() == ""
    with pytest.raises(FileNotFoundError):
        taken[0](f"{there}/nothing")
    assert taken[0](__file__).read()


def test_two_stores_side_by_side_and_one_within_the_other(folder, store, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "words.txt").write_text("other")
    pack(tmp_path / "other", tmp_path / "other.store", partitions=1)
    with open_store(tmp_path / "other.store") as other, mounted(store, tmp_path / "train") as one:
        with mounted(other, f"{one}/within") as two:
            assert open(f"{two}/words.txt").read() == "other"
            assert open(f"{one}/words.txt", "rb").read() == (folder / "words.txt").read_bytes()
        assert not os.path.exists(f"{one}/within")
        with mounted(other, one):
            assert open(f"{one}/words.txt").read() == "other"
        assert os.path.exists(f"{one}/nothing")


def test_many_threads_read_while_stores_are_mounted_and_unmounted(folder, store, tmp_path):
    expected = folder_loader.epoch(folder, 5)
    with mounted(store, tmp_path / "train") as prefix:

        def one(number):
            with mounted(store, tmp_path / f"train{number}") as own:
                return folder_loader.epoch(own, 5), folder_loader.epoch(prefix, 5)

        with ThreadPoolExecutor(4) as pool:
            assert all(got == (expected, expected) for got in pool.map(one, range(12)))


@pytest.mark.parametrize("prefix", [os.sep, "data.store", "."])
def test_a_prefix_that_would_hide_too_much_is_refused(store, tmp_path, monkeypatch, prefix):
    monkeypatch.chdir(tmp_path)
    before = builtins.open
    with pytest.raises(SpecError, match="prefix"), mounted(store, prefix):
        pass
    assert builtins.open is before


def test_damaged_content_is_an_input_output_error_that_names_the_path(folder, tmp_path):
    pack(folder, tmp_path / "data.store", partitions=1, codec="none")
    for partition in (tmp_path / "data.store").iterdir():
        content = partition.read_bytes()
        found = content.find(bytes(range(200)))
        if found >= 0:
            partition.write_bytes(content[: found + 150] + b"\xff" + content[found + 151 :])
    with open_store(tmp_path / "data.store") as store, mounted(store, tmp_path / "train") as there:
        with pytest.raises(OSError) as caught:
            open(f"{there}/cats/5.bin", "rb").read()
        assert caught.value.errno == errno.EIO and "5.bin" in str(caught.value)
        assert open(f"{there}/words.txt", "rb").read() == (folder / "words.txt").read_bytes()


def test_other_programs_and_descriptors_are_untouched(there, tmp_path):
    (tmp_path / "own").write_text("own")
    shown = subprocess.run(
        [sys.executable, "-c", f"print(open({str(tmp_path / 'own')!r}).read())"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == "own\n"
    descriptor = os.open(tmp_path / "own", os.O_RDONLY)
    assert os.stat(descriptor).st_size == 3
    with open(descriptor) as own:
        assert own.read() == "own"
    assert os.listdir() == os.listdir(os.getcwd())
