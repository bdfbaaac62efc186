"""A store that was made to fill the memory of who reads it is refused, with its file named, in little memory."""

import dataclasses
import shutil
import zlib

import numpy as np
import pytest
from crafted_files import LARGE, SAFE, archive, array, reading, stated, zeros

from lib_dlhpc.storage import open_store, pack, verify
from lib_dlhpc.storage.checksum import checksum
from lib_dlhpc.storage.codecs import CODECS, MOST, check, compress, decompress
from lib_dlhpc.storage.errors import StoreError
from lib_dlhpc.storage.index import INDEX, load, load_manifest, save, save_manifest, sha256
from lib_dlhpc.storage.snapshots import SnapshotStore
from lib_dlhpc.storage.snapshots.files import SnapshotError
from lib_dlhpc.storage.snapshots.version import make, to_bytes


def packed(size, codec):
    """Zeros as a codec stores them; "zstd unsized": without its statement of how many there are."""
    if codec == "zlib":
        pack = zlib.compressobj()
    else:
        import zstandard

        known = codec == "zstd"
        pack = zstandard.ZstdCompressor(write_content_size=known)
        pack = pack.compressobj(size=size) if known else pack.compressobj()
    return b"".join([*map(pack.compress, zeros(size)), pack.flush()])


@pytest.fixture
def target(tmp_path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "x").write_bytes(b"hello")
    pack(tmp_path / "tree", tmp_path / "store", partitions=1)
    return tmp_path / "store"


def craft(target, data=None, **columns):
    """Change what a store's index says of its one file and, with them, what is stored; all checksums are right."""
    manifest = load_manifest(target)
    index = load(target, manifest)
    part = target / manifest.partitions[0].name
    if data is not None:
        part.write_bytes(data)
        columns = {"stored": len(data), "checksum": checksum(data), **columns}
    for name, value in columns.items():
        index.columns[name][0] = value
    altered = manifest.partitions[0]._replace(size=part.stat().st_size, sha256=sha256(part))
    save_manifest(
        dataclasses.replace(manifest, partitions=(altered,), index_sha256=save(index, target)),
        target,
    )


READ = "from lib_dlhpc.storage import open_store, verify"


def test_a_file_is_decompressed_to_the_size_in_the_index_and_no_further(target, tmp_path):
    statements = []
    for codec in ("zlib", "zstd", "zstd unsized"):
        store = shutil.copytree(target, tmp_path / codec)
        craft(store, packed(LARGE, codec), size=1000, codec=CODECS.index(codec.split()[0]))
        statements.append(f"open_store({str(store)!r}).read('x')")
        statements.append(f"raise StoreError(*verify({str(store)!r})[1:])")
    said, peak = reading(f"{READ}; from lib_dlhpc.storage.errors import StoreError", *statements)
    assert all(text.startswith("StoreError 'x' in partition-00000") for text in said), said
    assert peak < SAFE


def test_verify_looks_at_a_file_of_any_size_in_little_memory(target, tmp_path):
    statements = []
    for codec in ("zlib", "zstd"):
        store = shutil.copytree(target, tmp_path / codec)
        craft(store, packed(LARGE, codec), size=LARGE, codec=CODECS.index(codec))
        statements.append(f"assert not verify({str(store)!r})[1:]")
    assert reading(READ, *statements)[0] == ["read", "read"]
    assert reading(READ, *statements)[1] < SAFE


@pytest.mark.parametrize("code", range(1, len(CODECS)))
@pytest.mark.parametrize("size", [1000, 3 << 20])
def test_only_the_very_size_decompresses(code, size):
    data, used = compress(bytes(range(250)) * (size // 250) + bytes(size % 250), code)
    assert used == code and len(decompress(data, code, size)) == size
    check(data, code, size)
    for wrong in (size - 1, size + 1, size // 2, size * 2, 2):
        for look in (decompress, check):
            with pytest.raises(StoreError, match=r"B decompressed|did not decompress"):
                look(data, code, wrong)
    for look in (decompress, check):
        with pytest.raises(StoreError):
            look(data[:-5], code, size)


@pytest.mark.parametrize(
    "columns",
    [
        {"size": -5},
        {"size": 10**15},
        {"size": 6},
        {"stored": -1},
        {"stored": 6},
        {"stored": 2**62},
        {"offset": -1},
        {"offset": 1},
        {"offset": 2**63 - 1},
        {"partition": -1},
        {"partition": 1},
        {"codec": len(CODECS)},
        {"codec": 1, "size": 5 * (MOST[1] + 1)},
        {"codec": 2, "size": 5 * (MOST[2] + 1)},
    ],
)
def test_an_index_that_states_what_no_partition_has_is_refused_by_the_files_name(target, columns):
    craft(target, **columns)
    with pytest.raises(StoreError, match=f"{INDEX} is damaged: 'x'"):
        open_store(target)
    assert "'x'" in " ".join(verify(target))


def test_as_much_as_a_codec_can_make_is_legal(target):
    """Zeros by the gigabyte are a file like any other: only what no codec makes is refused."""
    craft(target, packed(1 << 27, "zstd"), size=1 << 27, codec=2)
    with open_store(target) as store:
        assert store.read("x") == bytes(1 << 27)


def test_an_index_of_large_or_uneven_arrays_is_refused(target, tmp_path):
    changes = [
        {"size": stated((LARGE // 8,), np.int64, LARGE)},
        {"size": stated((10**13,), np.int64, 100)},
        {"size": stated((LARGE // 8,), np.int64, 100)},
        {"names": stated((LARGE,), np.uint8, LARGE)},
        {"names": stated((1,), f"U{LARGE // 4}", 100)},
        {"names": [b"\x93NUMPY\x02\0", LARGE.to_bytes(4, "little"), *zeros(LARGE)]},
        {"size": array(np.zeros(2, np.int64))},
        {"size": array(np.zeros((1, 1), np.int64))},
        {"folder_mtime": array(np.zeros(2, np.int64))},
    ]
    statements, places = [], []
    for number, change in enumerate(changes):
        store = shutil.copytree(target, tmp_path / str(number))
        with np.load(target / INDEX) as arrays:
            archive(store / INDEX, {name: array(arrays[name]) for name in arrays} | change)
        altered = dataclasses.replace(load_manifest(store), index_sha256=sha256(store / INDEX))
        save_manifest(altered, store)
        statements.append(f"open_store({str(store)!r})")
        places.append(f"StoreError {store / INDEX} is damaged: ")
    said, peak = reading(READ, *statements)
    assert all(map(str.startswith, said, places)), said
    assert peak < SAFE


@pytest.fixture
def snapshots(tmp_path):
    """A store of snapshots, and a function that puts another array in place of the newest version's."""
    store = SnapshotStore(tmp_path / "snapshots")
    saved = store.save({"w": np.zeros(1 << 10)}, step=1)

    def forge(**changed):
        entry = dataclasses.replace(saved.arrays["w"], **changed)
        forged = make(1, "", saved.branch, 1, {}, {"w": entry}, 0)
        (store.folder / "versions" / f"{forged.id}.json").write_bytes(to_bytes(forged))
        store.branches.put(saved.branch, forged.id)
        return SnapshotStore(store.folder)

    return forge


WRONG = [
    *({"shape": shape} for shape in ((10**13,), (LARGE,), (-32, -32), ("1024",), (1024, None))),
    *({"dtype": dtype} for dtype in ("|O", "<f4", "V1000000000", "no type", "<f8,(", 8, None)),
    *({"chunk": chunk} for chunk in (0, -1, 1, 1.5, "8192")),
]


@pytest.mark.parametrize("changed", WRONG)
def test_a_version_that_states_another_size_than_its_chunks_have_is_refused(snapshots, changed):
    store = snapshots(**changed)
    with pytest.raises(SnapshotError, match="cut short or changed"):
        store.load("main")
    assert any("cut short or changed" in text for text in store.verify())


def test_a_version_of_more_than_the_memory_is_refused_by_name(snapshots):
    """One chunk of zeros that is named 100,000 times would be 100 GB."""
    chunk, times = 1 << 20, 100_000
    store = snapshots(chunk=chunk, shape=(times * chunk // 8,), chunks=(bytes(16),) * times)
    with pytest.raises(SnapshotError, match=r", w: not enough memory for its 104,857,600,000 B\."):
        store.load("main")
