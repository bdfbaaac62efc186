"""Errors of a damaged store name file and partition; nothing is half published."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from numpy.random import default_rng

from lib_dlhpc.storage import open_store, pack, verify
from lib_dlhpc.storage.errors import AlreadyThere, StoreError
from lib_dlhpc.storage.index import INDEX, MANIFEST
from lib_dlhpc.storage.unfinished import unfinished

FILES = 20


@pytest.fixture
def tree(tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(FILES):
        (tree / f"{number:02d}").write_bytes(default_rng(number).bytes(5000 + number))
    return tree


@pytest.fixture
def target(tree, tmp_path):
    pack(tree, tmp_path / "store", partitions=4)
    return tmp_path / "store"


def change(path, place, bit=1):
    data = bytearray(path.read_bytes())
    data[place] ^= bit
    path.write_bytes(data)


def at_fault(target, name):
    with open_store(target) as store:
        entry = store.index.entry(store.index.numbers[name])
    return target / f"partition-{entry.partition:05d}", entry.offset


@pytest.mark.parametrize("place", [0, 2500, 4999])
@pytest.mark.parametrize("bit", [1, 128])
def test_a_flipped_bit_names_file_and_partition(target, place, bit):
    path, offset = at_fault(target, "07")
    change(path, offset + place, bit)
    with open_store(target) as store:
        with pytest.raises(StoreError, match=f"'07' in {path.name}.*checksum"):
            store.read("07")
        with pytest.raises(StoreError, match=f"'07' in {path.name}.*checksum"):
            store.read_many(["06", "07", "08"])
        assert len(store.read_many(["06", "08"])) == 2  # what is whole is still read
    problems = verify(target)
    assert any(f"'07' in {path.name}" in problem for problem in problems)
    assert any("SHA-256" in problem for problem in problems) and len(problems) == 2


def test_verify_reports_every_problem(target):
    for name in ("01", "05", "13"):
        path, offset = at_fault(target, name)
        change(path, offset)
    told = " ".join(verify(target))
    assert all(f"'{name}'" in told for name in ("01", "05", "13")) and "'02'" not in told


def test_a_short_partition_names_what_is_lost(target):
    path, offset = at_fault(target, "07")
    os.truncate(path, offset + 100)
    with pytest.raises(
        StoreError, match=f"{path.name}.*has {offset + 100} B of .*Lost: '07'.*`dlhpc store verify`"
    ):
        open_store(target)
    assert any("'07'" in problem for problem in verify(target))


def test_a_missing_partition_names_what_is_lost(target):
    path, _ = at_fault(target, "07")
    path.unlink()
    with pytest.raises(
        StoreError, match=f"{path.name}.*No such file.*Lost: '.*`dlhpc store verify`"
    ):
        open_store(target)
    assert any(path.name in problem for problem in verify(target))


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: os.truncate(path, 100)])
def test_the_rest_of_a_store_is_read_where_one_asks_for_it(target, tree, damage):
    path, _ = at_fault(target, "07")
    with open_store(target) as store:
        parts = store.index.columns["partition"].tolist()
        lost = [
            name
            for name, part in zip(store.names, parts, strict=True)
            if str(part) == path.name[-1]
        ]
    damage(path)
    with open_store(target, rest=True) as store:
        whole = sorted(set(store.names) - set(lost))
        assert lost and whole and "07" in lost and store.listdir() == sorted(store.names)
        assert store.read_many(whole) == [(tree / name).read_bytes() for name in whole]
        for name in lost:
            with pytest.raises(StoreError, match=f"'{name}' in {path.name}.*is lost"):
                store.read(name)
        with pytest.raises(StoreError, match=f"'{lost[0]}' in {path.name}.*is lost"):
            store.read_many([*whole, *lost])


@pytest.mark.parametrize("name", [MANIFEST, INDEX])
def test_a_damaged_index_is_refused(target, name):
    whole = (target / name).read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", whole[:-9] + b"x" + whole[-8:]):
        (target / name).write_bytes(damaged)
        with pytest.raises(StoreError, match="damaged"):
            open_store(target)
        assert len(verify(target)) == 1
    (target / name).unlink()
    with pytest.raises(StoreError, match=name):
        open_store(target)
    assert len(verify(target)) == 1


def test_a_manifest_does_not_lead_out_of_the_store(target):
    text = (target / MANIFEST).read_text()
    (target / MANIFEST).write_text(text.replace("partition-00001", "../tree/01"))
    with pytest.raises(StoreError, match=r"'\.\./tree/01'"):
        open_store(target)


def nothing_but(folder, *names):
    return sorted(os.listdir(folder)) == sorted(names)


def test_what_cannot_be_packed_publishes_nothing(tree, tmp_path):
    def refused(says, **options):
        with pytest.raises(StoreError, match=says):
            pack(tree, tmp_path / "store", **options)
        assert nothing_but(tmp_path, "tree")

    refused("codec: 'zip'.*none, zlib, zstd", codec="zip")
    for partitions in (0, -1, 2.0, True):
        refused("partitions: ", partitions=partitions)
    (tree / "link").symlink_to("/etc/hostname")
    refused("'link' is a link that leads out of the tree")
    (tree / "link").unlink()
    (tree / "link").symlink_to("../tree/nothing")
    refused("'link'.*No such file")
    (tree / "link").unlink()
    (tree / "sub").mkdir()
    (tree / "sub" / "up").symlink_to("..")
    refused("'sub/up' is a link that leads in a circle")
    shutil.rmtree(tree / "sub")
    os.mkfifo(tree / "pipe")
    refused("'pipe' is neither a file nor a folder")
    (tree / "pipe").unlink()
    with pytest.raises(StoreError, match="is inside the tree"):
        pack(tree, tree / "store")
    with pytest.raises(StoreError, match="is not a folder"):
        pack(tree / "00", tmp_path / "store")
    (tmp_path / "taken").mkdir()
    with pytest.raises(AlreadyThere):
        pack(tree, tmp_path / "taken")
    assert nothing_but(tmp_path, "tree", "taken")


def test_links_inside_the_tree_are_files(tree, tmp_path):
    (tree / "again").symlink_to("03")
    (tree / "folder").mkdir()
    (tree / "folder" / "in").write_bytes(b"in")
    (tree / "other").symlink_to(tree / "folder")
    pack(tree, tmp_path / "store")
    with open_store(tmp_path / "store") as store:
        assert store.read("again") == store.read("03") and store.read("other/in") == b"in"


def test_a_file_that_may_not_be_read_is_named():
    """Root may read everything, so this runs as user nobody."""
    program = (
        "import os, sys\n"
        "from lib_dlhpc.storage import pack\n"
        "os.geteuid() or os.seteuid(65534)\n"
        "try: pack('tree', 'out/store')\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folder is closed to nobody
        home = Path(folder)
        for path, mode in ((home, 0o755), (home / "tree", 0o755), (home / "out", 0o777)):
            path.mkdir(exist_ok=True)
            path.chmod(mode)
        (home / "tree" / "closed").write_bytes(b"1")
        (home / "tree" / "closed").chmod(0)
        run = subprocess.run(
            [sys.executable, "-c", program], cwd=home, capture_output=True, text=True
        )
        assert "StoreError 'closed'" in run.stdout and "Permission denied" in run.stdout, run
        assert nothing_but(home / "out")


def test_a_full_disk_publishes_nothing(tree, tmp_path):
    """A limit on the size of files stands for the disk: the same error of the same call."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
        with pytest.raises(StoreError, match=r"cannot be written into partition-0000\d"):
            pack(tree, tmp_path / "store")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert nothing_but(tmp_path, "tree")


@pytest.mark.parametrize("moment", range(4))
def test_a_killed_packing_publishes_nothing(tree, tmp_path, moment):
    for number in range(400):
        (tree / f"more-{number}").write_bytes(bytes(30_000))
    program = "import sys; from lib_dlhpc.storage import pack; pack(*sys.argv[1:], codec='zlib')"
    target = tmp_path / "store"
    packing = subprocess.Popen([sys.executable, "-c", program, str(tree), str(target)])
    while packing.poll() is None and nothing_but(tmp_path, "tree"):
        time.sleep(0.001)
    time.sleep(0.02 * moment)
    packing.kill()
    packing.wait()
    assert not target.exists() or verify(target) == []
    if target.exists():
        shutil.rmtree(target)
    pack(tree, target)
    assert verify(target) == []
    assert nothing_but(tmp_path, "tree", "store")  # what the killed one left is gone


@pytest.mark.parametrize("name", ["store", "[st]ore *"])
def test_concurrent_packings_of_one_target_do_not_interfere(tree, tmp_path, name):
    with unfinished(tmp_path / name) as beside:
        (beside / "partition-00000").write_bytes(b"half")
        pack(tree, tmp_path / name)
        assert (beside / "partition-00000").read_bytes() == b"half"
    left = tmp_path / beside.name
    left.mkdir()
    shutil.rmtree(tmp_path / name)
    pack(tree, tmp_path / name)
    assert nothing_but(tmp_path, "tree", name)
