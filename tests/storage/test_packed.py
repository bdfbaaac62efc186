"""What is packed is read back byte by byte, by every name, in every codec; the tree keeps its shape."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from lib_dlhpc.storage import open_store, pack, verify
from lib_dlhpc.storage.errors import IsFolder, NoSuchFile, NotFolder, StoreError
from lib_dlhpc.storage.reading import LARGE

CODECS = ("none", "zlib", "zstd")


def noise(size, seed=0):
    return default_rng(seed).bytes(size)


CONTENT = {
    "one": b"x",
    "empty": b"",
    "a/b/c/deep.txt": b"deep" * 5,
    "a/empty": b"",
    "ä ö/naïve ☃.bin": noise(4097),
    "a/words.txt": b"the same again " * 30_000,
    "large": noise(LARGE + 3, 1),
    "zeros": bytes(70_000),
    ".hidden": b".",
    "a.b": b"sorts between a and a/b",
}


def make(root, content):
    for name, data in content.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


@pytest.fixture(params=CODECS)
def store(request, tmp_path):
    tree = make(tmp_path / "tree", CONTENT)
    (tree / "a" / "nothing here").mkdir()
    pack(tree, tmp_path / "store", partitions=3, codec=request.param)
    with open_store(tmp_path / "store") as store:
        yield store


def test_every_file_is_what_it_was(store):
    assert sorted(store.names) == sorted(CONTENT)
    assert {name: store.read(name) for name in CONTENT} == CONTENT
    names = [*CONTENT, *reversed(CONTENT)]
    assert store.read_many(names) == [CONTENT[name] for name in names]
    assert store.read_many([]) == []
    assert store.open("one").read() == b"x" and store.open("a/b/c/deep.txt", "r").read(4) == "deep"
    assert verify(store.target) == []


def test_reading_ahead_is_reading(store):
    batches = [["one", "large"], [], ["empty"], list(CONTENT), ["zeros"] * 3]
    wanted = [[CONTENT[name] for name in batch] for batch in batches]
    for ahead in (0, 1, 2, 9):
        assert list(store.read_ahead(batches, ahead)) == wanted


def test_the_tree_keeps_its_shape(store, tmp_path):
    tree = tmp_path / "tree"
    walked = [(folder, sorted(folders), sorted(files)) for folder, folders, files in os.walk(tree)]
    wanted = sorted(
        (os.path.relpath(f, tree).replace(".", "", f == str(tree)), d, n) for f, d, n in walked
    )
    assert sorted((folder, folders, files) for folder, folders, files in store.walk()) == wanted
    for name in (*CONTENT, "a", "a/nothing here", "ä ö"):
        status, found = os.stat(tree / name), store.stat(name)
        assert found.is_dir == (tree / name).is_dir() and found.mtime_ns == status.st_mtime_ns
        assert found.is_dir or found.size == status.st_size
    assert store.listdir("a/nothing here") == [] and store.listdir("a/b") == ["c"]
    assert store.exists("a/b") and not store.exists("a/x")


def test_a_missing_name_raises(store):
    with pytest.raises(NoSuchFile, match="'a/none'"):
        store.read("a/none")
    with pytest.raises(FileNotFoundError):
        store.read_many(["one", "a/none"])
    with pytest.raises(FileNotFoundError):
        store.listdir("none")
    with pytest.raises(IsFolder):
        store.read("a/b")
    with pytest.raises(NotFolder):
        store.listdir("one")
    for name in ("../one", "/one", "a//b", "a/./b", "a/..", "", "a\0b", "a/"):
        with pytest.raises(StoreError):
            store.read(name)
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.read("one")


def test_compression_is_used_where_it_helps(tmp_path):
    tree = make(tmp_path / "tree", {"noise": noise(50_000), "words": b"word " * 10_000})
    for codec in CODECS:
        manifest = pack(tree, tmp_path / codec, codec=codec)
        assert manifest.size == 100_000 and manifest.files == 2
        with open_store(tmp_path / codec) as store:
            used = dict(zip(store.names, store.index.columns["codec"].tolist(), strict=True))
        assert used == {"noise": 0, "words": CODECS.index(codec)}
        assert (manifest.stored < 60_000) == (codec != "none")


@pytest.mark.slow
def test_a_large_file(tmp_path):
    tree = make(tmp_path / "tree", {"64 MB": noise(64 << 20), "beside": b"1"})
    pack(tree, tmp_path / "store", partitions=2)
    with open_store(tmp_path / "store") as store:
        assert store.read("64 MB") == noise(64 << 20) and store.read_many(["beside"]) == [b"1"]


def test_a_tree_of_nothing(tmp_path):
    (tmp_path / "tree").mkdir()
    pack(tmp_path / "tree", tmp_path / "store", partitions=4)
    with open_store(tmp_path / "store") as store:
        assert store.names == () and list(store.walk()) == [("", [], [])]
    assert verify(tmp_path / "store") == []


names = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=8
)
parts = names.filter(lambda name: name not in (".", ".."))


@settings(max_examples=25, deadline=None)
@given(
    st.dictionaries(parts, st.binary(max_size=9000), max_size=12),
    st.integers(1, 5),
    st.sampled_from(CODECS),
)
def test_any_names_and_contents(tmp_path_factory, content, partitions, codec):
    home = tmp_path_factory.mktemp("any")
    (home / "tree").mkdir()
    make(home / "tree" / "in", content)
    pack(home / "tree", home / "store", partitions, codec)
    with open_store(home / "store") as store:
        assert dict(zip(store.names, store.read_many(store.names), strict=True)) == {
            f"in/{name}": data for name, data in content.items()
        }
