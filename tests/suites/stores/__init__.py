"""Stores on a real S3 server: the Rust tests that need one."""
