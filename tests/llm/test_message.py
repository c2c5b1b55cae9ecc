"""Messages: ids, freezing, sources."""

import pytest

from dsh.cordis.jsonio import FrozenDict
from dsh.llm.content import is_token_delta, without_image
from dsh.llm.message import (
    create_assistant_message,
    create_message,
    create_tool_result_message,
    create_user_message,
    freeze_message,
    text_block,
)


def test_b01a_each_message_gets_its_own_id_and_a_rewrite_keeps_it() -> None:
    first, second = create_user_message("a"), create_user_message("a")
    assert first["id"] != second["id"]
    rewritten = freeze_message({**first, "content": [text_block("b")]})
    assert rewritten["id"] == first["id"]
    assert freeze_message(first) is first


def test_b01b_messages_are_detached_and_frozen() -> None:
    block = text_block("a")
    message = create_user_message([block])
    block["text"] = "changed"
    assert message["content"][0]["text"] == "a"
    with pytest.raises(TypeError):
        message["content"][0]["text"] = "b"
    with pytest.raises(TypeError):
        message["role"] = "system"


def test_b01c_constructors_name_the_source() -> None:
    assert create_user_message("x")["source"] == {"kind": "user"}
    plugin = {"kind": "plugin", "plugin": "p", "form": "relay"}
    assert create_user_message("x", plugin)["source"] == plugin
    reply = create_assistant_message([text_block("x")], "p", "m", {"response": 1, "blocks": [2]})
    assert reply["source"] == {
        "kind": "model",
        "provider": "p",
        "model": "m",
        "replayState": {"response": 1, "blocks": [2]},
    }
    assert "replayState" not in create_assistant_message([], "p", "m")["source"]
    result = create_tool_result_message("c1", [text_block("out")])
    assert result["role"] == "user" and result["source"] == {"kind": "tool", "callId": "c1"}
    assert result["content"] == [
        {"type": "tool-result", "toolCallId": "c1", "content": [text_block("out")], "isError": False}
    ]


@pytest.mark.parametrize(("length", "shown"), [(120, 120), (121, 120)])
def test_b01d_a_notice_summary_is_cut_to_120_characters(length: int, shown: int) -> None:
    source = {"kind": "plugin", "plugin": "p", "form": "notice", "summary": "s" * length}
    summary = create_message("user", [], source)["source"]["summary"]
    assert len(summary) == shown
    assert summary.endswith("…") == (length > 120)


def test_token_deltas_carry_output() -> None:
    assert is_token_delta({"type": "text-delta", "index": 0, "text": "x"})
    assert not is_token_delta({"type": "reasoning-delta", "index": 0, "text": ""})
    assert is_token_delta({"type": "tool-call-delta", "index": 0, "id": "a", "name": "n", "argumentsDelta": ""})
    assert not is_token_delta({"type": "tool-call-delta", "index": 0, "id": "a", "argumentsDelta": ""})
    assert not is_token_delta({"type": "finish", "reason": {"kind": "stop"}})


def test_images_become_a_stable_line_and_untouched_messages_stay_the_same_objects() -> None:
    image = {"type": "image", "attachment": {"attachmentId": "sha256:0123456789abcdef"}}
    plain, picture = create_user_message("a"), create_user_message([image])
    nested = create_tool_result_message("c", [text_block("out"), image])
    projected = [without_image(message) for message in (plain, picture, nested)]
    line = "[image omitted because this model accepts text only; attachment sha256:01234567]"
    assert projected[0] is plain
    assert projected[1]["content"] == [text_block(line)] and projected[1]["id"] == picture["id"]
    assert projected[2]["content"][0]["content"] == [text_block("out"), text_block(line)]
    assert isinstance(projected[1], FrozenDict)
