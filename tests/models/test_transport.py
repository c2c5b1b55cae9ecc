"""The HTTP client under the DeepSeek route: laziness, TLS, proxies, closing."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dsh.llm.transport import http
from dsh.models.mock_server import MockLlmServer
from tests.models.helpers import KEY, stack


@pytest.mark.parametrize(
    "module", ["dsh.models.deepseek", "dsh.models.local", "dsh.models.retry", "dsh.models.replay", "dsh.llm.service"]
)
def test_importing_a_row_imports_no_http_client(module: str) -> None:
    program = f"import sys, {module}; print([name for name in ('httpx', 'httpcore', 'h11') if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


async def test_a_plain_url_builds_no_tls_context(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Any:
        raise AssertionError("built a TLS context for a plain URL")

    monkeypatch.setattr(http, "_tls_context", refuse)
    async with stack(["success"]) as s:
        assert (await s.reply()).finish == {"kind": "stop"}
        await http.HttpClient().warm(s.server.url)


async def test_the_tls_context_is_one_for_the_process() -> None:
    client = http.HttpClient()
    await asyncio.gather(client.warm("https://a"), client.warm("https://b"))
    first = http._tls_context()
    assert isinstance(first, ssl.SSLContext) and http._tls_context() is first


async def test_loopback_goes_past_the_proxy_and_everything_else_through_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with MockLlmServer([{"text": "by proxy"}]) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        async with stack([{"text": "directly"}]) as s:
            assert (await s.reply()).blocks()[0]["text"] == "directly"
        async with stack(baseURL="http://model.invalid/v1") as s:
            assert (await s.reply()).blocks()[0]["text"] == "by proxy"
        assert proxy.requests[0].path == "http://model.invalid/v1/chat/completions"


async def test_redirects_are_not_followed_with_the_key() -> None:
    async with MockLlmServer(["success"]) as elsewhere:
        moved = {"status": 302, "error": {"message": "moved"}, "headers": {"Location": elsewhere.url}}
        async with stack([moved]) as s:
            assert (await s.reply()).finish["failure"]["code"] == "HTTP_302"
        assert elsewhere.requests == []


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
async def test_an_unknown_certificate_is_refused_with_a_hint(tmp_path: Path) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost"
    subprocess.run([*command.split(), "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    received: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read(100))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with stack(baseURL=f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}") as s:
        failure = (await s.reply()).finish["failure"]
        assert failure["code"] == "TRANSPORT" and "SSL_CERT_FILE" in failure["message"]
        assert "certificate verify failed: self-signed certificate" in failure["message"]
    server.close()
    assert KEY.encode() not in b"".join(received)


async def test_unloading_the_row_closes_its_connections_and_later_use_is_a_transport_failure() -> None:
    async with stack(["success"]) as s:
        prepared = await s.llm.prepare_call(s.request().config)
        await s.reply()
        await s.row.dispose()
        chunks = [chunk async for chunk in prepared.stream(s.request_like(prepared.config))]
        assert chunks[-1]["reason"]["failure"]["code"] == "TRANSPORT"


async def test_no_task_survives_a_stream() -> None:
    async with stack(["success", "partial_disconnect", "stall"], streamIdleTimeoutMs=50) as s:
        before = len(asyncio.all_tasks())
        for _ in range(3):
            await s.reply()
        clients = [task for task in asyncio.all_tasks() if "mock" not in repr(task) and "_serve" not in repr(task)]
        assert len(clients) <= before
