"""The starter composition that ships with the product: what ``dsh init`` copies and what runs without a file."""

from __future__ import annotations

from pathlib import Path

import dsh


def starter_folder() -> Path:
    """The folder with the starter's ``cordis.yml``: inside an installed package, or the root of a checkout."""
    package = Path(dsh.__file__).resolve().parent
    installed = package / "_starter"
    return installed if (installed / "cordis.yml").is_file() else package.parent


def starter_files() -> dict[str, bytes]:
    """Content by relative name: ``cordis.yml`` and each plugin."""
    folder = starter_folder()
    names = ["cordis.yml", *(f"plugins/{path.name}" for path in sorted((folder / "plugins").glob("*.py")))]
    return {name: (folder / name).read_bytes() for name in names}
