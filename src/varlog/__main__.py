"""`python -m varlog` is the command line."""

import sys

from varlog.cli.main import main

sys.exit(main())
