"""Print the modules of the packages that run between a photo and its sentence.

    python tests/support/files_of_a_photo.py caption photo.jpg

The command runs twice, and the second run is recorded, so that functions that only run
at import are not counted.
"""

import inspect
import sys
import threading
from pathlib import Path

PACKAGES = ("show_attend_tell", "data_prep")


def modules_run_by(arguments: list[str]) -> list[str]:
    """Return the files whose functions a command of the command line calls."""
    from show_attend_tell.cli.main import main

    root = Path(sys.modules["show_attend_tell"].__file__).parents[1]
    files = set()

    def record(frame, event, argument):
        code = frame.f_code
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED:
            files.add(code.co_filename)

    main(arguments)
    threading.setprofile(record)
    sys.setprofile(record)
    try:
        main(arguments)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    inside = [Path(file) for file in files if file.startswith(str(root))]
    names = [str(file.relative_to(root)) for file in inside]
    return sorted(name for name in names if name.startswith(PACKAGES))


if __name__ == "__main__":
    modules = modules_run_by(sys.argv[1:])
    print(*modules, f"{len(modules)} files", sep="\n")
