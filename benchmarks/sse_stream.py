"""What a streamed chunk costs: the whole model path against the least a client can do with the same bytes.

Three readers of one stream, served over loopback by a process of its own:

- ``bare``: httpx, split at blank lines, orjson, join the text;
- ``route``: the model service, the DeepSeek adapter with its clocks, and the block assembler;
- ``parse``: the same bytes from memory, without HTTP: event parser, reply reader, assembler.

Prints CPU microseconds a chunk of the reading process and the ratio to ``bare``.

    python benchmarks/sse_stream.py [CHUNKS]
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import httpx
import orjson

from dsh.cordis import Context
from dsh.llm.assembler import BlockAssembler
from dsh.llm.call_config import CallConfig
from dsh.llm.message import create_user_message
from dsh.llm.service import Llm
from dsh.llm.transport.sse import SseParser
from dsh.llm.types import LlmRequest
from dsh.models import deepseek
from dsh.models.deepseek.response import CompletionReader

ROUNDS = 5
WORD = " token"
EVENT = (
    b'data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,'
    b'"model":"deepseek-flash","system_fingerprint":"fp_0123456789","choices":[{"index":0,"delta":'
    b'{"content":"' + WORD.encode() + b'"},"logprobs":null,"finish_reason":null}]}\n\n'
)
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
SERVER = """
import asyncio, sys
EVENT, END, COUNT = {event!r}, {end!r}, {count}
async def serve(reader, writer):
    head = await reader.readuntil(b"\\r\\n\\r\\n")
    length = [line for line in head.lower().split(b"\\r\\n") if line.startswith(b"content-length")][0]
    await reader.readexactly(int(length.split(b":")[1]))
    writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n")
    for number in range(COUNT):
        writer.write(b"%x\\r\\n%s\\r\\n" % (len(EVENT), EVENT))
        if number % 8 == 0:
            await writer.drain()
    writer.write(b"%x\\r\\n%s\\r\\n0\\r\\n\\r\\n" % (len(END), END))
    await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


async def bare(url: str, count: int) -> None:
    """The least a client can do."""
    async with (
        httpx.AsyncClient(timeout=None, trust_env=False) as client,
        client.stream("POST", f"{url}/chat/completions", json={"model": "m"}) as response,
    ):
        parts: list[str] = []
        rest = b""
        async for slice_ in response.aiter_raw():
            *events, rest = (rest + slice_).split(b"\n\n")
            for event in events:
                if event == b"data: [DONE]":
                    continue
                text = orjson.loads(event[6:])["choices"][0]["delta"].get("content")
                if text:
                    parts.append(text)
        assert "".join(parts) == WORD * count


async def route(llm: Llm, count: int) -> None:
    """The whole model path."""
    request = LlmRequest(CallConfig("deepseek-official", "deepseek-flash"), [create_user_message("go")])
    reply = BlockAssembler()
    async with aclosing(llm.stream(request)) as chunks:  # type: ignore[type-var]
        async for chunk in chunks:
            reply.push(chunk)
    assert reply.blocks()[0]["text"] == WORD * count


async def parse(count: int) -> None:
    """Event parser, reply reader and assembler over bytes in memory, in slices of eight events."""
    slices = [EVENT * 8] * (count // 8) + [EVENT * (count % 8) + END]
    parser, reader, reply = SseParser(), CompletionReader(), BlockAssembler()
    for slice_ in slices:
        for _, data in parser.feed(slice_):
            if data != b"[DONE]":
                for chunk in reader.push(orjson.loads(data)):
                    reply.push(chunk)
    for chunk in reader.close():
        reply.push(chunk)
    assert reply.blocks()[0]["text"] == WORD * count


async def measure(work: Callable[[], Awaitable[None]], count: int) -> float:
    """CPU microseconds a chunk, the best of several rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.process_time()
        await work()
        best = min(best, time.process_time() - started)
    return best / count * 1e6


async def main() -> None:
    """Measure and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    program = SERVER.format(event=EVENT, end=END, count=count)
    server = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    try:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(await server.stdout.readline())}"
        async with Context() as root:
            await root.plugin(Llm)
            await root.plugin(deepseek, {"baseURL": url})
            llm = root[Llm]
            base = await measure(lambda: bare(url, count), count)
            whole = await measure(lambda: route(llm, count), count)
            pure = await measure(lambda: parse(count), count)
    finally:
        server.kill()
        await server.wait()
    print(f"{count} chunks, best of {ROUNDS}; CPU microseconds a chunk and ratio to bare")
    for name, value in (("bare", base), ("route", whole), ("parse", pure)):
        print(f"{name:6} {value:7.2f}  {value / base:5.2f}x")


if __name__ == "__main__":
    asyncio.run(main())
