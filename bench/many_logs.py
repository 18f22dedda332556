"""How soon do many logs go on that all lose the same node?

./run python -m bench.many_logs                 three rounds each
./run python -m bench.many_logs --quick         sixteen logs, once: whether it works

Four storage nodes and one repository as processes, 64 logs under `leader` with three replicas each, so that every node
is a member of about 48 and leads about 16 of them. One is killed (SIGKILL), or stands still (SIGSTOP). What is printed
is the time from when the loss is noticed, as in bench.takeover, to the first append in each log's next segment: of all
logs that it was a member of, and of those that it led, which alone take no appends meanwhile.
"""

import argparse
import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from signal import Signals

import varlog
from bench.cluster import RunningCluster, running_cluster
from bench.figures import milliseconds
from bench.load import Load, check
from bench.losses import LOSSES, first_elsewhere, lost
from varlog.runtime.loop import run

LOGS, QUICK_LOGS = 64, 16
ROUNDS = 3
LED_EVERY_S, OTHERS_EVERY_S = 0.01, 0.05
"""How often an append begins in a log that the node led, and in another one, which takes them meanwhile: few enough
that they are not what is measured."""
FILE_BYTES = 4 << 20
"""Each replica reserves a file of this size, and nothing is given back before the bench ends."""
AHEAD_S = 0.1
TIMEOUT_S = 60.0


async def takeovers(cluster: RunningCluster, logs: int, how: Signals) -> tuple[list[float], list[float]]:
    """Seconds from when the loss is noticed: of the logs that the node led, and of the others that it was in."""
    async with varlog.connect(cluster.url, timeout=TIMEOUT_S) as connected:
        victim = cluster.process("node")
        hurt: list[tuple[varlog.Log, varlog.StreamDescription]] = []
        for number in range(logs):
            log = await connected.create_log(f"one-of-many-{number}", ordering="leader", replicas=3)
            await log.append(b"before")
            (stream,) = (await log.info()).chain[-1].streams
            if victim.number in stream.members:
                hurt.append((log, stream))
        led = [stream.members[0] == victim.number for _, stream in hurt]
        async with lost(victim, how, connected) as noticed:
            await asyncio.sleep(noticed - AHEAD_S - time.perf_counter())
            found = await asyncio.gather(
                *(
                    first_elsewhere(log, stream.id, LED_EVERY_S if leads else OTHERS_EVERY_S)
                    for (log, stream), leads in zip(hurt, led, strict=True)
                )
            )
        for (log, _), (_, placed) in zip(hurt, found, strict=True):
            await check(log, Load([], 0), [(1, b"before"), *placed])
    took = [(at - noticed, leads) for (at, _), leads in zip(found, led, strict=True)]
    return [seconds for seconds, leads in took if leads], [seconds for seconds, leads in took if not leads]


def measure(folder: Path, logs: int, rounds: int) -> Iterator[str]:
    """Each round is a cluster of its own."""
    for how, word in LOSSES.items():
        for number in range(rounds):
            with running_cluster(folder, nodes=4, file_bytes=FILE_BYTES) as cluster:
                led, others = run(takeovers(cluster, logs, how))
            yield (
                f"{logs} logs, a node {word}, round {number + 1}: all it was in {milliseconds(led + others)}; "
                f"those it led {milliseconds(led)}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(prog="./run python -m bench.many_logs", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"one round each, {QUICK_LOGS} logs")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="on which disk (default: this folder)")
    options = parser.parse_args()
    logs, rounds = (QUICK_LOGS, 1) if options.quick else (LOGS, ROUNDS)
    for line in measure(options.folder, logs, rounds):
        print(line, flush=True)


if __name__ == "__main__":
    main()
