"""Test harness: programs, ports, waiting, clients, an S3 server, and commands of Markdown pages.

Only `stubs` and `s3` need packages, so load tests and benchmarks run the rest with any python3.
"""
