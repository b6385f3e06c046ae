"""Run the notebooks of this folder and store their outputs in them.

    python docs/execute_notebook.py

Standard error, which has messages of this machine, is not stored; of two encodings of
one picture or page only the first of `_PREFERRED` is.
"""

from pathlib import Path

import nbclient
import nbformat

_PREFERRED = ("text/html", "image/jpeg", "image/png", "text/plain")


def execute(path: Path) -> None:
    """Run a notebook in its own folder and write it with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    folder = {"metadata": {"path": str(path.parent)}}
    nbclient.NotebookClient(
        notebook,
        timeout=900,
        startup_timeout=300,  # of a kernel beside other programs
        kernel_name="python3",
        resources=folder,
    ).execute()
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
