"""Images over ACP: when they are offered, what is checked before one is kept, and how they come back."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tests.cli.kit import Place

from .acp_kit import PNG, Client, acp, compose, plugin, script, stored_events

EYES = {"model": "eyes"}
GIF = base64.b64encode(b"GIF89a").decode()
IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place.make(tmp_path)


async def opened(client: Client, place: Place) -> str:
    offered = await client.hello()
    assert offered["agentCapabilities"]["promptCapabilities"]["image"] is True
    return await client.session(place.work)


def kept(place: Place) -> list[Path]:
    return list((place.work / "kept").iterdir())


async def test_b15_images_are_offered_only_with_a_store_and_a_model_that_sees(place: Place) -> None:
    for config, extra in ((EYES, []), ({"model": "blind"}, [plugin("attachments")])):
        async with acp(place, "--config", str(compose(place, acp=config, extra=extra))) as client:
            offered = await client.hello()
            assert offered["agentCapabilities"]["promptCapabilities"]["image"] is False
            session = await client.session(place.work)
            assert (await client.refused("session/prompt", sessionId=session, prompt=[IMAGE]))["code"] == -32602


async def test_b15_text_and_images_keep_their_order_and_the_log_holds_references(place: Place) -> None:
    config = compose(place, acp=EYES, extra=[plugin("attachments")])
    async with acp(place, "--config", str(config)) as client:
        session = await opened(client, place)
        gif = {"type": "image", "data": GIF, "mimeType": "image/gif"}
        assert await client.prompt(session, "a", "b", IMAGE, gif, "c") == "end_turn"
        assert await client.prompt(session, IMAGE) == "end_turn"
        assert await client.leave() == 0
    message = next(e["data"] for e in stored_events(place, session) if e["type"] == "user/message")
    assert [block["type"] for block in message["content"]] == ["text", "image", "image", "text"]
    assert message["content"][0]["text"] == "ab"
    assert [block["attachment"]["mediaType"] for block in message["content"][1:3]] == ["image/png", "image/gif"]
    assert len(kept(place)) == 2
    assert PNG not in str(stored_events(place, session))


async def test_b15_one_bad_block_keeps_all_images_out(place: Place) -> None:
    config = compose(place, acp=EYES, extra=[plugin("attachments")])
    async with acp(place, "--config", str(config)) as client:
        session = await opened(client, place)
        for bad in (
            {"type": "image", "data": PNG, "mimeType": "image/svg+xml"},
            {"type": "image", "data": PNG},
            {"type": "image", "data": "iVBORw0KGgo", "mimeType": "image/png"},  # no padding
            {"type": "image", "data": PNG[:8] + "\n" + PNG[8:], "mimeType": "image/png"},
            {"type": "image", "data": "iVBORw0KGgp=", "mimeType": "image/png"},  # spare bits are set
            {"type": "image", "data": "", "mimeType": "image/png"},
            {"type": "image", "data": 7, "mimeType": "image/png"},
            {"type": "image", "data": base64.b64encode(b"no image").decode(), "mimeType": "image/png"},  # to the store
            {"type": "audio", "data": "", "mimeType": "audio/wav"},
        ):
            error = await client.refused("session/prompt", sessionId=session, prompt=[IMAGE, bad])
            assert error["code"] == -32602 and error["message"].startswith("Invalid params: ")
            assert kept(place) == []
        assert await client.prompt(session, IMAGE) == "end_turn"
        assert len(kept(place)) == 1


async def test_b15_a_route_that_became_blind_takes_no_image(place: Place) -> None:
    config = compose(place, acp=EYES | {"presentation": "editor"}, extra=[plugin("attachments")])
    async with acp(place, "--config", str(config)) as client:
        session = await opened(client, place)
        await client.ask("session/set_model", sessionId=session, modelId="scripted/blind")
        error = await client.refused("session/prompt", sessionId=session, prompt=[IMAGE])
        assert error == {"code": -32602, "message": "Invalid params: the session's model does not read images"}
        assert kept(place) == []
        await client.ask("session/set_model", sessionId=session, modelId="scripted/eyes")
        assert await client.prompt(session, IMAGE) == "end_turn"


async def test_an_image_of_the_model_is_a_chunk_in_its_place(place: Place) -> None:
    config = compose(place, acp=EYES, extra=[plugin("attachments")])
    async with acp(place, "--config", str(config)) as client:
        session = await opened(client, place)
        assert await client.prompt(session, IMAGE) == "end_turn"
        before = len(client.updates(session))
        (path,) = kept(place)
        reference = {"attachmentId": f"sha256:{path.name}", "mediaType": "image/png", "bytes": 69}
        reply = script([{"text": "before"}, {"image": reference}, {"text": "after"}])
        assert await client.prompt(session, reply) == "end_turn"
        contents = [update["content"] for update in client.updates(session)[before:]]
        image = {"type": "image", "data": PNG, "mimeType": "image/png"}
        assert contents == [{"type": "text", "text": "before"}, image, {"type": "text", "text": "after"}]


async def test_an_image_that_cannot_be_read_fails_the_prompt_and_the_next_one_works(place: Place) -> None:
    config = compose(place, acp=EYES, extra=[plugin("attachments")])
    async with acp(place, "--config", str(config)) as client:
        session = await opened(client, place)
        reply = script([{"text": "before"}, {"image": {"attachmentId": "sha256:0", "mediaType": "image/png"}}])
        frame = await client.answer(client.begin(session, reply))
        text = "Internal error: assistant output delivery failed: that attachment is gone"
        assert frame["error"] == {"code": -32603, "message": text}
        assert client.texts(session) == ["before"]
        assert await client.prompt(session, "fine") == "end_turn"
