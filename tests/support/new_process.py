"""Python in a process of its own, in which nothing is imported yet."""

import os
import subprocess
import sys


def python(*arguments: object, quiet: bool = True, **options):
    """Run Python; return its exit status, output and errors.

    Args:
        arguments: of Python, such as ``-c`` and code.
        quiet: whether TensorFlow is kept from printing, as in this process.
        options: of ``subprocess.run``.
    """
    command = [sys.executable, *map(str, arguments)]
    if not quiet:
        hidden = ("TF_CPP_MIN_LOG_LEVEL",)
        options["env"] = {k: v for k, v in os.environ.items() if k not in hidden}
    return subprocess.run(command, capture_output=True, text=True, **options)
