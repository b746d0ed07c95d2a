"""Build and check the distributions of product and lab, and run the demo from the wheels in an environment of their own.

Dependencies come from the environment that runs this file, so that nothing is downloaded; the two packages do not.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMITS = {"counterfoil": 1.5, "counterfoil_lab": 60.0}  # MB


def build(folder: Path) -> list[Path]:
    """Build a source distribution and from it a wheel, of product and lab; return the wheels."""
    for source in (ROOT, ROOT / "lab"):
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(source)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
    wheels = sorted(folder.glob("*.whl"))
    subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *map(str, (*wheels, *folder.glob("*.tar.gz")))], check=True
    )
    return wheels


def check_sizes(wheels: list[Path]) -> list[str]:
    """Print the size of each wheel and return those over their limit."""
    over = []
    for wheel in wheels:
        name, size = wheel.name.partition("-")[0], wheel.stat().st_size / 1e6
        print(f"{wheel.name}: {size:.2f} MB, {LIMITS[name]:g} allowed")
        over += [name] if size > LIMITS[name] else []
    return over


def run_demo(wheels: list[Path], folder: Path) -> None:
    """Install the wheels into an environment of their own and run the demo there, away from the sources."""
    venv.create(folder / "env", with_pip=False, symlinks=True)
    python = folder / "env" / "bin" / "python"
    site = next((folder / "env" / "lib").glob("python*/site-packages"))
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), *map(str, wheels)], check=True
    )
    # Added at the end, so that the packages of the wheels come before any that are installed here.
    paths = [path for path in sys.path if path and "site-packages" in path]
    (site / "zz_dependencies.pth").write_text(f"import sys; sys.path.extend({paths!r})\n")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    where = "import counterfoil, counterfoil_lab; print(counterfoil.__file__, counterfoil_lab.__file__)"
    done = subprocess.run([python, "-c", where], cwd=folder, env=environment, capture_output=True, text=True, check=True)
    assert all(Path(path).is_relative_to(site) for path in done.stdout.split()), done.stdout
    subprocess.run([python, "-m", "counterfoil", "demo", "--images", "4"], cwd=folder, env=environment, check=True)


def main() -> None:
    """Build, check, measure and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="keep the distributions in this folder")
    parser.add_argument("--no-demo", action="store_true", help="do not run the demo")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheels = build(options.out or folder)
        over = check_sizes(wheels)
        if not options.no_demo:
            run_demo(wheels, folder)
    if over:
        sys.exit(f"too large: {', '.join(over)}")


if __name__ == "__main__":
    main()
