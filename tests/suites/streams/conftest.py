"""Fixture: the writer."""

import pytest

from suites.streams.writer import ClickWriter


@pytest.fixture
def writer(tmp_path):
    folder = tmp_path / "writer"
    folder.mkdir()
    with ClickWriter(folder) as writer:
        yield writer
