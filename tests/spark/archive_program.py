"""Archives a log bit by bit, a process of its own, to be killed at any moment.

python -m tests.spark.archive_program CLUSTER LOG WHERE
"""

import sys

from varlog.spark import archive_log, local_session

STEP = 7


def main() -> None:
    cluster, log, where = sys.argv[1:]
    spark = local_session("archive", master="local[1]")
    upto = 0
    while True:
        upto += STEP
        archive_log(spark, cluster, log, where, upto=upto)
        print(upto, flush=True)


if __name__ == "__main__":
    main()
