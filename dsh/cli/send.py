"""``dsh send``: a prompt for an agent of a running daemon."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from dsh.cli.daemons import control_errors, home_folder
from dsh.cli.output import fail, read_stdin, tell, usable_text

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def send(
    agent: Annotated[
        str, typer.Argument(help="Label, session id or the unique beginning of one; PID: before it names the daemon.")
    ],
    text: Annotated[str, typer.Argument(help="The prompt; - reads it from standard input.")],
    steer: Annotated[bool, typer.Option("--steer", help="Into the running turn, at its next step.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the turn; print its final text.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Send a prompt to an agent of a running daemon; prints the message's id.

    It waits for its turn if the agent works. With --wait the exit code is 0 when that turn completed.
    """
    import json

    from dsh.interfaces.control.client import find_agent
    from dsh.interfaces.control.following import Follower
    from dsh.interfaces.control.prompt_watch import PromptWatch
    from dsh.interfaces.terminal_text import printable

    text = usable_text(read_stdin() if text == "-" else text, "prompt")
    with control_errors():
        home = home_folder()
        target = find_agent(home, agent)
        with target.client() as client:
            body = {"content": text, "mode": "steer" if steer else "next-turn"}
            answer = client.send("POST", target.path("/prompt"), body)
            sent = {"sessionId": target.session_id, "messageId": answer["messageId"]}
            if not wait:
                typer.echo(json.dumps(sent) if as_json else answer["messageId"])
                return
        watch = PromptWatch(answer["messageId"])
        follower = Follower(home, target, None, answer["seq"] - 1, wait=False, say=tell)
        for frame in follower.frames():
            if watch.see(frame):
                break
    if as_json:
        typer.echo(json.dumps({**sent, "status": watch.status, "output": watch.output, "error": watch.error}))
    elif watch.output or watch.status == "completed":
        typer.echo(printable(watch.output) if sys.stdout.isatty() else watch.output)
    if watch.error is not None:
        fail(f"{watch.error['code']}: {watch.error['message']}")
    if watch.status == "discarded":
        fail("the prompt was taken out of the queue unread")
    if watch.status == "parked":
        fail("the agent stopped working with the prompt still in its queue")
    if watch.status != "completed":
        fail(f"the turn ended as {watch.status}")
