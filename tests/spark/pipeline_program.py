"""The example of a declarative pipeline, run twice in a process of its own, with more orders in between.

python -m tests.spark.pipeline_program SPEC CLUSTER
"""

import json
import os
import sys
from pathlib import Path

from pyspark.pipelines.cli import run

import varlog

FIRST, MORE = 5000, 3000


def order(number: int) -> dict[str, object]:
    return {"user": f"user-{number % 7}", "amount": number % 1000}


def fill(cluster: str, count: int) -> None:
    with varlog.sync.connect(cluster, timeout=60) as client:
        log = client.log("orders")
        first = log.tail()
        log.append_batch([json.dumps(order(number)).encode() for number in range(first, first + count)])


def main() -> None:
    spec, cluster = sys.argv[1:]
    for count in (FIRST, MORE):
        fill(cluster, count)
        os.environ |= {"SPARK_REMOTE": "local[2]", "SPARK_CONNECT_MODE_ENABLED": "1"}  # as `spark-pipelines` does
        run(Path(spec), full_refresh=[], full_refresh_all=False, refresh=[], dry=False)


if __name__ == "__main__":
    main()
