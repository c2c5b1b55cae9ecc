"""Images on their way in and out. The bytes belong to an attachment store; messages hold references."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from dsh.cordis import Context, HarnessError
from dsh.llm.failure import LlmError
from dsh.llm.service import Llm

from .checks import invalid_params

MEDIA_TYPES = ("image/png", "image/jpeg", "image/webp", "image/gif")

CORRECTABLE = frozenset(
    {
        "TOO_MANY_IMAGES",
        "IMAGES_TOO_LARGE",
        "UNSUPPORTED_IMAGE_TYPE",
        "INVALID_IMAGE_BASE64",
        "INVALID_IMAGE",
        "IMAGE_TYPE_MISMATCH",
        "IMAGE_TOO_LARGE",
        "IMAGE_TOO_MANY_PIXELS",
        "IMAGE_DIMENSION_TOO_LARGE",
    }
)
"""Codes of a store that say the client's images are at fault."""


class AttachmentStore(Protocol):
    """The service ``attachments``, as far as it is used here."""

    async def admit_encoded_images(self, images: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Keep all of ``[{mediaType, data}]`` (canonical base64) or none; a reference for each."""

    async def read_image(self, reference: Mapping[str, Any]) -> bytes:
        """The bytes of a kept image."""


def store_of(ctx: Context) -> AttachmentStore | None:
    """The composition's attachment store."""
    store: AttachmentStore | None = ctx.get("attachments")
    return store


async def reads_images(llm: Llm, route: tuple[str, str] | None) -> bool:
    """Whether the model at ``route`` declares that it reads images."""
    if route is None:
        return False
    try:
        info = await llm.resolve_model_info(*route)
    except LlmError:
        return False
    return "image" in info.get("inputModalities", ())


def check_image(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """``{mediaType, data}`` of an image block of a prompt."""
    media_type, data = block.get("mimeType"), block.get("data")
    if media_type not in MEDIA_TYPES:
        raise invalid_params(f"image mimeType must be one of {', '.join(MEDIA_TYPES)}: {media_type}")
    if not isinstance(data, str) or not data or not _is_canonical(data):
        raise invalid_params("image data must be canonical base64")
    return {"mediaType": media_type, "data": data}


async def keep_images(store: AttachmentStore, images: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """References to ``images`` in the store; all of them, or an error and none."""
    try:
        return await store.admit_encoded_images(images)
    except HarnessError as error:
        if error.code in CORRECTABLE:
            raise invalid_params(str(error)) from error
        raise


async def image_content(ctx: Context, reference: Mapping[str, Any]) -> dict[str, Any]:
    """A kept image as protocol content. Raises ``HarnessError`` without a store, and what the store raises."""
    store = store_of(ctx)
    if store is None:
        raise HarnessError("no attachment store is there to read an image from", code="NO_ATTACHMENTS")
    data = base64.b64encode(await store.read_image(reference)).decode("ascii")
    return {"type": "image", "data": data, "mimeType": reference["mediaType"]}


def _is_canonical(data: str) -> bool:
    try:
        return base64.b64encode(base64.b64decode(data, validate=True)).decode("ascii") == data
    except (binascii.Error, ValueError):
        return False
