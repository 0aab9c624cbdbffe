"""The reader: whatever happens to a part's bytes, no wrong row comes out."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from versions import write_version

from pipelines.data.loader.reader import Reader
from pipelines.data.versions.parts import row_group_digest
from pipelines.data.versions.plain import open_parquet
from pipelines.data.versions.row_groups import collect_row_groups
from pipelines.data.versions.schema import arrow_schema, from_numpy
from pipelines.data.versions.versions import Version
from pipelines.errors import CorruptError, DatasetError

ALTERATIONS = 2_000
Alter = Callable[[bytearray, np.random.Generator], bytes]


@pytest.fixture
def version(tmp_path: Path) -> Version:
    """Two parts of three row groups: values that compress, values that do not, and a tensor."""

    def part(seed: int, rows: int = 192) -> dict[str, np.ndarray]:
        random = np.random.default_rng(seed)
        return {
            "x": random.standard_normal(rows, np.float32),
            "kind": random.integers(0, 9, rows, np.int32),
            "image": random.integers(0, 256, (rows, 4, 4), np.uint8),
            "label": np.arange(rows),
        }

    return write_version(tmp_path, {"train": [part(0), part(1)]}, row_group_bytes=2**11)


def part_files(version: Version) -> list[Path]:
    return sorted({Path(version.root) / group.file for group in version.row_groups})


def read_all(version: Version) -> Iterator[dict[str, np.ndarray] | str]:
    """Every row group's columns, or the message of its error."""
    reader = Reader(version, "train")
    for number in range(len(reader.groups)):
        try:
            yield {name: values.copy() for name, values in reader.read(number).items()}
        except CorruptError as error:
            yield str(error)


def test_every_byte_of_a_part_is_in_one_row_group_or_in_the_footer(version: Version) -> None:
    for file in part_files(version):
        groups = [group for group in version.row_groups if group.file == str(file.relative_to(version.root))]
        ends = [group.offset + group.bytes for group in groups]
        assert [group.offset for group in groups] == [0, *ends[:-1]]
        assert {group.footer_offset for group in groups} == {ends[-1]}
        footer = pq.read_metadata(file)
        assert ends[-1] + footer.serialized_size + 8 == file.stat().st_size
        for group in groups[1:]:
            first = footer.row_group(group.index).column(0)
            assert group.offset == (first.dictionary_page_offset or first.data_page_offset)


def test_p6_what_is_read_has_the_digest_that_was_taken_of_it(version: Version) -> None:
    groups = list(read_all(version))  # all at once: what is read does not lie in memory that the next read uses again
    for group, columns in zip(version.split_row_groups("train"), groups, strict=True):
        assert isinstance(columns, dict)
        arrays = [from_numpy(column, columns[column.name]) for column in version.columns]
        assert row_group_digest(version.columns, pa.Table.from_arrays(arrays, schema=arrow_schema(version.columns))) == group.digest


def flip(content: bytearray, random: np.random.Generator) -> bytes:
    """One bit."""
    content[random.integers(len(content))] ^= 1 << random.integers(8)
    return bytes(content)


def cut(content: bytearray, random: np.random.Generator) -> bytes:
    """Some bytes are gone, perhaps the last ones."""
    start = random.integers(len(content))
    del content[start : start + random.integers(1, 200)]
    return bytes(content)


def overwrite(content: bytearray, random: np.random.Generator) -> bytes:
    """A run is zeros, as after a torn write."""
    start = random.integers(len(content) - 8)
    content[start : start + 64] = bytes(len(content[start : start + 64]))
    return bytes(content)


def move(content: bytearray, random: np.random.Generator) -> bytes:
    """Two equally long runs have changed places."""
    size = int(random.integers(8, len(content) // 4))
    first, second = int(random.integers(len(content) // 2 - size)), int(random.integers(len(content) // 2, len(content) - size))
    content[first : first + size], content[second : second + size] = content[second : second + size], content[first : first + size]
    return bytes(content)


def grow(content: bytearray, random: np.random.Generator) -> bytes:
    return bytes(content) + random.bytes(random.integers(1, 100))


def test_p8_no_alteration_of_a_part_goes_unnoticed(version: Version) -> None:
    random = np.random.default_rng(17)
    written = list(read_all(version))
    originals = {file: file.read_bytes() for file in part_files(version)}
    alterations: list[Alter] = [flip, flip, flip, cut, overwrite, move, grow]
    for number in range(ALTERATIONS):
        file = part_files(version)[number % 2]
        altered = alterations[number % len(alterations)](bytearray(originals[file]), random)
        if altered == originals[file]:
            continue  # a run of zeros was overwritten
        file.write_bytes(altered)
        noticed = 0
        for group, columns, expected in zip(version.split_row_groups("train"), read_all(version), written, strict=True):
            if isinstance(columns, str):
                assert f"{group.file}, row group {group.index}: " in columns
                noticed += 1
            else:
                np.testing.assert_equal(columns, expected)
        assert noticed, f"alteration {number}"
        file.write_bytes(originals[file])


def test_p8_row_groups_and_files_that_changed_places_are_noticed(version: Version) -> None:
    first, second = part_files(version)
    contents = first.read_bytes(), second.read_bytes()
    moved, other = version.split_row_groups("train")[1:3]
    assert moved.bytes == other.bytes
    swapped = bytearray(contents[0])
    swapped[moved.offset : other.offset + other.bytes] = (
        contents[0][other.offset : other.offset + other.bytes] + contents[0][moved.offset : moved.offset + moved.bytes]
    )
    first.write_bytes(swapped)
    groups = list(read_all(version))
    assert [isinstance(group, str) for group in groups] == [False, True, True, False, False, False]
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])
    assert all(isinstance(group, str) and "checksum" in group for group in read_all(version))


def test_plain_parquet_has_the_page_checksums_that_its_writer_gave_it(tmp_path: Path) -> None:
    table = pa.table({"x": np.random.default_rng(0).standard_normal(5_000), "label": np.arange(5_000)})
    file = tmp_path / "rows.parquet"
    pq.write_table(table, file, row_group_size=2_000, write_page_checksum=True)
    plain = open_parquet(str(tmp_path), target="label")
    columns = [columns for columns in read_all(plain) if isinstance(columns, dict)]
    for name in table.column_names:
        assert np.array_equal(np.concatenate([group[name] for group in columns]), table.column(name).to_numpy())
    content = bytearray(file.read_bytes())
    content[1_000] ^= 1
    file.write_bytes(content)
    groups = list(read_all(plain))
    assert [isinstance(group, str) for group in groups] == [True, False, False]
    assert "rows.parquet, row group 0: could not verify page integrity" in str(groups[0])


def test_plain_parquet_without_columns_has_no_target(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}).select([]), tmp_path / "rows.parquet")
    with pytest.raises(DatasetError, match="has no column label"):
        open_parquet(str(tmp_path), target="label")


def test_a_footer_of_plain_parquet_that_points_elsewhere_is_an_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": np.arange(5_000), "label": np.arange(5_000)}), tmp_path / "rows.parquet", compression="none")
    plain = open_parquet(str(tmp_path), target="label")
    elsewhere = replace(plain, row_groups=collect_row_groups(replace(group, offset=group.offset + 100) for group in plain.row_groups))
    (columns,) = read_all(elsewhere)
    assert "rows.parquet, row group 0: it points to" in str(columns)
    huge = replace(plain, row_groups=collect_row_groups(replace(group, bytes=2**40) for group in plain.row_groups))
    (columns,) = read_all(huge)
    assert "its pages are 1099511627776 bytes" in str(columns)


def test_reading_imports_no_pandas(version: Version) -> None:
    """It takes a worker 0.3 s."""
    code = f"""
import sys
from pipelines.data.versions.versions import open_version
from pipelines.data.loader.reader import Reader
Reader(open_version({version.root!r}), "train").read(0)
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
