"""Both protocols over standard input and output, on any bytes and any frames: each request has one answer of the
documented form, the connection stays usable, and it does not matter how the bytes are cut."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.cordis import Context
from dsh.cordis.jsonio import encode
from dsh.interfaces.stdio_jsonrpc import JsonRpcPeer, RpcError
from dsh.loader.boot import boot
from dsh.loader.environment import EnvLayer, LaunchEnvironment
from dsh.loader.home import Home
from tests.fuzz.kit import CUTS, JSON, fuzz, slices


class Lines:
    """Stands for the process's output: collects whole lines."""

    concluded = False

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.news = asyncio.Event()

    def write_line(self, line: bytes) -> None:
        assert line.endswith(b"\n") and line.count(b"\n") == 1
        self.lines.append(line)
        self.news.set()

    def write_json(self, value: Any) -> None:
        self.write_line(encode(value) + b"\n")

    def write_later(self, line: Callable[[], bytes]) -> None:
        self.write_line(line())

    def frames(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]


class Chunks:
    """Stands for the process's input."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()

    def feed(self, data: bytes | None) -> None:
        self._queue.put_nowait(data)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (chunk := await self._queue.get()) is not None:
            yield chunk


ID = st.integers(-3, 3) | st.text(max_size=2) | st.none() | st.floats(0, 1) | st.booleans() | JSON
FRAME = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | JSON,
        "id": ID,
        "method": st.sampled_from(["echo", "fail", "boom", "odd", "nothing"]) | JSON,
        "params": JSON,
        "result": JSON,
        "error": JSON,
    },
)
LINE = (
    FRAME.map(lambda frame: json.dumps(frame, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    | JSON.map(lambda value: json.dumps(value).encode())
    | st.lists(FRAME, max_size=2).map(lambda batch: json.dumps(batch).encode())
    | st.binary(max_size=8).map(lambda data: data.replace(b"\n", b""))
    | st.sampled_from(
        [b"", b"{", b" ", b"\r", b'{"a": NaN}', b"\xff", b'{"id":1,"id":2,"method":"echo"}', b"[" * 3000, b"-" * 9]
    )
)
INPUT = st.lists(LINE, max_size=6).map(lambda lines: b"".join(line + b"\n" for line in lines))


async def answer(method: str, params: Any) -> Any:
    if method == "fail":
        raise RpcError(-32000, "no", {"why": params})
    if method == "boom":
        raise ValueError("boom")
    if method == "odd":
        return {"set": {1}, "nan": float("nan")}
    return {"method": method, "params": params}


def serve(pieces: Sequence[bytes], strict: bool) -> list[Any]:
    async def run() -> list[Any]:
        out: Any = Lines()
        peer = JsonRpcPeer(out, answer, answer_malformed=strict)

        async def source() -> AsyncIterator[bytes]:
            for piece in pieces:
                yield piece

        await asyncio.wait_for(peer.serve(source(), grace=5), 20)
        frames: list[Any] = out.frames()
        return frames

    return asyncio.run(run())


def canonical(frames: list[Any]) -> list[str]:
    return sorted(json.dumps(frame, sort_keys=True) for frame in frames)


def decodable(line: bytes) -> Any:
    try:
        return json.loads(line.decode(), parse_constant=lambda name: 1 / 0)
    except (ValueError, ZeroDivisionError, RecursionError):
        return ValueError


@fuzz(250)
@given(INPUT, CUTS, st.booleans(), st.binary(max_size=5).map(lambda data: data.replace(b"\n", b"")))
def test_any_lines_are_answered_once_each_however_they_are_cut(
    data: bytes, cuts: list[float], strict: bool, half: bytes
) -> None:
    frames = serve([data], strict)
    for frame in frames:
        assert frame["jsonrpc"] == "2.0" and "id" in frame
        assert ("result" in frame) != ("error" in frame)
        if "error" in frame:
            assert type(frame["error"]["code"]) is int and isinstance(frame["error"]["message"], str)
    asked = []
    for line in data.split(b"\n")[:-1]:
        frame = decodable(line)
        if isinstance(frame, dict) and isinstance(frame.get("method"), str) and "id" in frame:
            asked.append(json.dumps(frame["id"]))
    answered = Counter(json.dumps(frame["id"]) for frame in frames)
    if "-0" not in data.decode("latin-1") and "1e" not in data.decode("latin-1"):
        assert answered >= Counter(asked) or not _plain(data)
        if not strict:  # a whole number is answered without its point
            assert answered <= Counter(asked) or not _plain(data)
    assert canonical(serve([*slices(data, cuts), half], strict)) == canonical(frames)


def _plain(data: bytes) -> bool:
    """Whether every number and character is one that both decoders read alike."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return not any(0xD800 <= ord(char) <= 0xDFFF for char in text) and "\\ud" not in text and "." not in text


# --- the servers themselves

ROWS = """\
- {id: agent-loop, name: dsh-agent-loop}
- {id: system-prompt, name: dsh-system-prompt}
- {id: llm, name: dsh-llm}
- {id: llm-demo, name: dsh-llm-demo}
- {id: session, name: dsh-session}
- {id: agent, name: dsh-agent}
- {id: tools, name: dsh-tools}
- {id: invariants, name: dsh-invariants}
- {id: persistence, name: dsh-session-persistence-jsonl, config: {root: ./sessions, durability: os}}
- {id: checkpoints, name: dsh-session-checkpoint-policy}
- {id: default-model, name: dsh-agent-default-model, config: {provider: demo, model: demo}}
"""
SERVERS = {
    "sdk": "- {id: server, name: dsh-sdk-jsonrpc-server}\n",
    "acp": "- {id: server, name: dsh-acp, config: {provider: demo, model: demo, presentation: automation}}\n",
    "acp-editor": "- {id: server, name: dsh-acp, config: {provider: demo, model: demo, presentation: editor}}\n",
}
SESSION = st.sampled_from(["s1", "s2", "nobody", "", "../x", "a" * 300, "日本", "\ud800", "s\0"]) | JSON
BLOCKS = st.lists(
    st.sampled_from(
        [{"type": "text", "text": "hi"}, {"type": "text"}, {"type": "image", "data": "x"}, {"type": "resource"}]
    )
    | JSON,
    max_size=2,
)
PATHS = st.sampled_from(["/tmp", "relative", "", "/nowhere/at/all", "/tmp/\0"]) | JSON
PARAMS = {
    "sessionId": SESSION,
    "cwd": PATHS,
    "contentBlocks": BLOCKS,
    "content": BLOCKS | st.text(max_size=4),
    "prompt": BLOCKS,
    "mcpServers": st.just([]) | JSON,
    "protocolVersion": st.sampled_from([0, 1, 99]) | JSON,
    "clientCapabilities": JSON,
    "workingDirectory": PATHS,
    "provider": st.sampled_from(["demo", "none"]) | JSON,
    "model": st.sampled_from(["demo", ""]) | JSON,
    "modelId": st.sampled_from(["demo/demo", "x"]) | JSON,
    "configId": JSON,
    "value": JSON,
    "fromSeq": st.integers(-2, 5) | JSON,
    "limit": st.integers(-2, 5) | JSON,
    "cursor": JSON,
    "requestId": JSON,
    "optionId": JSON,
    "text": st.text(max_size=3),
    "directory": PATHS,
    "methodId": JSON,
}
TEXT = [{"type": "text", "text": "hi"}]
LIVE = "@live"
"""Stands for a session that is open."""
METHODS: dict[str, dict[str, dict[str, Any]]] = {
    "sdk": {
        "initialize": {"provider": "demo", "model": "demo", "workingDirectory": "/tmp"},
        "session/prompt": {"sessionId": "s1", "contentBlocks": TEXT},
        "session/resume": {"sessionId": "s1"},
        "session/working-directory/get": {"sessionId": "s1"},
        "session/working-directory/set": {"sessionId": "s1", "path": "/tmp"},
        "session/cancel": {"sessionId": "s1"},
        "session/list": {},
        "session/read": {"sessionId": "s1", "fromSeq": 0},
        "session/close": {"sessionId": "s1"},
        "permission/respond": {"requestId": "r", "optionId": "o"},
        "nothing": {},
    },
    "acp": {
        "initialize": {"protocolVersion": 1, "clientCapabilities": {}},
        "authenticate": {"methodId": "x"},
        "session/new": {"cwd": "/tmp", "mcpServers": []},
        "session/prompt": {"sessionId": LIVE, "prompt": TEXT},
        "session/load": {"sessionId": LIVE, "cwd": "/tmp", "mcpServers": []},
        "session/resume": {"sessionId": LIVE, "cwd": "/tmp", "mcpServers": []},
        "session/list": {},
        "session/close": {"sessionId": LIVE},
        "session/set_model": {"sessionId": LIVE, "modelId": "demo/demo"},
        "session/set_config_option": {"sessionId": LIVE, "configId": "model", "value": "demo/demo"},
        "session/cancel": {"sessionId": LIVE},
        "nothing": {},
    },
}


def calls_of(protocol: str) -> st.SearchStrategy[tuple[str, Any]]:
    """Requests that are right, or wrong in a place or two, or nothing but wrong."""

    def spoiled(method: str) -> st.SearchStrategy[tuple[str, Any]]:
        right = METHODS[protocol][method]
        wrong = st.fixed_dictionaries(
            {}, optional={key: PARAMS.get(key, JSON) for key in [*right, "cursor", "sessionId"]}
        )
        params = st.just(right) | wrong.map(lambda odd: {**right, **odd}) | wrong | JSON
        return params.map(lambda params: (method, params))

    return st.sampled_from(list(METHODS[protocol])).flatmap(spoiled)


SENTINEL = {"sdk": ("session/list", {}), "acp": ("initialize", {"protocolVersion": 1, "clientCapabilities": {}})}


class Served:
    """A composition that serves one of the protocols, kept between examples; `ask` plays one example."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory(prefix="dsh-fuzz-")
        self.out = Lines()
        self._number = 0
        self._live = "s1"
        self._context: Any = None
        self.runner.run(self._start())

    async def _start(self) -> None:
        folder = Path(self.folder.name)
        (folder / "cordis.yml").write_text(ROWS + SERVERS[self.kind])
        self.source = Chunks()
        self.out.news = asyncio.Event()

        def prepare(root: Context) -> None:
            root.provide("stdioProtocol", {"sdk": "jsonrpc"}.get(self.kind, "acp"))
            root.provide("stdin", self.source)
            root.provide("stdout", self.out)

        environment = LaunchEnvironment([EnvLayer("process", {})])
        self._context = boot(
            folder / "cordis.yml", environment=environment, home=Home(folder / "home", "~"), prepare=prepare
        )
        self.app = await self._context.__aenter__()
        protocol = self.kind.partition("-")[0]
        (begun,) = await self._answers([("initialize", METHODS[protocol]["initialize"])])
        assert "result" in begun, begun

    def ask(self, calls: Sequence[tuple[str, Any]]) -> list[Any]:
        return self.runner.run(self._answers(calls))

    async def _answers(self, calls: Sequence[tuple[str, Any]]) -> list[Any]:
        """Send requests side by side and wait until each has its answer; the answers in order of the requests."""
        first = self._number + 1
        for method, params in calls:
            self._number += 1
            if isinstance(params, dict) and params.get("sessionId") == LIVE:
                params = {**params, "sessionId": self._live}
            frame = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
            self.source.feed(json.dumps(frame).encode() + b"\n")
        wanted = set(range(first, self._number + 1))
        answers: dict[int, list[Any]] = {}
        async with asyncio.timeout(30):
            while True:
                for line in self.out.lines:
                    frame = json.loads(line)
                    assert frame["jsonrpc"] == "2.0"
                    if "method" in frame:
                        if "id" in frame:  # the server asks: the client knows nothing
                            error = {"code": -32601, "message": "no"}
                            self.source.feed(
                                json.dumps({"jsonrpc": "2.0", "id": frame["id"], "error": error}).encode() + b"\n"
                            )
                        continue
                    assert ("result" in frame) != ("error" in frame)
                    answers.setdefault(frame["id"], []).append(frame)
                self.out.lines.clear()
                if wanted <= answers.keys():
                    break
                self.out.news.clear()
                await self.out.news.wait()
        assert all(len(frames) == 1 for frames in answers.values()) and answers.keys() <= wanted
        for frame in (frames[0] for frames in answers.values()):
            if isinstance(frame.get("result"), dict) and "sessionId" in frame["result"]:
                self._live = frame["result"]["sessionId"]
        return [answers[number][0] for number in sorted(wanted)]

    def close(self) -> None:
        async def end() -> None:
            self.source.feed(None)
            await self._context.__aexit__(None, None, None)

        self.runner.run(end())
        self.runner.close()
        self.folder.cleanup()


@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_answers_any_requests_and_stays_usable(kind: str) -> None:
    protocol = kind.partition("-")[0]
    served = Served(kind)

    @fuzz(120)
    @given(st.lists(calls_of(protocol), min_size=1, max_size=4))
    def play(calls: list[tuple[str, Any]]) -> None:
        *answers, usable = served.ask([*calls, SENTINEL[protocol]])
        assert "result" in usable, usable
        for frame in answers:
            if "error" in frame:
                assert type(frame["error"]["code"]) is int and frame["error"]["message"]
                assert "Traceback" not in frame["error"]["message"]

    try:
        play()
        assert not served.app.is_over
    finally:
        served.close()


def test_fault02_a_character_of_a_frame_may_arrive_byte_by_byte() -> None:
    said = "你好，世界 😀 \u2028 ça va"
    frame = {"jsonrpc": "2.0", "id": 1, "method": "echo", "params": {"text": said}}
    data = json.dumps(frame, ensure_ascii=False).encode() + b"\n"
    (answered,) = serve([bytes([byte]) for byte in data], True)
    assert answered["result"]["params"] == {"text": said}
