"""Changing the composition's file by the API: edit the text, apply it, take it back if the running tree refuses it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsh.interfaces.drafts import Draft
from dsh.loader.problems import LoadError
from dsh.loader.writeback import FileChangedError, WriteBackError, is_packaged
from dsh.loader.yamlio import YamlError

from .messages import ApiError

if TYPE_CHECKING:
    from dsh.loader.tree import Loader

_ATTEMPTS = 5


def own_file(loader: Loader) -> Path:
    """The file of the composition. Raises ApiError when it is none that this user's edits belong into."""
    source = loader.root_source
    if source is None or source.path is None:
        raise ApiError(409, "NO_FILE", "this run has no file; `dsh init` writes a composition of your own")
    if is_packaged(source.path):
        text = "this run uses a composition that comes with dsh; `dsh init` writes one of your own"
        raise ApiError(409, "PACKAGED", text)
    return Path(source.path)


async def edit_config(loader: Loader, wanted: Mapping[str, Any], unwanted: Sequence[str]) -> list[str]:
    """Set and unset `row.key` values, each in the file that says it; the warnings. Raises ApiError.

    One at a time: the next one would take what this one may still put back for the file as it is.
    """
    async with loader.editing:
        return await _edit_config(loader, wanted, unwanted)


async def _edit_config(loader: Loader, wanted: Mapping[str, Any], unwanted: Sequence[str]) -> list[str]:
    own_file(loader)
    assert loader.root_source is not None
    source = loader.root_source

    def edit() -> Draft:
        for _ in range(_ATTEMPTS):
            draft = Draft(source)
            for name in (*wanted, *unwanted):
                try:
                    place = draft.find(name)
                except LoadError as error:
                    raise ApiError(422, "NO_ROW", str(error)) from None
                if name in wanted:
                    draft.set(name, wanted[name])
                elif place.found:
                    draft.unset(name)
            if draft.slips:
                raise _refused(LoadError(draft.slips))
            with suppress(FileChangedError):
                draft.write()
                return draft
        raise FileChangedError(f"{source.shown}: it keeps changing while it is being written")

    try:
        draft = await asyncio.to_thread(edit)
    except (WriteBackError, YamlError, LoadError) as error:
        raise ApiError(422, "NOT_WRITTEN", str(error)) from None
    try:
        for path in draft.texts:
            await loader.refresh(path)
    except LoadError as error:
        await asyncio.to_thread(draft.take_back)
        for path in draft.texts:
            with suppress(LoadError):  # what stood there before is refused as well; the watcher tells of that
                await loader.refresh(path)
        raise _refused(error) from None
    return draft.warnings


def _refused(error: LoadError) -> ApiError:
    return ApiError(422, "REFUSED", str(error), {"problems": [str(problem) for problem in error.problems]})
