"""Finds which files of a folder hold one split of a task's question set. Reads names alone, no row.

A folder may hold training, validation and test rows side by side, in files or folders that their split names. Two sets
that could both be meant are refused, never merged: `question_files` says which.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from datamask_pipeline.errors import InputError
from datamask_pipeline.evaluation.benchmarks import Benchmark
from datamask_pipeline.evaluation.reading import SUFFIXES

#: Other names that publishers give to a split.
_ALSO = {"train": ("training",), "validation": ("valid", "val", "dev"), "test": ()}
_KNOWN = {"train", "training", "validation", "valid", "val", "dev", "test"}
_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})")


@dataclass(frozen=True)
class Split:
    """The files of one split.

    Attributes:
        name: As the task calls it; None: neither the files nor their folders state one.
        files: Those that hold it, by name.
        others: Question files beside them, which are not read.
        root: What their names in the record are relative to.
        source: What the root is called in the record.
    """

    name: str | None
    files: tuple[Path, ...]
    others: tuple[Path, ...] = ()
    root: Path = Path()
    source: str = ""

    def name_of(self, file: Path) -> str:
        """The file's name in the record."""
        return file.relative_to(self.root).as_posix()


def asked_split(folder: Path, benchmark: Benchmark, pattern: str | None) -> Split:
    """The split that the task asks: lm-eval's own choice, or the files that a glob names.

    Args:
        folder: The root of the question sets.
        benchmark: The task.
        pattern: A glob below the folder; by default the task's files are found by their names.

    Raises:
        InputError: No file, no such split, two sets in one folder, or a shard is missing.
    """
    if pattern is not None:
        return _named(folder, benchmark, pattern, "question_files")
    place, files = _place(folder, benchmark)
    if (found := _choose(folder, place, files, benchmark, benchmark.split)) is not None:
        return found
    stated = [file for file in files if _states(place, file, _KNOWN)]
    if not stated and len(files) == 1:
        return Split(None, tuple(files))
    if stated and len(stated) < len(files):
        reason = f"asks the split {benchmark.split!r}, and which file holds it is not clear"
    elif stated:
        reason = f"asks the split {benchmark.split!r}, which is not there"
        raise refusal(
            benchmark,
            folder,
            files,
            reason,
            f"add the files of that split, {benchmark.split}.jsonl beside them",
        )
    else:
        reason = "finds several files in one folder, none of which states its split"
    raise refusal(benchmark, folder, files, reason)


def examples_split(folder: Path, benchmark: Benchmark, pattern: str | None, asked: Split) -> Split | None:
    """The split of the solved examples, as lm-eval takes it; None: the set has no rows but those to be asked.

    Args:
        folder: The root of the question sets.
        benchmark: The task.
        pattern: A glob below the folder.
        asked: What is asked, of which nothing is taken.

    Raises:
        InputError: The folder is sorted by split and this one is missing, or as `asked_split`.
    """
    if pattern is not None:
        return _named(folder, benchmark, pattern, "demonstration_files")
    wanted = benchmark.examples_split
    if wanted is None or wanted == benchmark.split:
        return None
    if places := _places(folder, benchmark):
        place, files = places[0]
        left = [file for file in files if file not in asked.files]
        if (found := _choose(folder, place, left, benchmark, wanted)) is not None:
            return found
    if asked.name is None:
        return None
    raise InputError(
        f"task {benchmark.task!r} takes its solved examples from the split {wanted!r}, which is not there",
        folder=str(folder),
        remedy="add it, name its files in demonstration_files, or set shots to 0",
    )


def _named(folder: Path, benchmark: Benchmark, pattern: str, setting: str) -> Split:
    found = _files(folder.glob(pattern))
    if not found:
        raise InputError(
            f"no file for task {benchmark.task!r} matches {setting}",
            folder=str(folder),
            field=pattern,
            remedy=f"correct the glob; known endings: {', '.join(SUFFIXES)}",
        )
    check_shards(found)
    stated = [names for file in found if (names := _splits_stated(folder, file))]
    common = set.intersection(*stated) if stated else set()
    if stated and not common:
        raise refusal(benchmark, folder, found, f"would take several splits at once by {setting} {pattern!r}")
    if 0 < len(stated) < len(found):
        reason = f"would take files of a split beside files that state none by {setting} {pattern!r}"
        raise refusal(benchmark, folder, found, reason)
    return Split(common.pop() if len(common) == 1 else None, tuple(found))


def _places(folder: Path, benchmark: Benchmark) -> list[tuple[Path, list[Path]]]:
    """Where the task's files lie: files of its name, its folder, or that of its data set on the hub."""
    task, configuration = benchmark.task, benchmark.configuration
    found = [(folder, _files(folder.glob(f"{task}.*")))]
    own, hub = folder / task, None
    if benchmark.repository is not None:
        hub = folder / benchmark.repository.rpartition("/")[2]
    inside = own / configuration if configuration else own
    place = inside if inside.is_dir() else own
    found.append((place, _files(place.rglob("*"))))
    if hub is not None and hub != own:
        place = hub / configuration if configuration else hub
        found.append((place, _files(place.rglob("*"))))
    return [(place, files) for place, files in found if files]


def _place(folder: Path, benchmark: Benchmark) -> tuple[Path, list[Path]]:
    places = _places(folder, benchmark)
    if not places:
        raise InputError(
            f"no question file for task {benchmark.task!r}",
            folder=str(folder),
            field=f"{benchmark.task}.* or {benchmark.task}/",
            remedy="name a glob in question_files, or leave the task out; known endings: "
            + ", ".join(SUFFIXES),
        )
    if len(places) > 1:
        files = [file for _, of in places for file in of]
        raise refusal(benchmark, folder, files, "finds question sets in several places")
    return places[0]


def _choose(
    folder: Path, place: Path, files: Sequence[Path], benchmark: Benchmark, split: str
) -> Split | None:
    """The one set that is called so: by its whole name if any is, else by a word of it; None: there is none."""
    for names in ((split,), _ALSO.get(split, ())):
        whole = [file for file in files if _is_called(place, file, names)]
        chosen = whole or [file for file in files if _states(place, file, names)]
        if not chosen:
            continue
        beside = [file for file in files if file not in chosen]
        if not whole and any(not _states(place, file, _KNOWN) for file in beside):
            return None  # another file, which states no split, may as well be meant
        sets = {_set_of(place, file, names) for file in chosen}
        if len(sets) > 1 and not benchmark.make_layout().many_files:
            raise refusal(
                benchmark, folder, chosen, f"finds {len(sets)} question sets of the split {split!r}"
            )
        check_shards(chosen)
        return Split(split, tuple(chosen), tuple(beside))
    return None


def _is_called(place: Path, file: Path, names: Iterable[str]) -> bool:
    """Whether the file, or a folder it lies in, bears exactly that name; a shard bears its set's."""
    return any(part in names for part in _parts(place, file))


def _states(place: Path, file: Path, names: Iterable[str]) -> bool:
    """Whether that name is one of the words of the file's name, or of a folder's it lies in."""
    return any(word in names for part in _parts(place, file) for word in re.split(r"[^a-z0-9]+", part))


def _splits_stated(place: Path, file: Path) -> set[str]:
    return {split for split, also in _ALSO.items() if _states(place, file, (split, *also))}


def _parts(place: Path, file: Path) -> list[str]:
    folders = file.relative_to(place).parts[:-1]
    shard = _SHARD.fullmatch(file.stem)
    return [part.lower() for part in (*folders, shard["stem"] if shard else file.stem)]


def _set_of(place: Path, file: Path, names: Iterable[str]) -> Path:
    """What holds the whole set: a folder called as the split, the name before the numbers of shards, or the file."""
    folders = file.relative_to(place).parts[:-1]
    for number, part in enumerate(folders):
        if part.lower() in names:
            return place.joinpath(*folders[: number + 1])
    return set_of_shards(file)


def set_of_shards(file: Path) -> Path:
    """The file's name without its number where it is a shard of several, else the file."""
    shard = _SHARD.fullmatch(file.stem)
    return file.with_name(f"{shard['stem']}-of-{shard['count']}{file.suffix}") if shard else file


def check_shards(files: Sequence[Path]) -> None:
    """Refuse a set of which a shard is missing.

    Raises:
        InputError: One is.
    """
    for file in files:
        if (shard := _SHARD.fullmatch(file.stem)) is None:
            continue
        for number in range(int(shard["count"])):
            sibling = file.with_name(f"{shard['stem']}-{number:05d}-of-{shard['count']}{file.suffix}")
            if not sibling.is_file():
                raise InputError("a shard of the split is missing", file=str(sibling), remedy="copy it too")


def _files(paths: Iterable[Path]) -> list[Path]:
    return sorted(path for path in paths if path.suffix in SUFFIXES and path.is_file())


def refusal(
    benchmark: Benchmark, folder: Path, files: Sequence[Path], reason: str, remedy: str | None = None
) -> InputError:
    """What to say where it is not clear which files are meant, or none is; the remedy is to name them, or the one given."""
    names = [file.relative_to(folder).as_posix() for file in files]
    listed = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    return InputError(
        f"task {benchmark.task!r} {reason}: {listed}",
        folder=str(folder),
        remedy=remedy or f"name the files to ask in question_files, e.g. {{{benchmark.task}: {names[0]}}}",
    )
