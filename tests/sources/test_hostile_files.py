"""Files made to exhaust a reader: each is refused or rejected with its reason, in bounded memory and time."""

import errno
import gzip
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
import zstandard

from datamask_pipeline.errors import InputError
from datamask_pipeline.families import SOURCES
from datamask_pipeline.sources import Reject
from datamask_pipeline.sources.filters import RowFilters
from datamask_pipeline.sources.formats import lines, wet

MEGABYTES = 256

#: Reads a crawl with the bounds at one megabyte; prints rows, rejects and the peak of memory in megabytes.
SCRIPT = """
import json, sys
from datamask_pipeline.errors import InputError
from datamask_pipeline.families import SOURCES
from datamask_pipeline.sources.formats import jsonl, lines, wet
lines.MOST_LINE_BYTES = jsonl.MOST_LINE_BYTES = wet.MOST_RECORD_BYTES = 1 << 20
source = SOURCES.make("local", {"root": sys.argv[1], "crawl": "c"})
(shard,) = source.shards("c")
found = {"rows": 0, "reasons": []}
try:
    for batch in source.read("c", shard, batch_rows=100):
        found["rows"] += batch.documents.num_rows
        found["reasons"] += [[reject.row, reject.reason] for reject in batch.rejects]
except InputError as error:
    found["refused"] = str(error)
# The resource module would tell the peak of the process that started this one, if that was higher.
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
found["peak"] = int(status["VmHWM"].split()[0]) >> 10
print(json.dumps(found))
"""


def compressed(kind: str, blocks: list[bytes]) -> bytes:
    packer = (
        zstandard.ZstdCompressor().compressobj() if kind == "zst" else zlib.compressobj(1, zlib.DEFLATED, 31)
    )
    return b"".join([*map(packer.compress, blocks), packer.flush()])


def read(root: Path) -> dict[str, object]:
    command = [sys.executable, "-c", SCRIPT, str(root)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    found: dict[str, object] = json.loads(done.stdout)
    assert found["peak"] < 230, found
    return found


def line(number: int) -> bytes:
    return json.dumps({"id": f"{number}", "text": f"Text {number}."}).encode() + b"\n"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_a_line_of_zeros_is_one_rejected_row(tmp_path: Path, kind: str) -> None:
    blocks = [line(0), *[bytes(1 << 20)] * MEGABYTES, b"\n", line(1)]
    (tmp_path / f"a.jsonl.{kind}").write_bytes(compressed(kind, blocks))
    found = read(tmp_path)
    assert (found["rows"], found["reasons"]) == (2, [[1, "too_large"]])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_newlines_alone_are_no_rows(tmp_path: Path, kind: str) -> None:
    newlines = [b"\n" * (1 << 20)] * MEGABYTES
    (tmp_path / f"a.jsonl.{kind}").write_bytes(compressed(kind, newlines))
    assert read(tmp_path)["rows"] == 0
    (tmp_path / f"a.jsonl.{kind}").write_bytes(compressed(kind, [*newlines, line(0)]))
    assert read(tmp_path)["rows"] == 1


def record(name: str, payload: bytes = b"text", **changes: str) -> bytes:
    headers = {
        "WARC-Type": "conversion",
        "WARC-Record-ID": f"<urn:uuid:{name}>",
        "Content-Length": str(len(payload)),
    } | {key.replace("_", "-"): value for key, value in changes.items()}
    told = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
    return b"WARC/1.0\r\n" + told.encode() + b"\r\n" + payload + b"\r\n\r\n"


def test_a_record_of_zeros_is_one_rejected_row(tmp_path: Path) -> None:
    zeros = compressed("gz", [record("0")[:-8], *[bytes(1 << 20)] * MEGABYTES])
    data = gzip.compress(record("1")) + zeros + gzip.compress(record("2"))
    (tmp_path / "a.warc.wet.gz").write_bytes(data)
    found = read(tmp_path)
    assert (found["rows"], found["reasons"]) == (2, [[1, "too_large"]])


@pytest.mark.parametrize(
    ("damaged", "told"),
    [
        (record("2", Content_Length="9" * 5_000), "field Content-Length, value of 5000 characters: "),
        (record("2", WARC_Target_URI="a" * 5_000_000), f"more than {wet.MOST_HEADER_BYTES} bytes"),
        (b"Jane Roe lives here.", "20 bytes that no WARC record begins with"),
        (record("2", Content_Length="12 Jane Street"), "field Content-Length, value of 14 characters: "),
        (b"WARC/1.0\r\n" + b"a" * 5_000_000, f"more than {wet.MOST_HEADER_BYTES} bytes"),
    ],
)
def test_headers_beyond_all_measure_reject_their_record(tmp_path: Path, damaged: bytes, told: str) -> None:
    data = b"".join(map(gzip.compress, [record("1"), damaged, record("3")]))
    (tmp_path / "a.warc.wet.gz").write_bytes(data)
    source = SOURCES.make("local", {"root": str(tmp_path), "crawl": "c"})
    (shard,) = source.shards("c")
    (batch,) = source.read("c", shard, batch_rows=10)
    assert batch.documents.column("id").to_pylist() == ["<urn:uuid:1>", "<urn:uuid:3>"]
    (reject,) = batch.rejects
    assert isinstance(reject, Reject)
    assert (reject.row, reject.reason) == (1, "malformed_record")
    assert told in reject.detail
    assert len(reject.detail) <= 200
    assert "Jane" not in reject.detail


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".warc.wet.gz"])
@pytest.mark.parametrize(
    ("kind", "is_pattern"),
    [
        ("pipe", False),
        ("pipe", True),
        ("device", False),
        ("device", True),
        ("nothing", False),
        ("folder", True),
    ],
)
def test_what_is_no_regular_file_is_refused_unopened(
    tmp_path: Path, kind: str, suffix: str, is_pattern: bool
) -> None:
    path = tmp_path / f"a{suffix}"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if kind == "device" else tmp_path / "gone")
    root = str(tmp_path / f"*{suffix}") if is_pattern else str(tmp_path)
    with pytest.raises(InputError, match=r"regular file|a link to a file that is not there") as caught:
        SOURCES.make("local", {"root": root, "crawl": "c"}).shards("c")
    assert str(path) in str(caught.value)
    assert caught.value.remedy


def test_a_file_behind_a_closed_folder_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder may be listed and yet not entered, and so may where a link leads."""
    path = tmp_path / "c" / "a.jsonl"
    path.parent.mkdir()
    path.write_bytes(line(0))
    stated = os.stat

    def stat(asked: object, **options: object) -> object:
        if str(asked) == str(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return stated(asked, **options)

    monkeypatch.setattr(os, "stat", stat)
    source = SOURCES.make("local", {"root": str(tmp_path)})
    with pytest.raises(InputError, match="the storage refuses: PermissionError: ") as caught:
        source.check("c")
    assert caught.value.file == str(path)


def test_a_suffix_may_be_in_capitals(tmp_path: Path) -> None:
    (tmp_path / "A.JSONL.GZ").write_bytes(gzip.compress(line(0) + line(1)))
    source = SOURCES.make("local", {"root": str(tmp_path), "crawl": "c"})
    (batch,) = source.read("c", source.shards("c")[0], batch_rows=10)
    assert batch.documents.num_rows == 2


def test_a_line_has_room_for_the_largest_text_however_it_is_escaped() -> None:
    assert len(json.dumps("\0")) * RowFilters().max_text_bytes < lines.MOST_LINE_BYTES
