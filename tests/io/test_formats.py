"""Kinds of files: what they do not say of themselves, and what is damaged or hostile."""

from __future__ import annotations

import sys
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from fleetgp.errors import InputError
from fleetgp.io import Reading, read_observations
from fleetgp.io.fields import load_sst
from tests.io.sources import packed, read, table, write


def test_files_separated_otherwise_get_a_hint_and_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for separator, option in ((";", ";"), ("\t", "tab")):
        path.write_text(
            separator.join(["lon", "lat", "sst"]) + "\n" + separator.join(["1,5", "2,5", "12,25"]) + "\n",
            encoding="utf-8",
        )
        with pytest.raises(InputError, match=f"by commas, or say how they are .--sep '{option}'"):
            read(path)
        with pytest.raises(InputError, match=r"Are these decimal commas\? Then say so \(--decimal ,\)"):
            read(path, reading=Reading(sep=option))
        found = read(path, reading=Reading(sep=option, decimal=","))
        assert found.inputs.tolist() == [[1.5, 2.5]]
        assert found.observations.tolist() == [12.25]
    with pytest.raises(InputError, match=r"sep .--sep. must be one character"):
        read(path, reading=Reading(sep=";;"))


def test_files_in_another_encoding_get_a_hint_and_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("lon,lat,sst,boat\n1,2,3,J\xf6rg\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"not written in utf-8: save it as UTF-8, or .*--encoding latin-1"):
        read(path, agent="boat")
    found = read(path, agent="boat", reading=Reading(encoding="latin-1"))
    assert found.labels == ("J\xf6rg",)
    with pytest.raises(InputError, match="unknown encoding 'martian'"):
        read(path, reading=Reading(encoding="martian"))


def test_options_for_another_kind_of_file_are_refused(tmp_path: Path) -> None:
    csv, field = write(table(), tmp_path / "t.csv"), packed(tmp_path / "f.nc")
    for options in ({"date": "2021-01-01"}, {"box": (0, 0, 1, 1)}, {"stride": 2}):
        with pytest.raises(InputError, match=r"is for files that end in \.nc or \.zarr: leave it out"):
            read(csv, reading=Reading(**options))
    with pytest.raises(InputError, match=r"sep \(--sep\) is for files that end in \.csv"):
        read(field, reading=Reading(sep=";"))
    found = read(field, reading=Reading(date="2021-01-02", stride=2, celsius=True))
    assert found.notes == (
        "temperatures converted from K to degrees Celsius",
        "1 cell holds nothing, and is no observation",
    )
    assert len(found.observations) == 6 * 11 - 1


def test_rows_wider_than_the_header_and_names_that_come_twice_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("lon,lat,sst\n9,1,2,3\n9,4,5,6\n", encoding="utf-8")  # pandas takes the first field for an index
    with pytest.raises(InputError, match="more fields than the 3 of its header"):
        read(path)
    path.write_text("lon,lat,sst,sst\n1,2,3,4\n", encoding="utf-8")
    with pytest.raises(InputError, match="two columns are called 'sst'"):
        read(path)


def test_utf_16_and_bars_between_columns_are_recognized(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("lon,lat,sst\n1,2,3\n".encode("utf-16"))
    with pytest.raises(InputError, match=r"written in UTF-16, not in utf-8: .*--encoding utf-16"):
        read(path)
    assert len(read(path, reading=Reading(encoding="utf-16")).observations) == 1
    path.write_text("lon|lat|sst\n1|2|3\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"--sep '\|'"):
        read(path)


def array_file(shape: tuple[int, ...], content: bytes, *, header: bytes | None = None) -> bytes:
    """An .npy file whose description says what we like."""
    told = header or repr({"descr": "<f8", "fortran_order": False, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY\x02\x00" + len(told).to_bytes(4, "little") + told + content


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (array_file((10**12,), b"\0" * 80), "the array 'sst' cannot be read: (Unable to allocate|EOF)"),
        (array_file((-1,), b"\0" * 80), "the array 'sst' cannot be read: negative dimensions"),
        (array_file((10,), b"\0" * 72), "the array 'sst' cannot be read: EOF"),
        (array_file((10,), b"\0" * 80, header=b"(" * 5000), "the array 'sst' cannot be read"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b" " * 80, "the array 'sst' cannot be read: EOF"),
        (b"no array", "it holds 'sst', which is no array"),
        (
            array_file((1,), b"\0" * 8, header=b"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}\n"),
            "Object arrays cannot be loaded",
        ),
    ],
)
def test_absurd_arrays_in_an_archive_are_one_clear_error(content: bytes, said: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        archive.writestr("sst.npy", content)
    with pytest.raises(InputError, match=said):
        read(tmp_path / "t.npz")


def test_an_archive_that_would_fill_the_memory_is_refused_unopened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros, packed a thousandfold; the limit is lowered so that they need not be gigabytes."""
    monkeypatch.setattr("fleetgp.io.formats.UNPACKED", 1 << 24)
    count = (1 << 27) // 8
    with (
        zipfile.ZipFile(tmp_path / "t.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("sst.npy", "w", force_zip64=True) as member,
    ):
        member.write(array_file((count,), b""))
        for _ in range(1 << 7):
            member.write(bytes(1 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"unpacks to 0.134 GB, .* times its own size"):
            read(tmp_path / "t.npz")
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = packed(tmp_path / "f.nc")
    (tmp_path / "t.csv").write_text("lon,lat,sst\n1,2,3\n", encoding="utf-8")
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(InputError, match=r'pip install "fleetgp\[data\]"'):
        read_observations(tmp_path / "t.csv", inputs=["lon", "lat"], target="sst")
    with pytest.raises(InputError, match=r'pip install "fleetgp\[data\]"'):
        load_sst(path)
