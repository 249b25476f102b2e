"""Tests of packages: systemd units, configuration files, the workflow of CI, and in long runs the
artifacts of `make dist`."""
