"""`python -m autotensor` is the command `autotensor`."""

import sys

from autotensor.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
