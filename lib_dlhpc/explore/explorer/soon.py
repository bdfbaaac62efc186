"""What takes longer than a frame waits until the controls rest."""

import asyncio
from collections.abc import Callable

REST = 0.2  # s without a move


class Soon:
    """Calls the newest of several functions once, `rest` seconds after the last; at once without a loop."""

    def __init__(self, rest: float) -> None:
        self.rest = rest
        self._waiting: asyncio.TimerHandle | None = None

    def __call__(self, act: Callable[[], None]) -> None:
        """Call `act` soon, in place of what was to be called."""
        self.cancel()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            act()
        else:
            self._waiting = loop.call_later(self.rest, act)

    def cancel(self) -> None:
        """Call nothing of what was to be called."""
        if self._waiting:
            self._waiting.cancel()
            self._waiting = None
