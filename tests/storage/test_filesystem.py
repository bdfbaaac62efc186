"""The store as an fsspec file system answers as fsspec's own view of the folder it was packed from."""

import importlib
import pickle
import tomllib
from datetime import UTC, datetime

import fsspec
import numpy as np
import pytest
from fsspec.implementations.local import LocalFileSystem

from lib_dlhpc.errors import SpecError
from lib_dlhpc.storage.filesystem import PackedFileSystem
from lib_dlhpc.storage.pack import pack
from lib_dlhpc.storage.packed import open_store


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("tree") / "folder"
    for name in ("cats", "dogs/big ones", "Öffnung", "empty"):
        (place / name).mkdir(parents=True)
    for number in range(6):
        (place / "cats" / f"{number}.bin").write_bytes(bytes(range(number * 40)))
    np.save(place / "dogs" / "big ones" / "array.npy", np.arange(12.0))
    (place / "Öffnung" / "größe.txt").write_text("eins\nzwei\n", encoding="utf-8")
    (place / "nothing").write_bytes(b"")
    return place


@pytest.fixture
def target(folder, tmp_path):
    pack(folder, tmp_path / "data.store", partitions=3, codec="zstd")
    return tmp_path / "data.store"


@pytest.fixture
def packed(target):
    files = PackedFileSystem(target)
    yield files
    files.close()


class Below(LocalFileSystem):
    """The folder as fsspec sees it, its root called "" as a store's is."""

    def __init__(self, root):
        super().__init__(skip_instance_cache=True)
        self.root = str(root)

    def of(self, found):
        """The same answer with names as they are in the store."""
        if isinstance(found, str):
            return found.removeprefix(self.root).strip("/")
        if isinstance(found, dict) and "name" in found:
            return (self.of(found["name"]), found["type"] == "directory" or found["size"])
        if isinstance(found, dict):
            return {self.of(key): self.of(value) for key, value in found.items()}
        if isinstance(found, list | tuple):
            return sorted((self.of(one) for one in found), key=str)
        return found


@pytest.mark.parametrize(
    "ask",
    [
        lambda fs, at: fs.ls(at(""), detail=False),
        lambda fs, at: fs.ls(at(""), detail=True),
        lambda fs, at: fs.ls(at("cats"), detail=True),
        lambda fs, at: fs.ls(at("empty")),
        lambda fs, at: fs.ls(at("cats/5.bin"), detail=False),
        lambda fs, at: fs.info(at("cats/5.bin")),
        lambda fs, at: fs.info(at("dogs/big ones")),
        lambda fs, at: fs.find(at("")),
        lambda fs, at: fs.find(at("dogs"), withdirs=True, detail=True),
        lambda fs, at: fs.find(at(""), maxdepth=1),
        lambda fs, at: fs.find(at("nothing")),
        lambda fs, at: fs.find(at("no")),
        lambda fs, at: fs.glob(at("cats/*.bin")),
        lambda fs, at: fs.glob(at("**/*.[nt]*")),
        lambda fs, at: fs.glob(at("*/big ones")),
        lambda fs, at: [list(map(sorted, one[1:])) for one in fs.walk(at(""))],
        lambda fs, at: fs.du(at("")),
        lambda fs, at: fs.du(at("cats"), total=False),
        lambda fs, at: fs.cat(at("cats/5.bin")),
        lambda fs, at: fs.cat([at("cats/5.bin"), at("nothing")]),
        lambda fs, at: fs.cat(at("cats/*.bin")),
        lambda fs, at: fs.cat_file(at("cats/5.bin"), 3, -5),
        lambda fs, at: fs.cat_ranges([at("cats/5.bin"), at("cats/5.bin")], [0, 9], [3, 20]),
        lambda fs, at: fs.cat_ranges([at("cats/1.bin"), at("cats/5.bin")], 2, 4),
        lambda fs, at: fs.head(at("cats/5.bin"), 7) + fs.tail(at("cats/5.bin"), 7),
        lambda fs, at: fs.read_text(at("Öffnung/größe.txt"), encoding="utf-8"),
        lambda fs, at: fs.read_block(at("Öffnung/größe.txt"), 2, 3, delimiter=b"\n"),
        lambda fs, at: [
            (fs.exists(at(name)), fs.isfile(at(name)), fs.isdir(at(name)))
            for name in ("", "cats", "cats/", "nothing", "no", "nothing/x", "empty")
        ],
        lambda fs, at: [fs.modified(at(f"cats/{n}.bin")).replace(microsecond=0) for n in range(6)],
        lambda fs, at: np.load(fs.open(at("dogs/big ones/array.npy"))).tolist(),
    ],
)
def test_every_question_has_the_folders_answer(folder, packed, ask):
    own = Below(folder)
    expected = own.of(ask(own, lambda name: f"{folder}/{name}".rstrip("/")))
    assert own.of(ask(packed, lambda name: name)) == expected
    assert own.of(ask(packed, lambda name: f"dlhpc://{name}")) == expected


@pytest.mark.parametrize(
    "ask",
    [
        lambda fs: fs.open("no"),
        lambda fs: fs.info("nothing/x"),
        lambda fs: fs.ls("no"),
        lambda fs: fs.cat("no"),
        lambda fs: fs.cat(["cats/1.bin", "no"]),
        lambda fs: fs.cat_ranges(["no"], 0, 1, on_error="raise"),
    ],
)
def test_a_missing_file_is_a_file_not_found(packed, ask):
    with pytest.raises((FileNotFoundError, NotADirectoryError)):
        ask(packed)


def test_errors_can_be_left_out_or_returned(packed):
    assert packed.cat(["cats/0.bin", "no"], on_error="omit") == {"cats/0.bin": b""}
    ranges = packed.cat_ranges(["cats/1.bin", "no"], 0, 2)
    assert ranges[0] == b"\0\1" and isinstance(ranges[1], FileNotFoundError)


def test_the_protocol_opens_a_store_by_its_folder(folder, target):
    expected = (folder / "cats" / "5.bin").read_bytes()
    with fsspec.open("dlhpc://cats/5.bin", fo=str(target)) as file:
        assert file.read() == expected
    with fsspec.open(f"dlhpc://cats/5.bin::file://{target}") as file:
        file.seek(100)
        assert file.read(50) == expected[100:150] and file.tell() == 150
    with fsspec.open("dlhpc://Öffnung/größe.txt", "r", fo=target, encoding="utf-8") as file:
        assert file.readlines() == ["eins\n", "zwei\n"]
    mapper = fsspec.get_mapper("dlhpc://cats", fo=str(target))
    assert mapper["5.bin"] == expected and len(mapper) == 6
    assert fsspec.open_files("dlhpc://cats/*.bin", fo=str(target))[5].path == "cats/5.bin"


def test_the_package_registers_the_protocol_with_fsspec(repository):
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    place, name = project["entry-points"]["fsspec.specs"]["dlhpc"].split(":")
    assert getattr(importlib.import_module(place), name) is PackedFileSystem


def test_new_files_are_written_once_and_there_on_close(packed):
    with packed.open("out/log.txt", "w", encoding="utf-8") as log:
        log.write("ü")
        assert not packed.exists("out/log.txt")
    packed.pipe_file("out/bytes", b"\0\1")
    packed.makedirs("out", exist_ok=True)
    packed.makedirs("new/deep")
    assert packed.isdir("new") and packed.ls("new", detail=False) == ["new/deep"]
    assert packed.cat("out", recursive=True) == {"out/bytes": b"\0\1", "out/log.txt": b"\xc3\xbc"}
    with pytest.raises(PermissionError, match="written once"):
        packed.open("out/log.txt", "wb")
    with pytest.raises(FileExistsError):
        packed.open("out/log.txt", "xb")
    for refused in (lambda: packed.open("nothing", "ab"), lambda: packed.rm("nothing")):
        with pytest.raises(OSError) as caught:
            refused()
        assert caught.value.errno and packed.exists("nothing")


def test_copies_are_written_and_nothing_moves(folder, packed):
    packed.cp("cats/5.bin", "again/5.bin")
    packed.cp("cats", "cats2", recursive=True)
    expected = (folder / "cats" / "5.bin").read_bytes()
    assert packed.cat("again/5.bin") == packed.cat("cats2/5.bin") == expected
    assert len(packed.ls("cats2")) == 6
    for move in (packed.mv, packed.rename):
        with pytest.raises(OSError, match="stays where it is; cp writes a copy"):
            move("nothing", "moved")
    with pytest.raises(FileNotFoundError):
        packed.mv("no", "moved")
    assert packed.exists("nothing") and not packed.exists("moved")
    with pytest.raises(OSError, match="no transactions"), packed.transaction:
        packed.open("later", "wb")


def test_files_are_downloaded_with_modification_times(folder, packed, tmp_path):
    packed.get("cats", str(tmp_path / "cats"), recursive=True)
    assert {file.name: file.read_bytes() for file in (tmp_path / "cats").iterdir()} == {
        file.name: file.read_bytes() for file in (folder / "cats").iterdir()
    }
    when = datetime.fromtimestamp((folder / "nothing").stat().st_mtime, UTC)
    assert abs((packed.modified("nothing") - when).total_seconds()) < 1


def test_an_open_store_is_reused_and_left_open(target):
    with open_store(target) as store:
        files = PackedFileSystem(store)
        files.close()
        assert files.cat("nothing") == store.read("nothing") == b""


def test_a_file_system_of_a_folder_travels_to_other_processes(target):
    files = pickle.loads(pickle.dumps(PackedFileSystem(str(target))))
    assert files.cat("cats/1.bin") == bytes(range(40))


def test_a_folder_that_is_no_store_raises(tmp_path):
    with pytest.raises(SpecError, match="no-such"):
        PackedFileSystem(tmp_path / "no-such")
    for ask in (lambda: fsspec.open("dlhpc://a"), lambda: fsspec.filesystem("dlhpc")):
        with pytest.raises(SpecError, match="needs the folder of a packed store"):
            ask()
    with pytest.raises(SpecError, match="dlhpc over s3"):
        PackedFileSystem("bucket", target_protocol="s3")
