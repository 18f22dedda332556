"""The real disk and a process that is killed: whatever it said was durable is there."""

import asyncio
import subprocess
import sys
from pathlib import Path
from random import Random

from tests.storage.harness import FOLDER, REPLICA, batch, bind, read_all

from varlog.base.ids import Glsn
from varlog.runtime.disk import RealDisk
from varlog.storage.replica_log import ReplicaLog

FILE_BYTES = 256 << 10
LIVES = 3
ROOT = Path(__file__).resolve().parents[2]


async def live(folder: str) -> None:
    """What the process does: append, say how far it is durable, trim now and then, for ever."""
    disk = RealDisk(folder)
    if await disk.exists(f"{FOLDER}/spec"):
        log = await ReplicaLog.open(disk, FOLDER, random=Random(1), file_bytes=FILE_BYTES)
    else:
        await disk.make_folder("replicas")
        log = await ReplicaLog.create(disk, FOLDER, REPLICA, b"", random=Random(1), file_bytes=FILE_BYTES)
    while True:
        log.stage_batches(log.appended, [batch(log.appended + at, size=2000) for at in range(5)])
        if log.durable > log.committed:
            bind(log, log.durable - log.committed)
        await log.sync()
        print(log.durable, log.bound, log.trimmed, flush=True)
        if log.durable % 250 == 0:
            log.stage_trim(Glsn(log.next_glsn - 100))
            await log.sync()
            await log.collect()


def test_a_killed_process_keeps_its_word(tmp_path: Path) -> None:
    script = f"import asyncio; from tests.storage.test_kill import live; asyncio.run(live({str(tmp_path)!r}))"
    before = 0
    for life in range(LIVES):
        process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(60 + 37 * life)]
        process.kill()
        lines += process.stdout.readlines()
        process.stdout.close()
        process.wait()
        durable, bound, trimmed = map(int, lines[-1].split())
        assert durable > before
        before = asyncio.run(check(tmp_path, durable, bound, trimmed))
    assert before > 500


async def check(folder: Path, durable: int, bound: int, trimmed: int) -> int:
    disk = RealDisk(folder)
    log = await ReplicaLog.open(disk, FOLDER, random=Random(1), file_bytes=FILE_BYTES)
    assert durable <= log.durable <= durable + 10
    assert bound <= log.bound <= log.durable
    assert trimmed <= log.trimmed <= log.bound
    assert await read_all(log, max_bytes=1 << 20) == [
        (slot, batch(slot, size=2000)[0]) for slot in range(log.trimmed, log.durable)
    ]
    await log.close()
    disk.close()
    return log.durable
