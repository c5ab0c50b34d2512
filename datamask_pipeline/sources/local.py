"""Files of any known format on a local or mounted disk, or on any object storage that fsspec speaks.

Knows no hub protocol: an ``s3://`` URL is just another file system.
"""

import contextlib
import functools
import hashlib
import logging
import os
import posixpath
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pydantic
from fsspec.implementations.local import LocalFileSystem

from datamask_pipeline.errors import ConfigurationError, DataMaskError, InputError, StorageError, first_line
from datamask_pipeline.families import FORMATS
from datamask_pipeline.schema import DOCUMENTS, EXTRA_JSON, FINEWEB
from datamask_pipeline.settings import Settings, execution_field
from datamask_pipeline.sources.base import Shard, Source, SourceBatch
from datamask_pipeline.sources.columns import merge_extras
from datamask_pipeline.sources.formats.base import Columns, FileFormat, ShardFile
from datamask_pipeline.sources.shard_names import by_shard_name, shown_name
from datamask_pipeline.storage.local_files import LOST_AND_FOUND
from datamask_pipeline.storage.reaching import file_system_of, is_raised_by, unreached

logger = logging.getLogger(__name__)

ARROW_TYPES: Final = {"string": pa.string(), "double": pa.float64(), "int64": pa.int64(), "bool": pa.bool_()}
_INTO_A_FOLDER: Final = "move it into the folder of its crawl"


class LocalConfig(Settings):
    """Where the files lie and how their columns are called."""

    root: str = pydantic.Field(
        description="A file, a directory, a glob pattern or an fsspec URL. Without `crawl`, each folder "
        "directly under a directory is a crawl of that name; a directory of files alone is one crawl, by its own name."
    )
    crawl: str | None = pydantic.Field(
        None, description="Name of the one crawl that everything under `root` belongs to."
    )
    columns: dict[str, str] = pydantic.Field(
        default_factory=dict, description="FineWeb's column name -> the files' own name for it."
    )
    optional_columns: tuple[str, ...] = pydantic.Field(
        ("date",), description="FineWeb columns a file may lack; they are filled with null."
    )
    extra_columns: dict[str, str] = pydantic.Field(
        default_factory=dict,
        description="For formats without types, such as JSON Lines: further keys that become typed columns (string, "
        "double, int64, bool). A value of another type rejects its row; a change ingests and embeds the crawls again.",
    )
    format_options: dict[str, dict[str, Any]] = pydantic.Field(
        default_factory=dict, description="A file format's own settings, by the format's name."
    )
    storage_options: dict[str, Any] = execution_field(
        {}, description="Passed to the file system, e.g. `{endpoint_url: ...}`."
    )

    @pydantic.field_validator("columns", "optional_columns")
    @classmethod
    def _known_columns(cls, value: Any) -> Any:
        unknown = [name for name in value if name not in FINEWEB.names]
        if unknown:
            raise ValueError(f"{unknown} are not columns of FineWeb: {', '.join(FINEWEB.names)}")
        return value

    @pydantic.field_validator("extra_columns")
    @classmethod
    def _known_types(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if name == EXTRA_JSON.name:
                raise ValueError(f"{name} is the column that takes every key without a column")
            if name in FINEWEB.names:
                raise ValueError(
                    f"{name!r} is a column of every document already; leave it out, or take it from another key with "
                    f"`columns: {{{name}: ...}}`"
                )
            if name in DOCUMENTS.names:
                raise ValueError(
                    f"{name!r} is a column that the record writes itself; rename the key in the files"
                )
        unknown = [kind for kind in value.values() if kind not in ARROW_TYPES]
        if unknown:
            raise ValueError(f"types {unknown} are not among {', '.join(ARROW_TYPES)}")
        return value


@functools.cache
def _tell_once(warning: str) -> None:
    """In a process, however often the source is made anew."""
    logger.warning(warning)


class LocalSource(Source):
    """The files as crawls and shards.

    Raises:
        InputError: there is nothing at ``root``, or it may not be read.
        StorageError: a remote storage does not answer.
    """

    name = "local"
    Config = LocalConfig

    def __init__(self, config: LocalConfig) -> None:
        self.config = config
        self._fs, path = file_system_of(config.root, config.storage_options, setting="source.options.root")
        self._is_local = isinstance(self._fs, LocalFileSystem)
        self._root = path.rstrip("/") or "/"
        self._columns = Columns(
            renamed=config.columns,
            optional=config.optional_columns,
            declared=[pa.field(name, ARROW_TYPES[kind]) for name, kind in config.extra_columns.items()],
        )
        self._formats = _by_suffix(
            FORMATS.make_each(FORMATS.names(), config.format_options, "source.options.format_options")
        )
        self._suffixes = tuple(self._formats)
        self._unlisted: list[OSError] = []

    def crawls(self) -> list[str]:
        return sorted(self._listing)

    def about_missing(self, crawl: str) -> str:
        if crawl == posixpath.basename(self._root) and (stray := self._stray(self._readable)):
            return f"{stray[0]} lies beside the folders of crawls and belongs to none; {_INTO_A_FOLDER}"
        folder = f"{self._root}/{crawl}"
        if self.config.crawl is not None or not self._fs.isdir(folder):
            return ""
        return f"folder {folder} is there, but holds no file of a known kind (*{', *'.join(self._suffixes)})"

    def check(self, crawl: str) -> None:
        """Read the crawl's first row, where it lies on this machine."""
        for path in self._paths(crawl).values() if self._is_local else ():
            form, file = self._format_of(path), self._file(path)
            extras = form.extra_fields(file, self._columns)
            rows = form.read(file, self._columns, crawl=crawl, extras=extras, batch_rows=1)
            with contextlib.closing(rows):
                if next(rows, None) is not None:
                    return

    def known_fields(self, crawl: str) -> list[pa.Field] | None:
        return self.extra_fields(crawl) if self._is_local else None

    def shards(self, crawl: str) -> list[Shard]:
        paths = self._paths(crawl)
        return [Shard(name, path, self._digest(path), self._fs.size(path)) for name, path in paths.items()]

    def states(self, crawl: str) -> list[tuple[str, str]]:
        self._require(crawl)
        found = []
        for relative, path in self._listing[crawl]:
            with self._reached(path):
                found.append((shown_name(relative, self._suffixes), _shown(self._state(path))))
        return found

    @functools.cache  # noqa: B019 - one source lives as long as a stage; a footer is read once
    def extra_fields(self, crawl: str) -> list[pa.Field]:
        found = self._paths(crawl).values()
        return merge_extras(
            [(path, self._format_of(path).extra_fields(self._file(path), self._columns)) for path in found]
        )

    def num_rows(self, crawl: str) -> int | None:
        total = 0
        for path in self._paths(crawl).values():
            number = self._format_of(path).num_rows(self._file(path))
            if number is None:
                return None
            total += number
        return total

    def read(self, crawl: str, shard: Shard, *, batch_rows: int) -> Iterator[SourceBatch]:
        path = shard.location
        yield from self._format_of(path).read(
            self._file(path),
            self._columns,
            crawl=crawl,
            extras=self.extra_fields(crawl),
            batch_rows=batch_rows,
        )

    def result_config(self) -> dict[str, Any]:
        settings = self.config
        return {
            "columns": settings.columns,
            "optional_columns": list(settings.optional_columns),
            "extra_columns": settings.extra_columns,
            **({"format_options": settings.format_options} if settings.format_options else {}),
        }

    @functools.cache  # noqa: B019 - one source lives as long as a stage; what was listed stands
    def _paths(self, crawl: str) -> dict[str, str]:
        """Shard name -> path, sorted. What is wrong with one crawl's files is told where it is read: others stand."""
        self._require(crawl)
        for _, path in self._listing[crawl] if self._is_local else ():
            with self._reached(path):
                _check_regular(path)
        return by_shard_name(self._listing[crawl], self._suffixes)

    def _require(self, crawl: str) -> None:
        if crawl not in self._listing:
            raise InputError(
                f"no such crawl; there are: {', '.join(self.crawls())}", file=self.config.root, value=crawl
            )
        if crawl in self._closed:
            error = self._closed[crawl]
            raise InputError(
                f"the folder cannot be listed: {error.strerror}",
                folder=error.filename,
                value=crawl,
                remedy="make it readable to who runs this, or move it out of `source.options.root`",
            )

    @functools.cached_property
    def _listing(self) -> dict[str, list[tuple[str, str]]]:
        """Crawl -> path inside it, and whole, sorted; listed once."""
        found, stray = self._readable, self._stray(self._readable)
        if stray:
            _tell_once(
                f"{len(stray)} files beside the folders of crawls belong to none and are left out, e.g. {stray[0]}; "
                f"{_INTO_A_FOLDER}"
            )
        crawls: dict[str, list[tuple[str, str]]] = {}
        for path in sorted({*found} - {*stray}):
            crawl, relative = self._place(path)
            crawls.setdefault(crawl, []).append((relative, path))
        return crawls | {crawl: crawls.get(crawl, []) for crawl in self._closed}

    @functools.cached_property
    def _closed(self) -> dict[str, OSError]:
        """Crawl -> why a folder of it cannot be listed; nobody knows what it lacks."""
        _ = self._readable  # the walk that meets them
        return {self._place(f"{error.filename}/file")[0]: error for error in self._unlisted}

    @functools.cached_property
    def _readable(self) -> list[str]:
        """Every file of a known kind under the root; listed once."""
        shown = [path for path in self._find() if not self._is_hidden(path)]
        found = [path for path in shown if path.lower().endswith(self._suffixes)]
        others = sorted({*shown} - {*found})
        for path in [path for path in others if self._is_local and not os.path.exists(path)]:
            _tell_once(
                f"{path} is a link to what is not there, and is left out: mount or restore that, or remove the link"
            )
            others.remove(path)
        if others:
            lost = sorted({*self._folders(others)} - {*self._folders(found)})
            none = f"; not a crawl, as nothing else is in it: {', '.join(lost)}" if lost else ""
            _tell_once(f"{len(others)} files of other kinds are left out, e.g. {others[0]}{none}")
        if not found and not self._unlisted:
            is_folder = self._fs.isdir(self._root)
            raise InputError(
                "no file to read",
                file=None if is_folder else self.config.root,
                folder=self.config.root if is_folder else None,
                remedy="point `source.options.root` at a file or folder with files named "
                f"*{', *'.join(self._suffixes)}",
            )
        return found

    def _stray(self, found: list[str]) -> list[str]:
        """Files directly under a root that has crawls in folders; without such folders they are one crawl."""
        if self.config.crawl is not None:
            return []
        inside = [path for path in found if path.startswith(self._root + "/")]
        beside = [path for path in inside if "/" not in path[len(self._root) + 1 :]]
        return sorted(beside) if len(beside) < len(inside) else []

    def _folders(self, paths: list[str]) -> Iterator[str]:
        """The folders directly under the root that hold these, each of which would be a crawl."""
        for path in paths if self.config.crawl is None else ():
            if path.startswith(self._root + "/") and "/" in (inside := path[len(self._root) + 1 :]):
                yield inside.partition("/")[0]

    def _find(self) -> list[str]:
        with self._reached(self.config.root):
            # Listings are kept for the life of the process, by the file system, unless it is told.
            self._fs.invalidate_cache()
            return self._paths_found()

    def _paths_found(self) -> list[str]:
        if any(sign in self._root for sign in "*?[") and not self._fs.exists(self._root):
            # A pattern passes by many folders in which none of its files can be.
            omitted = {"on_error": "omit"} if self._is_local else {}
            return [str(path) for path in self._fs.glob(self._root, **omitted)]
        try:
            # Asked for what it is, not whether it exists: object stores answer "no" to whom they do not know.
            kind = self._fs.info(self._root)["type"]
        except FileNotFoundError as error:
            raise InputError(
                "no such file or directory", file=self.config.root, remedy="correct `source.options.root`"
            ) from error
        if kind == "file":
            return [self._root]
        if self._is_local:
            return list(_files_under(self._root, self._not_listed))
        return [str(path) for path in self._fs.find(self._root)]

    def _not_listed(self, error: OSError) -> None:
        """Keep what the walk would pass over in silence, but for what is gone by now or no data by custom."""
        if error.filename == self._root:
            raise error
        is_lost_and_found = posixpath.basename(error.filename) == LOST_AND_FOUND
        if not (isinstance(error, FileNotFoundError) or is_lost_and_found or self._is_hidden(error.filename)):
            self._unlisted.append(error)

    def _is_hidden(self, path: str) -> bool:
        """Whether the file, or a folder below the root that holds it, begins with a dot: no data, by custom."""
        inside = (
            path.removeprefix(self._root) if path.startswith(self._root + "/") else posixpath.basename(path)
        )
        return any(part.startswith(".") for part in inside.split("/"))

    def _place(self, path: str) -> tuple[str, str]:
        """The crawl a file belongs to, and its path inside that crawl."""
        is_tree = path.startswith(self._root + "/")
        relative = path[len(self._root) + 1 :] if is_tree else posixpath.basename(path)
        if self.config.crawl is not None:
            return self.config.crawl, relative
        if is_tree:
            folder, _, rest = relative.partition("/")
            if rest:
                return folder, rest
        # A lone file, a pattern's match or a root without folders: its own folder names the crawl.
        return posixpath.basename(posixpath.dirname(path)) or "crawl", relative

    @contextlib.contextmanager
    def _reached(self, path: str) -> Iterator[None]:
        """Say clearly what a file system refuses; object stores raise errors of their own libraries."""
        try:
            yield
        except DataMaskError:
            raise
        except Exception as error:
            if self._is_local and not isinstance(error, OSError):
                raise
            # Of a remote storage these two are answers; what else it raises may be otherwise at the next try.
            if not self._is_local and not isinstance(error, FileNotFoundError | PermissionError):
                raise unreached(path, error) from error
            raise InputError(
                f"the storage refuses: {type(error).__name__}: {error}",
                file=path,
                remedy="check that it exists, the credentials and `storage_options`",
            ) from error

    @contextlib.contextmanager
    def _open(self, path: str) -> Iterator[Any]:
        with self._reached(path):
            self._refuse_changed(path)
            stream = self._fs.open(path, "rb")
        with stream:
            try:
                yield stream
            except Exception as error:
                # Whoever decodes the bytes takes what the storage raises for damage of the file.
                own = next((each for each in _beneath(error) if is_raised_by(self._fs, each)), None)
                if own is None:
                    raise
                raise StorageError(
                    f"the storage failed while {path} was read: {first_line(own)}; run again, which goes on after the last "
                    "whole file; if it stays so, check the network, the credentials and `storage_options`"
                ) from error
        with self._reached(path):
            self._refuse_changed(path)  # what was read is not what the shard's digest says

    def _refuse_changed(self, path: str) -> None:
        """Refuse a file that is another than it was when it was first seen."""
        listed = self._state(path)
        self._fs.invalidate_cache(path)
        if (now := _state_of(self._fs.info(path))) != listed:
            raise InputError(
                f"the file changed since it was listed, then {_shown(listed)}",
                file=path,
                value=_shown(now),
                remedy="run again when nobody writes to the crawl",
            )

    @functools.cache  # noqa: B019 - one source lives as long as a stage; what was listed stands
    def _state(self, path: str) -> dict[str, Any]:
        """What tells a changed file, as first seen."""
        return _state_of(self._fs.info(path))

    def _file(self, path: str) -> ShardFile:
        opened = functools.partial(self._open, path)
        return ShardFile(location=path, open=opened, local_path=path if self._is_local else None)

    def _format_of(self, path: str) -> FileFormat:
        return self._formats[max(filter(path.lower().endswith, self._suffixes), key=len)]

    @functools.cache  # noqa: B019 - one source lives as long as a stage; a file is hashed once
    def _digest(self, path: str) -> str:
        with self._reached(path):
            if "ETag" in (state := self._state(path)):
                return f"etag:{state['ETag']}"
        with self._open(path) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()


def _by_suffix(formats: Iterable[FileFormat]) -> dict[str, FileFormat]:
    found: dict[str, FileFormat] = {}
    for one in formats:
        for suffix in one.suffixes:
            if suffix in found:
                raise ConfigurationError(
                    f"file formats {found[suffix].name!r} and {one.name!r} both read files named *{suffix}"
                )
            found[suffix] = one
    return found


def _state_of(info: Mapping[str, Any]) -> dict[str, Any]:
    """An object store's identity of the bytes, else what a file system knows of the file."""
    names = ("ETag",) if info.get("ETag") else ("size", "mtime", "ino")
    return {name: info[name] for name in names if info.get(name) is not None}


def _beneath(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those that it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _shown(state: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in state.items())


def _check_regular(path: str) -> None:
    """Refuse what has no end, such as a named pipe or a device, and a link that leads nowhere; no file is opened."""
    try:
        is_regular = stat.S_ISREG(os.stat(path).st_mode)
        problem = "not a regular file, nor a link to one"
    except FileNotFoundError:
        is_regular, problem = False, "a link to a file that is not there"
    if not is_regular:
        raise InputError(problem, file=path, remedy="remove it, or put a regular file in its place")


def _files_under(folder: str, not_listed: Callable[[OSError], None]) -> Iterator[str]:
    """Every file below a local folder; links to folders are followed, each folder once."""
    seen = set()
    for place, folders, files in os.walk(folder, onerror=not_listed, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders.sort()
        yield from (posixpath.join(place, name) for name in sorted(files))


SOURCE = LocalSource
