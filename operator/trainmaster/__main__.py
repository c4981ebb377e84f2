"""`python -m trainmaster`."""

import sys

from trainmaster.cli.main import main

sys.exit(main())
