"""The Python package `rtad`, as its wheel: compared with the programs, over the same ids."""
