"""Test harness: programs, ports, waiting, clients, servers of buckets, and commands of Markdown
pages.

Only `stubs` and the servers need packages, so load tests and benchmarks run the rest with any
python3.
"""
