"""An attachment store in a folder; `log.txt` names what was kept."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dsh.cordis import Context, HarnessError, Service


class Store(Service, name="attachments"):
    def __init__(self, ctx: Context, config: object = None) -> None:
        self._folder = Path("kept")
        self._folder.mkdir(exist_ok=True)

    async def admit_encoded_images(self, images: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        decoded = [base64.b64decode(image["data"]) for image in images]
        if any(not data.startswith((b"\x89PNG", b"GIF8")) for data in decoded):
            raise HarnessError("image 1 is no image", code="INVALID_IMAGE")
        return [self._keep(data, image["mediaType"]) for data, image in zip(decoded, images, strict=True)]

    async def read_image(self, reference: Mapping[str, Any]) -> bytes:
        path = self._folder / reference["attachmentId"].removeprefix("sha256:")
        if not path.exists():
            raise HarnessError("that attachment is gone", code="ATTACHMENT_NOT_FOUND")
        return path.read_bytes()

    def _keep(self, data: bytes, media_type: str) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        (self._folder / digest).write_bytes(data)
        return {
            "attachmentId": f"sha256:{digest}",
            "mediaType": media_type,
            "width": 1,
            "height": 1,
            "bytes": len(data),
        }
