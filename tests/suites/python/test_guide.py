"""The guide, block by block, with the wheel."""

import os
import sys

from suites.python import guide


def test_blocks_of_the_guide_run_in_order(rtad, tmp_path):
    site = os.path.dirname(os.path.dirname(rtad.__file__))
    said = guide.run(sys.executable, tmp_path, env=os.environ | {"PYTHONPATH": site})
    lines = said.splitlines()
    assert lines[:2] == ["2 1", "<rtad.Column Boolean: 4 rows, 3 null> 1 101"]
    assert "2 202 {" in said, said
