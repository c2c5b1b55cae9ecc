"""Control of a running daemon: HTTP on an owner-only Unix socket, and on loopback TCP when asked.

Row ``control`` (``server``) opens the sockets and notes the daemon in the run folder (``run_folder``); nothing else of
this package is imported before somebody connects. ``connection`` speaks HTTP, ``doors`` decides who may enter,
``routes`` is the one table of what can be asked; the handlers stand in ``host_api``, ``session_api`` and ``live_api``,
live events in ``feed`` and ``subscription``. ``client`` is the other side, for the commands; on it stand ``following``
(one session, over restarts of its daemon), ``prompt_watch`` (what came of a prompt) and ``remote`` (the console of
another terminal).
"""
