"""Tests of the built programs from outside. Each folder is a suite; `testkit` is what they share.

bash tests/setup.sh                                              # once: .venv and programs
.venv/bin/python3 -m pytest tests/suites/console -k lookups      # what `cargo test` has built
TEST_PROGRAMS=target/release .venv/bin/python3 -m pytest tests/suites -m long
"""
