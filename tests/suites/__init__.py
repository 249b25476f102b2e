"""Black-box tests of the built programs. Each folder is a suite; `testkit` is shared.

bash tests/setup.sh                                              # once: .venv and programs
.venv/bin/python3 -m pytest tests/suites/console -k lookups      # programs of `cargo test`
TEST_PROGRAMS=target/release .venv/bin/python3 -m pytest tests/suites -m long
"""
