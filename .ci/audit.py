"""Report known holes of the installed packages and of the lowest versions of setup.cfg.

Needs a network: pip-audit asks the package index for advisories. Exits with 1 if there
is a hole; prints that nothing was audited, and exits with 0, where no answer arrives.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def run(*arguments: object) -> subprocess.CompletedProcess:
    """Run a module of this interpreter and capture its output."""
    command = [sys.executable, "-m", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def audit(*arguments: object) -> tuple[int, list[str]]:
    """Return the number of packages with an answer, and a line for each hole."""
    done = run("pip_audit", "--progress-spinner=off", "-f", "json", *arguments)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        return 0, []
    holes = [
        f"{p['name']} {p['version']}: {hole['id']} {' '.join(hole['aliases'])}, fixed "
        f"in {', '.join(hole['fix_versions']) or 'no version'}"
        for p in packages
        for hole in p.get("vulns", [])
    ]
    return sum("vulns" in p for p in packages), holes


def main() -> int:
    """Audit both sets of packages; return the exit status."""
    run("pip", "install", "--quiet", "--disable-pip-version-check", "pip-audit", "uv")
    with tempfile.TemporaryDirectory() as folder:
        floors = Path(folder) / "floors.txt"
        resolve = ["uv", "pip", "compile", "--resolution", "lowest-direct"]
        resolved = run(*resolve, "--extra", "train", "setup.cfg", "-o", floors)
        sets = {"installed packages": ["--skip-editable"]}
        if resolved.returncode == 0:
            sets["lowest versions"] = ["-r", floors, "--no-deps", "--disable-pip"]
        else:
            print(f"lowest versions: NOT audited, not resolved: {resolved.stderr}")
        status = 0
        for name, arguments in sets.items():
            answers, holes = audit(*arguments)
            print("\n".join([f"{name}: {answers} audited, {len(holes)} holes", *holes]))
            if not answers:
                print(f"{name}: NOT audited, no advisories arrived; use a network")
            status |= bool(holes)
    return status


if __name__ == "__main__":
    sys.exit(main())
