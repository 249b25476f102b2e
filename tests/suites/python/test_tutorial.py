"""The notebook of the package, cell by cell, in a kernel that has the wheel."""

import os

import nbclient
import nbformat

from suites.testkit.programs import ROOT

NOTEBOOK = ROOT / "python/tutorial.ipynb"


def test_every_cell_runs(rtad, tmp_path):
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    site = os.path.dirname(os.path.dirname(rtad.__file__))
    client = nbclient.NotebookClient(
        notebook, timeout=60, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute(env=os.environ | {"PYTHONPATH": site})
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in cells)
    assert (tmp_path / "store/scored/CURRENT").exists()


def test_notebook_is_committed_without_outputs():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in cells)
