"""The Spark job on a real master with two workers: the chunks must be those of `rtad-loader
build`."""
