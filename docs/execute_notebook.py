"""Run the notebooks of this folder and store their outputs in them.

    python docs/execute_notebook.py

Standard error, which has messages of this machine, is not stored; of two encodings of
one picture or page only the first of `_PREFERRED` is.
"""

from pathlib import Path

import nbclient
import nbformat

_PREFERRED = ("text/html", "image/jpeg", "image/png", "text/plain")


def run(path: Path) -> nbformat.NotebookNode:
    """Run a notebook in its own folder, as Jupyter does; return it with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    folder = {"metadata": {"path": str(path.parent)}}
    # The seconds only guard against hanging: a machine may be busy.
    client = nbclient.NotebookClient(
        notebook,
        timeout=900,  # of a cell
        startup_timeout=300,  # of the kernel
        kernel_name="python3",
        resources=folder,
    )
    return client.execute()


def execute(path: Path) -> None:
    """Run a notebook and write it with its outputs."""
    notebook = run(path)
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [
                _shortened(one) for one in cell.outputs if one.get("name") != "stderr"
            ]
    nbformat.write(notebook, path)


def _shortened(output):
    """Keep one encoding of an output."""
    if "data" in output:
        kind = next(kind for kind in _PREFERRED if kind in output.data)
        output.data = {kind: output.data[kind]}
    return output


if __name__ == "__main__":
    for notebook in sorted(Path(__file__).parent.glob("*.ipynb")):
        execute(notebook)
