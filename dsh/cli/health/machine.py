"""The machine: Python, packages, programs, disk space."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dsh.cli.health.finding import Finding, ok, problem, warning

_REQUIREMENT: Final = re.compile(r"[A-Za-z0-9._-]+")
_EXTRA: Final = re.compile(r"extra\s*==\s*['\"]([^'\"]+)")

PROGRAMS: Final = {
    "bash": "the tool bash runs its commands with it",
    "git": "agents and the plugin git-context look at repositories with it",
    "rg": "agents search large folders much faster with it (the package is called ripgrep)",
}
"""Programs that dsh or its agents run, and what for."""

LITTLE: Final = 1024**3
TOO_LITTLE: Final = 100 * 1024**2
"""Free bytes below which there is a warning, and a problem."""


def check_machine(mounted: set[str], folder: Path) -> Iterator[Finding]:
    """mounted: names of the built-in plugins that the composition mounts; folder: where sessions are kept."""
    yield _python()
    yield from _packages(mounted)
    for name, purpose in PROGRAMS.items():
        path = shutil.which(name)
        needed = name == "bash" and "bash-local" in mounted
        if path is not None:
            yield ok(name, path)
        elif needed:
            yield problem(name, f"not found, and {purpose}", f"install {name} or put it on PATH")
        else:
            yield warning(name, f"not found: {purpose}", f"install {'ripgrep' if name == 'rg' else name}")
    yield _disk(folder)


def _python() -> Finding:
    from dsh import __version__

    return ok("python", f"Python {sys.version.split()[0]} ({sys.executable}), dsh {__version__}")


def _packages(mounted: set[str]) -> Iterator[Finding]:
    from importlib.metadata import PackageNotFoundError, requires

    try:
        needed = requires("dsh") or []
    except PackageNotFoundError:
        yield warning("packages", "dsh runs from a folder and is not installed", "pip install -e . in that folder")
        return
    missing: list[str] = []
    extras: dict[str, list[str]] = {}
    for each in needed:
        requirement, _, marker = each.partition(";")
        name = _REQUIREMENT.match(requirement.strip())
        extra = _EXTRA.search(marker)
        if name is None or ("sys_platform" in marker and sys.platform == "win32"):
            continue
        absent = not _installed(name[0])
        if extra is None:
            missing += [name[0]] * absent
        elif extra[1] not in ("dev", "test"):
            extras.setdefault(extra[1], []).extend([name[0]] * absent)
    if missing:
        yield problem("packages", f"missing: {', '.join(missing)}", f"pip install {' '.join(missing)}")
    there = [name for name, lacks in extras.items() if not lacks]
    lacking = [name for name, lacks in extras.items() if lacks]
    if "local" in lacking and "llm-local" in mounted:
        text = "the extra local is not installed: the composition's row for a model on this machine has none to run"
        yield warning("extras", text, "pip install 'dsh[local]', then `dsh local pull`")
    elif lacking:
        installed = f"installed: {', '.join(there)}; " if there else ""
        yield ok("extras", f"{installed}not installed, and not needed here: {', '.join(lacking)}")
    else:
        yield ok("extras", f"installed: {', '.join(there) or 'there are none'}")


def _installed(name: str) -> bool:
    from importlib.metadata import PackageNotFoundError, version

    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def _disk(folder: Path) -> Finding:
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        free = shutil.disk_usage(place).free
    except OSError as error:
        return problem("disk", f"{place} cannot be looked at: {error.strerror}")
    shown = f"{_size(free)} free at {os.fspath(place)}"
    if free < TOO_LITTLE:
        return problem("disk", f"{shown}: a session that cannot be stored stops", "make room there")
    if free < LITTLE:
        return warning("disk", shown, "make room there before the logs of sessions fill it")
    return ok("disk", shown)


def _size(count: int) -> str:
    return f"{count / 1024**3:.1f} GiB" if count >= 1024**3 else f"{count / 1024**2:.0f} MiB"
