"""Stands in for the native model library inside the child process: same names, a tiny HTTP server, no model.

What it answers follows from the request: a prompt holding ``CRASH`` kills the process in the middle of the stream,
``RAW:…`` on the last request line is streamed back as it is, and ``CUT`` ends at the token limit.
"""

import json
import os
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace


class CommonParams:
    def __init__(self):
        self.model = SimpleNamespace(path="")
        self.cpuparams = SimpleNamespace(n_threads=0)
        self.cpuparams_batch = SimpleNamespace(n_threads=0)


class Server:
    def __init__(self, params):
        if "broken" in params.model.path:
            raise RuntimeError("failed to load model: bad magic")
        print("native noise on stdout")
        handler = type("Handler", (_Handler,), {"key": params.api_keys[0]})
        self._http = ThreadingHTTPServer((params.hostnames[0], params.port), handler)
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        self.listening_address = f"http://127.0.0.1:{self._http.server_port}"


class _Handler(BaseHTTPRequestHandler):
    key = ""

    def log_message(self, *args):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Authorization"] != f"Bearer {self.key}":
            self.send_error(401)
            return
        if "refused" in json.dumps(body.get("messages", [])):
            payload = b'{"error": {"message": "this template has no tools", "code": 400}}'
            self.send_response(400)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        if "prompt" in body:
            self.complete(body)
        else:
            self.chat(body)
        self.event({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}})
        self.wfile.write(b"data: [DONE]\n\n")

    def complete(self, body):
        prompt = body["prompt"]
        raw = re.findall(r"RAW:(.*)", prompt)
        text = raw[-1] if raw else json.dumps({"answer": f"env={os.environ.get('OMP_WAIT_POLICY')}"})
        for at in range(0, len(text), 3):
            self.event({"choices": [{"text": text[at : at + 3], "finish_reason": None}]})
            if "CRASH" in prompt:
                os._exit(3)
        self.event({"choices": [{"text": "", "finish_reason": "length" if "CUT" in prompt else "stop"}]})

    def chat(self, body):
        names = ",".join(tool["function"]["name"] for tool in body.get("tools", ()))
        self.event({"choices": [{"delta": {"content": f"chat tools=[{names}] secret={os.environ.get('SECRET_KEY')}"}}]})
        self.event({"choices": [{"delta": {}, "finish_reason": "stop"}]})

    def event(self, payload):
        self.wfile.write(b"data: " + json.dumps(payload).encode() + b"\n\n")
        self.wfile.flush()
