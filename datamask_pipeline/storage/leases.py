"""Leases: who is at work on what, told in the store itself, so that machines which share nothing else see it.

A lease is a small file that only one writer can create. Its holder writes it anew every `BEAT_SECONDS`. Who waits takes
it over by creating the one of the next number: when it is free, at once when its holder was a process of this machine that
has ended, or when it has not changed for `STILL_SECONDS` by the waiter's own clock (no two clocks are compared) and its
holder is no process of this machine that lives: a loaded machine may stall the signs of life, and a process may be stopped.
The highest number counts; a holder that finds a higher one has lost its lease. Knows no stage.
"""

import contextlib
import errno
import json
import logging
import os
import re
import shutil
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from datamask_pipeline.errors import TakenOverError
from datamask_pipeline.lineage import sha256_text

logger = logging.getLogger(__name__)

#: Seconds between two signs of life of a holder.
BEAT_SECONDS: Final = 10.0
#: Seconds without one after which others take a lease over.
STILL_SECONDS: Final = 60.0
#: Seconds between two looks of somebody who waits.
LOOK_SECONDS: Final = 0.2

#: How a store says that it does not know conditions.
NOT_KNOWN: Final = (errno.ENOSYS, errno.EINVAL)

_NUMBERED: Final = re.compile(r"\d{10}\.json")
#: A lease, or the private name under which one is written.
_OF_A_LEASE: Final = re.compile(r"\d{10}\.json(\.[0-9a-f]{32})?")


class Leases:
    """The leases of one store.

    Args:
        fs: Its file system.
        folder: Where they lie on it.
        is_local: Whether that is a folder of this machine, or one that is mounted.

    Attributes:
        waited: Seconds for which others were waited for.
    """

    def __init__(self, fs: Any, folder: str, *, is_local: bool) -> None:
        self._fs, self.folder, self._is_local = fs, folder, is_local
        self._is_exclusive: bool | None = True if is_local else None
        self.waited = 0.0

    @contextlib.contextmanager
    def hold(self, name: str, *, wait: bool = True, tell: bool = True) -> Iterator["Lease | None"]:
        """Inside it, nobody else holds the lease of that name.

        Args:
            name: What it is for; may hold ``/``.
            wait: Wait while somebody else holds it.
            tell: Say in the log that it waits.

        Yields:
            The lease, or ``None`` where somebody else holds it and ``wait`` is false.
        """
        lease = self._take(f"{self.folder}/{name}", name, wait, tell)
        if lease is None:
            yield None
            return
        with lease.beating():
            yield lease

    def _take(self, folder: str, name: str, wait: bool, tell: bool) -> "Lease | None":
        seen: tuple[int, bytes] | None = None
        changed = time.monotonic()
        while True:
            number, content = self.newest(folder)
            if (number, content) != seen:
                seen, changed = (number, content), time.monotonic()
            is_still = time.monotonic() - changed > STILL_SECONDS
            if number == 0 or _is_free(content) or (is_still and not _is_surely_alive(content)):
                lease = Lease(self, folder, number + 1)
                if lease.create():
                    return lease
                continue
            if not wait:
                return None
            if tell:
                logger.warning("another run is at work on %s; waiting for it", name)
                tell = False
            asleep = time.monotonic()
            time.sleep(LOOK_SECONDS if self._is_local else 5 * LOOK_SECONDS)
            self.waited += time.monotonic() - asleep

    def newest(self, folder: str) -> tuple[int, bytes]:
        """Number and content of the lease that counts; 0 where there is none yet."""
        while True:
            numbers = self.numbers(folder)
            if not numbers:
                return 0, b""
            with contextlib.suppress(FileNotFoundError):  # the next holder has cleared it away
                return numbers[-1], self._fs.cat_file(f"{folder}/{numbers[-1]:010}.json", max_concurrency=1)

    def numbers(self, folder: str) -> list[int]:
        """Numbers of the leases in a folder, sorted."""
        try:
            paths = self._fs.ls(folder, detail=False)
        except FileNotFoundError:
            return []
        names = (path.rpartition("/")[2] for path in paths)
        return sorted(int(name[:-5]) for name in names if _NUMBERED.fullmatch(name))

    def create(self, path: str, data: bytes) -> bool:
        """Write a file that is not there yet; says whether it was this call that did."""
        if self._is_exclusive is None:
            self._is_exclusive = self._try_conditional_writes()
        try:
            if self._is_local:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                _link_new(path, data)
            elif self._is_exclusive:
                return self._create_conditionally(path, data)
            else:
                self._fs.pipe_file(path, data)
        except (
            FileExistsError,
            FileNotFoundError,
        ):  # another was faster; or the folder is being cleared away
            return False
        return True

    def overwrite(self, path: str, data: bytes) -> None:
        """Write a file anew, at once."""
        if self._is_local:
            private = Path(f"{path}.{uuid.uuid4().hex}")
            private.write_bytes(data)
            private.replace(path)
        else:
            self._fs.pipe_file(path, data)

    def are_held(self, name: str) -> bool:
        """Whether anybody holds one of the leases below a name."""
        return any(map(self.is_held, self.below(name)))

    def below(self, name: str) -> list[str]:
        """The names right below one, of leases that somebody holds or held."""
        try:
            folders = self._fs.ls(f"{self.folder}/{name}", detail=False)
        except FileNotFoundError:
            return []
        return sorted(f"{name}/{folder.rstrip('/').rpartition('/')[2]}" for folder in folders)

    def is_held(self, name: str) -> bool:
        """Whether anybody holds the lease of that name; nobody is waited for."""
        number, content = self.newest(f"{self.folder}/{name}")
        return number > 0 and not _is_free(content)

    def forget(self, name: str) -> None:
        """Remove all leases below a name, for work that is over; somebody who still looks at one may leave it behind."""
        folder = f"{self.folder}/{name}"
        if self._is_local:
            shutil.rmtree(folder, ignore_errors=True)
        elif self._fs.exists(folder):
            self._fs.rm(folder, recursive=True)

    def clear(self, folder: str, kept: str) -> None:
        """Remove what earlier holders left in a folder."""
        try:
            paths = self._fs.ls(folder, detail=False)
        except FileNotFoundError:  # cleared away, as the work is over
            return
        for path in paths:
            name = path.rpartition("/")[2]
            if _OF_A_LEASE.fullmatch(name) and name[:10] <= kept.rpartition("/")[2][:10] and name not in kept:
                self.remove(path)

    def remove(self, path: str) -> None:
        """Remove a file; one that is gone already stays gone."""
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(path)

    def _create_conditionally(self, path: str, data: bytes) -> bool:
        """Create a file on the condition that there is none; false where there is another than this one.

        A request whose answer was lost is sent again by the library, and refused for what the first one wrote: what stands
        there decides, so no two calls may give the same bytes.
        """
        try:
            self._fs.pipe_file(path, data, mode="create")
        except OSError as refusal:
            # Stores differ in how they refuse, and in what they say of two requests at once.
            try:
                return bool(self._fs.cat_file(path) == data)
            except FileNotFoundError:
                raise refusal from None
        return True

    def _try_conditional_writes(self) -> bool:
        """Whether this store refuses to create a file a second time; says so where it does not.

        Raises:
            OSError: the store does not answer, or refuses every write.
        """
        probe = f"{self.folder}/probe-{uuid.uuid4().hex}"
        try:
            if self._create_conditionally(probe, b"1") and not self._create_conditionally(probe, b"2"):
                return True
        except (TypeError, NotImplementedError):
            pass
        except OSError as error:
            if error.errno not in NOT_KNOWN:
                raise
        finally:
            self.remove(probe)
        logger.warning(
            "the storage at %s cannot create a file only where there is none: two machines that begin the same work in "
            "the same moment would both do it (with the same result)",
            self.folder,
        )
        return False


class Lease:
    """One lease: of one name, with its number.

    Args:
        leases: The leases of its store.
        folder: The folder of its name.
        number: Its number.
    """

    def __init__(self, leases: Leases, folder: str, number: int) -> None:
        self._leases, self._folder, self._number = leases, folder, number
        self._path = f"{folder}/{number:010}.json"
        self._beats = 0
        self._id = uuid.uuid4().hex
        pid = os.getpid()
        self._holder = {
            "machine": this_machine(),
            "host": socket.gethostname(),
            "pid": pid,
            "started": _state(pid)[1],
        }

    def create(self) -> bool:
        """Take the lease; false where somebody else was faster."""
        if not self._leases.create(self._path, self._content()):
            return False
        if not self.is_held():
            self._leases.remove(self._path)
            return False
        self._leases.clear(self._folder, self._path)
        return True

    def is_held(self) -> bool:
        """Whether nobody has taken it over."""
        return self._leases.numbers(self._folder)[-1:] <= [self._number]

    def check(self) -> None:
        """Refuse to go on after somebody has taken the lease over.

        Raises:
            TakenOverError: somebody has.
        """
        if not self.is_held():
            raise self.taken_over()

    def is_surely_lost(self) -> bool:
        """Whether somebody has taken it over, as far as the storage tells; false where it does not answer."""
        with contextlib.suppress(Exception):
            return not self.is_held()
        return False

    def taken_over(self) -> TakenOverError:
        """What is told after somebody has taken it over."""
        return TakenOverError(
            f"another run took over the work of this one, which gave no sign of life for {STILL_SECONDS:.0f} s "
            f"({self._folder}); run again to see how that one ended"
        )

    @contextlib.contextmanager
    def beating(self) -> Iterator[None]:
        """Inside it, signs of life are given; afterwards the lease is free."""
        ended = threading.Event()
        thread = threading.Thread(target=self._beat, args=(ended,), daemon=True, name="lease")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            if (error := self._give_back()) is not None:
                logger.warning("the lease %s could not be given back: %s", self._path, error)
                threading.Thread(target=self._give_back_later, daemon=True, name="lease").start()

    def _give_back(self) -> Exception | None:
        """Make the lease free, if it is still there; returns what kept it from that."""
        try:
            if self.is_held():
                self._leases.overwrite(self._path, self._content(free=True))
        except Exception as error:
            return None if self._was_removed(error) else error
        return None

    def _give_back_later(self) -> None:
        """Try until it is free: the work is done, and others of this machine wait as long as this process lives."""
        time.sleep(BEAT_SECONDS)
        while self._give_back() is not None:
            time.sleep(BEAT_SECONDS)

    def _was_removed(self, error: Exception) -> bool:
        """Whether there is nothing to give back: all leases were forgotten with the work they were for, or the next holder
        has cleared this one away.
        """
        return isinstance(error, FileNotFoundError) and self._number not in self._leases.numbers(self._folder)

    def _beat(self, ended: threading.Event) -> None:
        while not ended.wait(BEAT_SECONDS):
            try:
                if not self.is_held():
                    return
                self._beats += 1
                self._leases.overwrite(self._path, self._content())
            except Exception as error:  # a store that does not answer now may do so at the next beat
                logger.warning("no sign of life could be written to %s: %s", self._path, error)

    def _content(self, *, free: bool = False) -> bytes:
        content = {"free": free, "beats": self._beats, "id": self._id, "holder": self._holder}
        return json.dumps(content).encode()


def this_machine() -> str:
    """What tells this machine from others, and one container from another."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"{socket.gethostname()} {uuid.getnode()}"


def machine_label() -> str:
    """The host's name with what tells apart machines that share one: what names of private files begin with."""
    return f"{socket.gethostname()}-{sha256_text(this_machine())[:8]}"


def is_alive(pid: int, started: str | None = None) -> bool:
    """Whether a process of that number runs on this machine.

    Args:
        pid: The number.
        started: When it began, as `_state` tells it: another process may have the number now. Where the system does not
            tell, as of another user's processes, the number alone counts.
    """
    state, began = _state(pid)
    if state in ("Z", "X") or (started and began and began != started):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _state(pid: int) -> tuple[str, str]:
    """State of a process of this machine and when it began, in the system's own unit; empty where it does not tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "", ""
    fields = stat.rpartition(")")[2].split()
    return fields[0], fields[19]


def _link_new(path: str, data: bytes) -> None:
    """Create a file with its content in one step.

    Raises:
        FileExistsError: it is there already.
    """
    private = Path(f"{path}.{uuid.uuid4().hex}")
    private.write_bytes(data)
    try:
        os.link(private, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        with open(path, "xb") as stream:
            stream.write(data)
    finally:
        private.unlink(missing_ok=True)


def _is_free(content: bytes) -> bool:
    """Whether nobody holds a lease of that content; one that cannot be read is being written, and so is held."""
    try:
        lease = json.loads(content)
        holder = lease["holder"]
        if lease["free"] or holder["machine"] != this_machine():
            return bool(lease["free"])
        return not is_alive(int(holder["pid"]), holder["started"])
    except (ValueError, KeyError, TypeError):
        return False


def _is_surely_alive(content: bytes) -> bool:
    """Whether the holder in a lease's content is a process of this machine that lives: the same number, begun at the same
    time. Where the system does not tell when it began, nothing is sure.
    """
    try:
        holder = json.loads(content)["holder"]
        if holder["machine"] != this_machine() or not holder["started"]:
            return False
        state, began = _state(int(holder["pid"]))
        return began == holder["started"] and state not in ("Z", "X")
    except (ValueError, KeyError, TypeError):
        return False
