"""The cut loop beside changes of a log."""

import asyncio
from typing import cast

from tests.servers import run

from varlog.base.ids import LogId, StreamId
from varlog.core.ordering.cut import Cut
from varlog.ports import MetadataStore, Transaction
from varlog.repository.orderer import Orderer
from varlog.runtime.clock import RealClock
from varlog.wire.proto import varlog_pb2 as pb

LOG = pb.LogInfo(id=1, chain=[pb.SegmentInfo(epoch=1, base=1, streams=[pb.StreamInfo(id=1, members=[1])])])


class SlowStore:
    """Commits when it is told to."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()

    async def commit(self, transaction: Transaction) -> bool:
        self.asked.set()
        await self.go_on.wait()
        return True


def test_a_stream_ends_behind_the_cut_that_is_being_persisted() -> None:
    async def story() -> None:
        store = SlowStore()
        announced: list[Cut] = []
        orderer = Orderer(cast(MetadataStore, store), RealClock(), announced.extend)
        orderer.add(LOG)
        loop = asyncio.ensure_future(orderer.run())
        orderer.report(LogId(1), LOG.chain[0].streams[0].members[0], StreamId(1), 5, 0)  # type: ignore[arg-type]
        await store.asked.wait()
        ending = asyncio.ensure_future(orderer.finalize(LogId(1), StreamId(1)))
        await asyncio.sleep(0.01)
        assert not ending.done(), "five slots may be in the log, or not"
        store.go_on.set()
        assert await ending == 5
        orderer.report(LogId(1), LOG.chain[0].streams[0].members[0], StreamId(1), 9, 0)  # type: ignore[arg-type]
        await asyncio.sleep(0.01)
        assert [cut.high_watermark for cut in announced] == [5], "nothing behind the end"
        loop.cancel()

    run(story())
