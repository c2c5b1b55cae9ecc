"""JSON-RPC over lines: framing, order, concurrency, a slow reader, large and odd frames."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dsh.interfaces import stdio_jsonrpc
from dsh.interfaces.stdin import ByteInput
from dsh.interfaces.stdio_jsonrpc import INVALID_PARAMS, JsonRpcPeer, RpcError
from dsh.interfaces.stdout import LineOutput


class Wire:
    """A peer with a pipe on each side."""

    def __init__(self, handle: Any, **options: Any) -> None:
        self.to_peer, self._peer_in = os.pipe()[::-1]
        self._out, self._peer_out = os.pipe()
        self.output = LineOutput(self._peer_out)
        self.peer = JsonRpcPeer(self.output, handle, **options)
        self.source = ByteInput(self._peer_in)
        self.serving = asyncio.ensure_future(self.peer.serve(self.source))

    def send(self, *frames: Any) -> None:
        for frame in frames:
            data = frame if isinstance(frame, bytes) else json.dumps(frame, ensure_ascii=False).encode() + b"\n"
            os.write(self.to_peer, data)

    async def end(self) -> list[Any]:
        """Close the input, wait for the peer; every line it has written."""
        if self.to_peer >= 0:
            os.close(self.to_peer)
            self.to_peer = -1
        reading = asyncio.ensure_future(asyncio.to_thread(self._read_all))
        await self.serving
        self.source.close()
        await asyncio.to_thread(self.output.close)
        os.close(self._peer_out)
        data = await reading
        assert data == b"" or data.endswith(b"\n")
        return [json.loads(line) for line in data.split(b"\n")[:-1]]

    def _read_all(self) -> bytes:
        with open(self._out, "rb") as file:
            return file.read()


async def echo(method: str, params: Any) -> Any:
    return {"method": method, "params": params}


async def chunks(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def served(handle: Any, *pieces: bytes, **options: Any) -> list[Any]:
    """What a peer answers to these chunks of input."""
    out, peer_out = os.pipe()
    output = LineOutput(peer_out)
    await JsonRpcPeer(output, handle, **options).serve(chunks(*pieces), grace=5)
    reading = asyncio.to_thread(lambda: open(out, "rb").read())
    task = asyncio.ensure_future(reading)
    await asyncio.to_thread(output.close)
    os.close(peer_out)
    return [json.loads(line) for line in (await task).split(b"\n")[:-1]]


def request(id: Any, method: str = "m", **more: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, **more}, ensure_ascii=False).encode() + b"\n"


async def test_b01a_frames_split_anywhere_and_a_half_line_at_the_end_is_ignored() -> None:
    data = request("a", params={"text": "x\u2028y\u2029😀\u0085z"}) + request(7) + b'{"jsonrpc":"2.0","id":9,"met'
    whole = await served(echo, data)
    bytewise = await served(echo, *(data[i : i + 1] for i in range(len(data))))
    assert whole == bytewise
    assert [frame["id"] for frame in whole] == ["a", 7]
    assert whole[0]["result"]["params"]["text"] == "x\u2028y\u2029😀\u0085z"


async def test_b01b_a_frame_of_six_megabytes_passes_both_ways() -> None:
    text = "ü" * 3_000_000
    wire = Wire(echo)
    sending = asyncio.ensure_future(asyncio.to_thread(_write_all, wire.to_peer, request(1, params={"text": text})))
    reading = asyncio.ensure_future(asyncio.to_thread(_read_line, wire._out))
    assert json.loads(await reading)["result"]["params"]["text"] == text
    await sending
    assert await wire.end() == []


async def test_a_line_without_end_is_dropped_as_it_comes_and_told(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(stdio_jsonrpc, "MAX_LINE_BYTES", 100)
    fits = request(1, params={"text": "x" * 34})
    assert len(fits) == 100 + 1
    long = [b"y" * 40] * 5
    frames = await served(echo, fits, *long, b"\n" + request(2), b"z" * 101 + b"\n" + request(3), answer_malformed=True)
    codes = [(frame["id"], frame["error"]["code"] if "error" in frame else None) for frame in frames]
    assert sorted(codes, key=str) == [(1, None), (2, None), (3, None), (None, -32600), (None, -32600)]
    assert capsys.readouterr().err.count("more than 100 bytes") == 2
    assert [frame["id"] for frame in await served(echo, *long, b"\n" + request(4))] == [4]


async def test_requests_beyond_the_limit_are_refused_and_later_ones_served(monkeypatch: Any) -> None:
    monkeypatch.setattr(stdio_jsonrpc, "MAX_REQUESTS", 2)
    release = asyncio.Event()

    async def handle(method: str, params: Any) -> Any:
        await release.wait()
        return {}

    def note(method: str, params: Any) -> None:
        release.set()

    wire = Wire(handle, on_notification=note)
    wire.send(*(request(id) for id in (1, 2, 3)))
    refused = json.loads(await asyncio.to_thread(_read_line, wire._out))
    assert (refused["id"], refused["error"]["code"]) == (3, -32603)
    wire.send({"jsonrpc": "2.0", "method": "go"})  # notifications always come through
    assert {json.loads(await asyncio.to_thread(_read_line, wire._out))["id"] for _ in range(2)} == {1, 2}
    wire.send(request(4))
    assert json.loads(await asyncio.to_thread(_read_line, wire._out))["result"] == {}
    assert await wire.end() == []


async def test_b09a_lines_that_are_no_frames_are_ignored_or_answered() -> None:
    odd = b"\n   \nnonsense\n[1,2]\n42\n\xff\xfe\n" + b'{"id":3,"method":5}\n' + request(4)
    assert [frame["id"] for frame in await served(echo, odd)] == [4]
    answered = await served(echo, odd, answer_malformed=True)
    assert [(f.get("id"), f["error"]["code"] if "error" in f else None) for f in answered] == [
        (None, -32700),
        (None, -32600),
        (None, -32600),
        (None, -32700),
        (3, -32600),
        (4, None),
    ]


async def test_b09b_handler_errors_choose_the_answer() -> None:
    async def handle(method: str, params: Any) -> Any:
        if method == "chosen":
            raise RpcError(INVALID_PARAMS, "no", {"why": 1})
        if method == "odd":
            return object()
        raise ValueError

    answers = await served(handle, request(1, "chosen"), request(2, "other"), request(3, "odd"))
    errors = {frame["id"]: frame["error"] for frame in answers}
    assert errors[1] == {"code": -32602, "message": "no", "data": {"why": 1}}
    assert errors[2] == {"code": -32603, "message": "ValueError"}
    assert errors[3]["code"] == -32603


async def test_b09c_requests_run_side_by_side_and_begin_in_order() -> None:
    begun: list[str] = []
    release = asyncio.Event()

    async def handle(method: str, params: Any) -> Any:
        begun.append(method)
        if method == "slow":
            await release.wait()
        return {}

    wire = Wire(handle, on_notification=lambda method, params: begun.append(method))
    wire.send(request(1, "slow"), {"jsonrpc": "2.0", "method": "note"}, request(2, "fast"))
    assert json.loads(await asyncio.to_thread(_read_line, wire._out))["id"] == 2
    release.set()
    assert json.loads(await asyncio.to_thread(_read_line, wire._out))["id"] == 1
    assert begun == ["slow", "note", "fast"]
    assert await wire.end() == []


async def test_b09d_the_server_may_ask_the_client() -> None:
    wire = Wire(echo)
    asking = asyncio.ensure_future(wire.peer.request("ask", {"x": 1}))
    failing = asyncio.ensure_future(wire.peer.request("ask", {"x": 2}))
    left = asyncio.ensure_future(wire.peer.request("ask", {"x": 3}))
    frames = [json.loads(await asyncio.to_thread(_read_line, wire._out)) for _ in range(3)]
    assert [frame["params"]["x"] for frame in frames] == [1, 2, 3]
    wire.send({"jsonrpc": "2.0", "id": frames[1]["id"], "error": {"code": -5, "message": "no"}})
    wire.send({"jsonrpc": "2.0", "id": frames[0]["id"], "result": {"ok": True}}, {"id": "unknown", "result": 1})
    assert await asking == {"ok": True}
    with pytest.raises(RpcError) as caught:
        await failing
    assert (caught.value.code, caught.value.message) == (-5, "no")
    await wire.end()
    assert isinstance(left.exception(), ConnectionError)


async def test_b09e_requests_under_way_are_cancelled_when_the_client_is_gone() -> None:
    cancelled = asyncio.Event()
    begun = asyncio.Event()

    async def handle(method: str, params: Any) -> Any:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    wire = Wire(handle)
    wire.send(request(1))
    await begun.wait()
    assert await wire.end() == []
    assert cancelled.is_set()


async def test_b10a_a_reader_that_pauses_holds_nothing_but_references_and_gets_every_line_in_order() -> None:
    made = 0

    def params(number: int) -> dict[str, Any]:
        nonlocal made
        made += 1
        return {"n": number, "text": "x" * 1000}

    wire = Wire(echo)
    for number in range(20_000):
        if number % 1000 == 999:
            wire.peer.notify("now", {"n": number})
        else:
            wire.peer.notify_later("later", lambda number=number: params(number))
        if number % 100 == 0:
            await asyncio.sleep(0)
    assert made < 1000  # a pipe and one batch hold far less than the 20,000 lines that wait
    frames = await wire.end()
    assert [frame["params"]["n"] for frame in frames] == list(range(20_000))


async def test_b10b_a_line_that_cannot_be_made_is_left_out_alone(capsys: Any) -> None:
    wire = Wire(echo)
    wire.peer.notify("a", {})
    wire.peer.notify_later("b", lambda: {"x": object()})
    wire.peer.notify("c", {})
    assert [frame["method"] for frame in await wire.end()] == ["a", "c"]
    assert "left out" in capsys.readouterr().err


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _read_line(fd: int) -> bytes:
    line = bytearray()
    while not line.endswith(b"\n"):
        piece = os.read(fd, 1 if len(line) < 3000 else 65536)
        assert piece, "the output ended"
        line += piece
    return bytes(line)
