"""Items drawn by a thread of their own, a few ahead of who uses them. Knows nothing of what they are.

Arrow's reading, joining and writing leave Python's lock alone, so that what draws and what uses are done side by side.
"""

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

Item = TypeVar("Item")
#: Items that wait.
_WAITING: Final = 2
_END: Final = object()


def drawn_ahead(items: Iterable[Item]) -> Iterator[Item]:
    """The items in their order; an exception of theirs is raised here, after those before it.

    Who stops early ends the drawing, too: at most a few items more are drawn.
    """
    waiting: queue.Queue[object] = queue.Queue(_WAITING)
    stopped = threading.Event()

    def put(item: object) -> bool:
        while not stopped.is_set():
            try:
                waiting.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def draw() -> None:
        try:
            for item in items:
                if not put(item):
                    return
        except BaseException as error:  # raised where the items are used
            put(_Failed(error))
        else:
            put(_END)

    thread = threading.Thread(target=draw, daemon=True)
    thread.start()
    try:
        while (item := waiting.get()) is not _END:
            if isinstance(item, _Failed):
                raise item.error
            yield item  # type: ignore[misc]
    finally:
        stopped.set()
        thread.join()


class _Failed:
    def __init__(self, error: BaseException) -> None:
        self.error = error
