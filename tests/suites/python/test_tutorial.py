"""The notebook of the package, cell by cell, in a kernel that has the wheel."""

import os

import nbclient
import nbformat

from suites.testkit.programs import ROOT

NOTEBOOK = ROOT / "python/tutorial.ipynb"


def test_every_cell_runs_twice_in_a_folder(rtad, tmp_path):
    site = os.path.dirname(os.path.dirname(rtad.__file__))
    for _ in range(2):
        notebook = nbformat.read(NOTEBOOK, as_version=4)
        client = nbclient.NotebookClient(
            notebook, timeout=60, resources={"metadata": {"path": str(tmp_path)}}
        )
        client.execute(env=os.environ | {"PYTHONPATH": site})
        cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert all(cell.execution_count for cell in cells)


def test_notebook_is_committed_without_outputs():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in cells)
