"""Whatever tree is packed, every face of the store shows that tree and no other."""

import os
import pathlib
import tempfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib_dlhpc.storage.filesystem import PackedFileSystem
from lib_dlhpc.storage.mount import mounted
from lib_dlhpc.storage.pack import pack
from lib_dlhpc.storage.packed import open_store

# What Linux lets a name be: spaces, dots, line ends, signs of globs, a byte that is no UTF-8.
letters = st.sampled_from("aZ0 .-_~*?[]{}!#%:;'\"\\\n\tüßé漢🙂\u0301\udcff")
parts = st.text(letters, min_size=1, max_size=6).filter(lambda part: part not in (".", ".."))
contents = st.binary(max_size=300) | st.integers(0, 3000).map(lambda size: b"abc" * size)
trees = st.recursive(
    st.dictionaries(parts, contents, max_size=4),
    lambda inner: st.dictionaries(parts, contents | inner, max_size=4),
    max_leaves=12,
)


def write(tree, place):
    place.mkdir()
    for name, content in tree.items():
        if isinstance(content, dict):
            write(content, place / name)
        else:
            (place / name).write_bytes(content)


def flat(tree, above=""):
    """The tree as {name: bytes of a file, None of a folder}."""
    found = {}
    for name, content in tree.items():
        is_dir = isinstance(content, dict)
        found[above + name] = None if is_dir else content
        found |= flat(content, f"{above}{name}/") if is_dir else {}
    return found


@pytest.fixture(scope="module", autouse=True)
def another(tmp_path_factory):
    """Another store is mounted already: the first mount of all looks through every loaded module."""
    folder = tmp_path_factory.mktemp("another")
    write({"a": b"b"}, folder / "tree")
    pack(folder / "tree", folder / "store")
    with open_store(folder / "store") as store, mounted(store, folder / "here"):
        yield


@settings(max_examples=60)
@given(
    tree=trees,
    partitions=st.integers(1, 4),
    codec=st.sampled_from(["none", "zlib", "zstd"]),
    seed=st.integers(0, 99),
)
def test_every_face_shows_the_tree(tree, partitions, codec, seed):
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        write(tree, place / "tree")
        pack(place / "tree", place / "store", partitions=partitions, codec=codec)
        with open_store(place / "store") as store:
            expected = flat(tree)
            files = sorted(name for name, content in expected.items() if content is not None)
            shuffled = np.random.default_rng(seed).permutation(files).tolist()
            wanted = [expected[name] for name in shuffled]

            assert sorted(store.names) == files
            assert store.read_many(shuffled) == wanted
            assert [store.read(name) for name in shuffled] == wanted

            fs = PackedFileSystem(store)
            assert {
                name: None if info["type"] == "directory" else info["size"]
                for name, info in fs.find("", withdirs=True, detail=True).items()
            } == {
                name: None if content is None else len(content)
                for name, content in expected.items()
            }
            assert [fs.cat_file(name) for name in shuffled] == wanted

            with mounted(store, place / "here") as here:
                assert [open(f"{here}/{name}", "rb").read() for name in shuffled] == wanted  # noqa: SIM115
                on_disk = {
                    os.path.relpath(at, place / "tree"): (sorted(below), sorted(names))
                    for at, below, names in os.walk(place / "tree")
                }
                assert on_disk == {
                    os.path.relpath(at, here): (sorted(below), sorted(names))
                    for at, below, names in os.walk(here)
                }
                for name, content in expected.items():
                    path = pathlib.Path(here, name)
                    assert path.is_dir() is (content is None) is not path.is_file()
                    assert content is None or path.stat().st_size == len(content)
