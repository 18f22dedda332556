"""Who waits for something to happen to a replica."""

import asyncio

FEW = 16
"""So many are never looked through."""


class Waiters:
    """Futures that are all done at once. Those that were given up meanwhile do not pile up, however long that takes."""

    def __init__(self) -> None:
        self._futures: list[asyncio.Future[None]] = []
        self._most = FEW

    def __len__(self) -> int:
        return len(self._futures)

    def add(self) -> "asyncio.Future[None]":
        """One more."""
        if len(self._futures) >= self._most:
            self._futures = [future for future in self._futures if not future.done()]
            self._most = max(FEW, 2 * len(self._futures))
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._futures.append(future)
        return future

    def wake(self) -> None:
        """It has happened."""
        futures, self._futures = self._futures, []
        for future in futures:
            if not future.done():
                future.set_result(None)
