"""Fixture: the write service."""

import pytest

from suites.streams.writer import Writer


@pytest.fixture
def writer(tmp_path):
    folder = tmp_path / "writer"
    folder.mkdir()
    with Writer(folder) as writer:
        yield writer
