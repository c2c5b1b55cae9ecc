"""The child process that runs a local model: ``python -m dsh.models.local_child``.

It reads one JSON line with its settings from stdin, loads the model, writes one JSON line with its address to stdout,
and serves until stdin closes. The pipe is held by the parent alone, so the child also ends when the parent is killed.
Native code can crash; here it takes only itself down. Nothing but the model library is imported.
"""

from __future__ import annotations

import json
import os
import sys
import threading


def main() -> None:
    """Serve one model until the parent goes away."""
    settings = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Whatever the native library prints must not end up between us and the parent.
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = settings["modelPath"]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [settings["apiKey"]]
    params.n_ctx = settings["contextWindow"]
    params.n_parallel = 1
    params.warmup = False
    params.cpuparams.n_threads = settings["threads"]
    params.cpuparams_batch.n_threads = settings["threads"]
    server = xllamacpp.Server(params)
    print(json.dumps({"url": server.listening_address}), file=channel, flush=True)
    threading.Event().wait()


def _end_with_parent() -> None:
    while sys.stdin.read(4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
