"""The description of a measurement's host."""

import shutil

from lib_dlhpc.calibration import host


def test_the_longest_mount_point_names_the_file_system(tmp_path, monkeypatch):
    inside = tmp_path / "data set" / "here"
    inside.mkdir(parents=True)
    mounts = tmp_path / "mounts"
    spaced = str(tmp_path / "data set").replace(" ", "\\040")
    mounts.write_text(f"a / ext4 rw 0 0\nb {spaced} xfs rw 0 0\nc /elsewhere tmpfs rw 0 0\n")
    monkeypatch.setattr(host, "MOUNTS", mounts)
    assert host.file_system(inside) == "xfs"
    assert host.file_system(tmp_path) == "ext4"


def test_what_the_system_does_not_report_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "MOUNTS", tmp_path / "none")
    monkeypatch.setattr(host, "memory_size", lambda: 0)
    assert set(host.host(tmp_path)) == {"date", "cores", "kernel", "python"}
    assert host.cores() >= 1
    assert host.capacity(tmp_path) > 0


def test_a_tier_holds_what_is_free_and_not_what_others_filled(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(total=1000, used=900, free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    assert host.capacity(tmp_path) == 100
