"""A process that wants to lead and, while it does, writes as fast as it can. Its life is `test_etcd_faults`'s concern.

    leader_program.py ENDPOINTS PREFIX IDENTITY

Prints `leads TERM` when it leads and has written, `lost` when a write was refused because it no longer led, and then
wants to lead again. It writes `line/NUMBER` = `IDENTITY TERM`, the number growing over all leaders.
"""

import asyncio
import sys

from varlog.base.errors import NotLeader
from varlog.metadata.etcd import EtcdConfig, EtcdStore
from varlog.ports.metadata import Transaction


async def main() -> None:
    endpoints, prefix, identity = sys.argv[1:]
    store = await EtcdStore.open(EtcdConfig(tuple(endpoints.split(",")), prefix=prefix))
    while True:
        leadership = await store.elect("lines", identity)
        fenced = store.fenced(leadership)
        first = number = len(await fenced.scan("line/"))
        try:
            while True:
                value = f"{identity} {leadership.term}".encode()
                if not await fenced.commit(
                    Transaction(expect={f"line/{number:06}": 0}, put={f"line/{number:06}": value})
                ):
                    sys.exit("another wrote a line of ours")
                if number == first:
                    print(f"leads {leadership.term}", flush=True)
                number += 1
        except NotLeader:
            print("lost", flush=True)


asyncio.run(main())
