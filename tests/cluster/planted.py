"""A server or a client with a bug in it, to show that the tests notice.

python -m tests.cluster.planted BUG varlog node start ...
python -m tests.cluster.planted BUG client --cluster ...
"""

import sys

from tests.cluster import client_program

from varlog.cli.main import main as varlog
from varlog.sim.bugs import planted


def main() -> int:
    bug, program, *arguments = sys.argv[1:]
    with planted(bug):
        if program == "client":
            client_program.main(arguments)
            return 0
        return varlog(arguments)


if __name__ == "__main__":
    sys.exit(main())
