"""Files written in a thread while training goes on, one at a time."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class Writer:
    """Writes what it is given in a thread of its own. What goes wrong there is raised by the next call."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "writer")
        self._writing: Future[object] | None = None

    @property
    def busy(self) -> bool:
        """Whether a file is being written."""
        if self._writing is not None and self._writing.done():
            self.wait()
        return self._writing is not None

    def start(self, write: Callable[[], object]) -> None:
        """Begin to write a file, once the one before it is whole."""
        self.wait()
        self._writing = self._thread.submit(write)

    def wait(self) -> None:
        """Return once no file is being written."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def close(self) -> None:
        """Let the file become whole, and end the thread. Nothing is raised: this may be on the way out."""
        self._thread.shutdown()
