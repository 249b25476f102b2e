"""Test harness: programs, ports, waiting, clients, servers of buckets, and commands of Markdown
pages.

Only `stubs`, `s3` and `azure` need packages, so load tests and benchmarks run the rest with any
python3.
"""
