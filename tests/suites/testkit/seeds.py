"""The seed of random tests: 1, or TEST_SEED, which `make test-all` sets anew and prints."""

import os

SEED = int(os.environ.get("TEST_SEED", "1"))
