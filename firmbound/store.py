"""Trajectory stores: labelled sequences in Zarr v3, sharded, self-describing, published whole or not at all.

A store is a Zarr group with `labels` (n,), and `features` (n, T, d), `evidence` (n, T, K) or both; where sequences end
at different times, also with `lengths` (n,). Its attributes say
what the data are and list every file with its size, so that a store that lost a file is refused rather than read as
zeros. Sequences are cut into shards of at most SHARD_ROWS (fewer where they are wide), a file for each array; inside a
shard, features lie in chunks of whole sequences and evidence in chunks of one time step: training reads the former,
backward induction the latter.

Writers that work in parallel must each write whole shards: two writers in one shard would lose rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import ZstdCodec

from firmbound.arrays import Ints, finite_array
from firmbound.errors import InvalidInput, StoreError
from firmbound.publishing import publish
from firmbound.trajectories import Batch

SCHEMA_VERSION = 1
SHARD_ROWS = 4_000
CHUNK_ROWS = 100
# A worker holds a shard in memory: wide features make shards of fewer sequences.
SHARD_BYTES = 128 * 2**20
ATTRIBUTE = "firmbound"
ARRAYS = ("labels", "lengths", "features", "evidence")


@dataclass(frozen=True)
class StoreDescription:
    """What the data are. Shapes follow: features (n, T, d), evidence (n, T, K); 0 dimensions mean no features.

    unequal: sequences end at different times, and the store holds their lengths. names: of the classes, in the words of
    the data set; none: they are their indices.
    """

    dataset: str
    split: str
    seed: tuple[int, ...]
    sequences: int
    horizon: int
    classes: int
    dimension: int
    prior: tuple[float, ...]
    evidence: bool
    unequal: bool = False
    names: tuple[str | int, ...] = ()
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        for name, least in (("sequences", 1), ("horizon", 2), ("classes", 2), ("dimension", 0)):
            if getattr(self, name) < least:
                raise InvalidInput(name, f"be at least {least}", getattr(self, name))
        if len(self.prior) != self.classes:
            raise InvalidInput("prior", f"hold {self.classes} probabilities", self.prior)
        if self.names and len(set(self.names)) != self.classes:
            raise InvalidInput("names", f"be {self.classes} different ones, or none", self.names)

    @property
    def shard_rows(self) -> int:
        """Sequences of a shard: SHARD_ROWS, halved until they fit; whole chunks always."""
        rows, each = SHARD_ROWS, 4 * self.horizon * max(self.dimension, self.classes)
        while rows > CHUNK_ROWS and rows * each > SHARD_BYTES:
            rows = max(rows // 2 // CHUNK_ROWS * CHUNK_ROWS, CHUNK_ROWS)
        return rows

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the arrays there are."""
        each = (self.sequences, self.horizon)
        found: dict[str, tuple[int, ...]] = {"labels": each[:1], "lengths": each[:1] if self.unequal else ()}
        found["features"] = (*each, self.dimension) if self.dimension else ()
        found["evidence"] = (*each, self.classes) if self.evidence else ()
        return {name: shape for name, shape in found.items() if shape}

    @property
    def shards(self) -> int:
        return -(-self.sequences // self.shard_rows)

    def rows(self, shard: int) -> slice:
        """The sequences of a shard."""
        if not 0 <= shard < self.shards:
            raise InvalidInput("shard", f"lie in 0..{self.shards - 1}", shard)
        return slice(shard * self.shard_rows, min((shard + 1) * self.shard_rows, self.sequences))


class StoreWriter:
    """A store being written; `write` may be called for different shards from different threads or processes."""

    def __init__(self, folder: Path, description: StoreDescription) -> None:
        self.folder, self.description = folder, description

    def create_arrays(self) -> None:
        group = zarr.create_group(self.folder, zarr_format=3)
        about = self.description
        n, horizon = about.sequences, about.horizon
        shard = min(about.shard_rows, n)
        _create(group, "labels", (n,), np.dtype(np.int64), chunk=(shard,), shard=(shard,))
        if about.unequal:
            _create(group, "lengths", (n,), np.dtype(np.int64), chunk=(shard,), shard=(shard,))
        if about.dimension:
            rows = min(CHUNK_ROWS, shard)
            shape = (n, horizon, about.dimension)
            whole = -(-shard // rows) * rows
            _create(group, "features", shape, np.dtype(np.float32), (rows, *shape[1:]), (whole, *shape[1:]))
        if about.evidence:
            shape = (n, horizon, about.classes)
            _create(group, "evidence", shape, np.dtype(np.float32), (shard, 1, about.classes), (shard, *shape[1:]))

    def write(self, shard: int, batch: Batch) -> None:
        """Write all rows of one shard."""
        rows = self.description.rows(shard)
        if len(batch.labels) != rows.stop - rows.start:
            raise InvalidInput(
                "batch", f"hold the {rows.stop - rows.start} sequences of shard {shard}", len(batch.labels)
            )
        group = zarr.open_group(self.folder, mode="r+")
        for name in ARRAYS:
            part = getattr(batch, name)
            if (part is not None) != (name in group):
                raise InvalidInput(name, "be given exactly when the store's description has it", part is not None)
            if part is not None:
                array = group[name]
                assert isinstance(array, zarr.Array)
                # Zeros are data here: by default a chunk of zeros would not be written, and look like a lost one.
                array = array.with_config({"write_empty_chunks": True})
                if part.shape[1:] != array.shape[1:]:
                    raise InvalidInput(name, f"have shape (n, {array.shape[1:]})", f"shape {part.shape}")
                with np.errstate(over="ignore"):
                    stored = part.astype(array.dtype, copy=False)
                if stored is not part and part.ndim > 1:  # a number may be finite, yet too large for what is stored
                    finite_array(name, stored, ndim=3, shape_words="(n, T, .)")
                array[rows] = stored

    def remove_unfinished(self) -> None:
        """Remove files that a killed writer had not renamed yet."""
        for file in self.folder.rglob("*.partial"):
            file.unlink()

    def finish(self) -> None:
        """Write the description and the list of files: without these a store is not one."""
        about = self.description
        for name in about.shapes:
            written = len([file for file in (self.folder / name / "c").rglob("*") if file.is_file()])
            if written != about.shards:
                raise StoreError(
                    f"{name} of {about.dataset}/{about.split} has {written} of {about.shards} shards written."
                )
        files = {file.relative_to(self.folder).as_posix(): file.stat().st_size for file in _data_files(self.folder)}
        group = zarr.open_group(self.folder, mode="r+")
        group.attrs[ATTRIBUTE] = {**asdict(about), "files": files}


@contextmanager
def create_store(path: str | Path, description: StoreDescription) -> Iterator[StoreWriter]:
    """Write a store; it appears at `path` when the block ends well and every shard was written."""
    with publish(path) as folder:
        writer = StoreWriter(folder, description)
        writer.create_arrays()
        yield writer
        writer.finish()


class TrajectoryStore:
    """A complete store, open for reading; nothing is loaded until asked for."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.description = _read_description(self.path)
        try:
            self._group = zarr.open_group(self.path, mode="r")
            self._check_shapes()
        except (ValueError, KeyError, TypeError, RuntimeError) as problem:
            raise StoreError(f"{self.path} is damaged: {problem!r}. Run the stage that writes it again.") from None

    def __reduce__(self) -> tuple[type[TrajectoryStore], tuple[Path]]:
        """Another process opens it anew: its path is all that travels."""
        return TrajectoryStore, (self.path.absolute(),)

    @property
    def labels(self) -> Ints:
        """(n,)"""
        return np.asarray(self.read("labels"), dtype=np.int64)

    @property
    def lengths(self) -> Ints:
        """(n,) observations of each sequence."""
        about = self.description
        if not about.unequal:
            return np.full(about.sequences, about.horizon)
        return np.asarray(self.read("lengths"), dtype=np.int64)

    def evidence_at(self, t: int) -> NDArray[Any]:
        """(n, K) evidence after t observations, t in 1..T: reads 1/T of the array."""
        if not 1 <= t <= self.description.horizon:
            raise InvalidInput("t", f"lie in 1..{self.description.horizon}", t)
        return self.read("evidence", (slice(None), t - 1))

    def evidence(self) -> NDArray[Any]:
        """(n, T, K), all in memory."""
        return self.read("evidence")

    def batches(self, *, features: bool = True) -> Iterator[Batch]:
        """Shard by shard, one in memory at a time."""
        about = self.description
        for shard in range(about.shards):
            rows = about.rows(shard)
            yield Batch(
                labels=self.read("labels", rows),
                classes=about.classes,
                features=self.read("features", rows) if features and about.dimension else None,
                evidence=self.read("evidence", rows) if about.evidence else None,
                lengths=self.read("lengths", rows) if about.unequal else None,
            )

    def _check_shapes(self) -> None:
        wanted = self.description.shapes
        found = {name: array.shape for name, array in self._group.arrays()}
        if found != wanted:
            raise StoreError(f"{self.path} is described wrongly: it says {wanted} and holds {found}.")

    def read(self, name: str, selection: Any = slice(None)) -> NDArray[Any]:
        """Part of one array; every chunk carries a checksum, so damage is noticed here at the latest."""
        if name not in self._group:
            raise StoreError(f"{self.path} holds no {name}; it has {sorted(self._group.array_keys())}.")
        array: Any = self._group[name]
        try:
            return np.asarray(array[selection])
        except (RuntimeError, ValueError, OSError) as problem:
            raise StoreError(
                f"{name} of {self.path} cannot be read: {problem}. Run the stage that writes it again."
            ) from problem


def _create(
    group: zarr.Group,
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    chunk: tuple[int, ...],
    shard: tuple[int, ...],
) -> None:
    group.create_array(
        name,
        shape=shape,
        dtype=dtype,
        chunks=chunk,
        shards=shard,
        compressors=[ZstdCodec(level=1, checksum=True)],
    )


def _data_files(folder: Path) -> list[Path]:
    """All files of the arrays; the group's own zarr.json holds this list, so it cannot be in it."""
    return sorted(file for file in folder.rglob("*") if file.is_file() and file != folder / "zarr.json")


def _read_description(path: Path) -> StoreDescription:
    attributes = _read_attributes(path)
    version = attributes.get("schema_version")
    if version != SCHEMA_VERSION:
        raise StoreError(f"{path} has schema version {version}, this firmbound reads {SCHEMA_VERSION}. Make it again.")
    files = attributes.pop("files", None)
    if not isinstance(files, dict) or not files:
        raise StoreError(
            f"{path} is described wrongly: it does not list its files. Run the stage that writes it again."
        )
    for name, size in files.items():
        file = path / name
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise StoreError(f"{path} is described wrongly: {name} lies outside of it. Do not use it.")
        if not file.is_file():
            raise StoreError(f"{path} is incomplete: {name} is missing. Run the stage that writes it again.")
        if file.stat().st_size != size:
            raise StoreError(
                f"{path} is damaged: {name} has {file.stat().st_size} bytes instead of {size}. "
                "Run the stage that writes it again."
            )
    try:
        for name in {"seed", "prior", "names"} & attributes.keys():
            attributes[name] = tuple(attributes[name])
        return StoreDescription(**attributes)
    except (KeyError, TypeError, InvalidInput) as problem:
        raise StoreError(f"{path} is described wrongly: {problem}.") from None


def _read_attributes(path: Path) -> dict[str, Any]:
    file = path / "zarr.json"
    if not file.is_file():
        raise StoreError(f"There is no store at {path}. Run the stage that writes it (dvc repro).")
    try:
        attributes = json.loads(file.read_text())["attributes"][ATTRIBUTE]
        return dict(attributes)
    except (ValueError, KeyError, TypeError):
        raise StoreError(f"{path} is no finished firmbound store: its description is missing.") from None
