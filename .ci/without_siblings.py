"""Run the tests in a copy of this checkout without the plug-ins of the package.

    python .ci/without_siblings.py ARGUMENTS OF PYTEST

The copy lacks show_attend_tell/siblings and its tests, their lines of setup.cfg, and
the experiments with a task of theirs. What is left must work: no room needs a plug-in.
"""

import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REMOVED = ("show_attend_tell/siblings", "tests/siblings")


def copy_checkout(target: Path) -> None:
    """Copy the files of the checkout that Git does not ignore, without the plug-ins."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    for name in listed.stdout.decode().split("\0"):
        source = ROOT / name
        if name and source.is_file() and not name.startswith(REMOVED):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)
    for file in (target / "experiments").glob("*.toml"):
        if re.search(r"^task = ", file.read_text("utf-8"), re.M):
            file.unlink()
    setup = target / "setup.cfg"
    lines = setup.read_text("utf-8").splitlines()
    kept = [line for line in lines if not re.search(r"\bsiblings\b", line)]
    setup.write_text("\n".join(kept).replace("show_attend_tell.plugins =\n", "") + "\n")


def install(target: Path) -> Path:
    """Install the copy beside the packages of this Python; return its Python."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", ".venv"], cwd=target, check=True
    )
    python = target / ".venv" / "bin" / "python"
    (packages,) = (target / ".venv" / "lib").glob("python*/site-packages")
    # After the packages of the new environment, so that these come first.
    here = sysconfig.get_path("purelib")
    (packages / "packages.pth").write_text(f"{here}\n")
    # An environment must not uninstall what another one has.
    options = ("--ignore-installed", "--no-deps", "--no-build-isolation", "--quiet")
    command = [python, "-m", "pip", "install", *options, "-e", "."]
    subprocess.run(command, cwd=target, check=True)
    return python


def main(arguments: list[str]) -> int:
    """Make the copy and run its tests; return their exit status."""
    with tempfile.TemporaryDirectory(prefix="without-siblings-") as folder:
        copy = Path(folder) / ROOT.name
        copy.mkdir()
        copy_checkout(copy)
        python = install(copy)
        found = subprocess.run(
            [python, "-c", "import show_attend_tell as s; print(s.__file__)"],
            cwd=folder,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        if not found.stdout.startswith(str(copy)):
            sys.exit(f"the copy is not installed: {found.stdout}")
        return subprocess.run([python, "-m", "pytest", *arguments], cwd=copy).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
