"""`python -m varlog` is the command line."""

import sys

from varlog.cli.main import main

if __name__ == "__main__":  # not when a worker process imports it
    sys.exit(main())
