"""The launch environment: one frozen picture of the variables this process started with.

Sources by trust: what the process inherited, then ``.env`` of the start directory, then ``.env`` of the home
folder. It is taken once, before anything loads; later changes of ``os.environ`` do not reach it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, MutableMapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from dsh.cordis import Context, HarnessError
from dsh.cordis.records import record
from dsh.loader.dotenv import parse_dotenv, refused_name
from dsh.loader.home import Home, resolve_home

EnvSource = Literal["process", "project-env", "user-env"]
TRUST_ORDER: tuple[EnvSource, ...] = ("process", "project-env", "user-env")


class DotenvRefusedError(HarnessError):
    """A ``.env`` file sets a name it may not set. Nothing of any file was applied."""

    code = "DOTENV_REFUSED"


@record
class EnvValue:
    """One variable: its text (may be empty), where it came from, and the file for the two file sources."""

    value: str
    source: EnvSource
    path: str | None = None


@record
class EnvLayer:
    """Input of a snapshot: the variables of one source."""

    source: EnvSource
    values: Mapping[str, str]
    path: str | None = None


class LaunchEnvironment:
    """Immutable variables by trust. Names ignore case on Windows, an empty value is present."""

    __slots__ = ("_fold", "_layers", "values", "warnings")

    def __init__(
        self, layers: Iterable[EnvLayer], *, windows: bool = sys.platform == "win32", warnings: Iterable[str] = ()
    ) -> None:
        self._fold = windows
        self._layers: dict[EnvSource, dict[str, EnvValue]] = {source: {} for source in TRUST_ORDER}
        for layer in layers:
            for name, value in layer.values.items():
                self._layers[layer.source][self._key(name)] = EnvValue(value, layer.source, layer.path)
        upwards = [self._layers[source] for source in reversed(TRUST_ORDER)]
        merged = {name: entry.value for found in upwards for name, entry in found.items()}
        self.values: Mapping[str, str] = MappingProxyType(merged)
        """All variables, the most trusted value of each (read-only)."""
        self.warnings = tuple(warnings)
        """What was wrong with the files but did not stop the start; sentences for the log."""

    def _key(self, name: str) -> str:
        return name.upper() if self._fold else name

    def get(self, name: str) -> EnvValue | None:
        """The most trusted value of `name`, None if no source has it."""
        return self.get_from(name, TRUST_ORDER)

    def get_from(self, name: str, sources: Iterable[EnvSource]) -> EnvValue | None:
        """As `get`, looking only at `sources` (their order does not matter)."""
        key, wanted = self._key(name), set(sources)
        for source in TRUST_ORDER:
            if source in wanted and key in self._layers[source]:
                return self._layers[source][key]
        return None

    def __repr__(self) -> str:  # values may be secrets
        return f"LaunchEnvironment({len(self.values)} variables)"


def inherited_environment(environ: Mapping[str, str] | None = None) -> LaunchEnvironment:
    """A snapshot of the inherited variables alone, for embedders that read no ``.env``."""
    return LaunchEnvironment([EnvLayer("process", dict(os.environ if environ is None else environ))])


def launch_environment_of(ctx: Context) -> LaunchEnvironment:
    """The launcher's snapshot, or the inherited variables when no launcher provided one."""
    provided = ctx.get("launchEnvironment")
    return provided if isinstance(provided, LaunchEnvironment) else inherited_environment()


def home_of(ctx: Context, explicit: str | None = None) -> Home:
    """The home folder of a row: its own config's `explicit`, else that of the run."""
    launcher = ctx.get("dshHomePath")
    chosen = explicit or (os.fspath(launcher) if isinstance(launcher, (str, os.PathLike)) else None)
    return resolve_home(chosen, launch_environment_of(ctx).values)


def load_launch_environment(
    home: Home, start_dir: str | os.PathLike[str] | None = None, environ: MutableMapping[str, str] | None = None
) -> LaunchEnvironment:
    """Read both ``.env`` files, take the snapshot, and fill absent names of `environ` from it.

    `environ` is ``os.environ`` if not given. Both files are parsed and checked before either is applied; a name
    that is already there, even empty, is never replaced. A missing file is nothing, an unreadable one a warning.
    Raises DotenvRefusedError when a file sets a name that decides which code runs or where traffic goes.
    """
    environ = os.environ if environ is None else environ
    start = Path(os.path.abspath(start_dir or os.getcwd()))
    files: list[tuple[EnvSource, Path, str]] = [("project-env", start / ".env", str(start / ".env"))]
    if os.path.realpath(start) != os.path.realpath(home.path):
        files.append(("user-env", home.join(".env"), home.show(home.join(".env"))))
    layers = [EnvLayer("process", dict(environ))]
    warnings: list[str] = []
    refused: list[str] = []
    for source, path, shown in files:
        values = _read(path, shown, warnings)
        bad = sorted(name for name in values if refused_name(name))
        if bad:
            refused.append(f"{shown} sets {', '.join(bad)}")
        layers.append(EnvLayer(source, values, str(path)))
    if refused:
        raise DotenvRefusedError(
            f"{'; '.join(refused)}: a .env file may not set variables that decide which code runs or where traffic "
            "goes. Set them in the shell that starts dsh, or remove the lines"
        )
    snapshot = LaunchEnvironment(layers, warnings=warnings)
    for name, value in snapshot.values.items():
        environ.setdefault(name, value)
    return snapshot


def _read(path: Path, shown: str, warnings: list[str]) -> dict[str, str]:
    try:
        parsed = parse_dotenv(path.read_text("utf-8"))
    except (FileNotFoundError, IsADirectoryError):  # a virtual environment is often called .env
        return {}
    except UnicodeDecodeError:
        warnings.append(f"{shown} is not UTF-8 text, ignored")
        return {}
    except OSError as error:
        warnings.append(f"{shown} cannot be read, ignored: {error.strerror or type(error).__name__}")
        return {}
    for line in parsed.bad_lines:
        warnings.append(f"{shown}:{line}: not a NAME=value line, ignored")
    values = {name: value for name, value in parsed.values.items() if "\0" not in value}
    for name in parsed.values.keys() - values.keys():
        warnings.append(f"{shown}: the value of {name} holds a NUL character, ignored")
    return values
