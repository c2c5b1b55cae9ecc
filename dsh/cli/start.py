"""Where the console scripts begin: quiet when interrupted early, in UTF-8 whatever the locale says.

Imports as little as can be: until the handler is in place an interrupt ends in the traceback of the import it hit. The
module `signal` alone imports for 30 ms; the one behind it is built in.
"""

import _signal  # type: ignore[import-not-found]
import os
import sys


def main() -> None:
    """Entry point of ``dsh``."""
    prepare()
    from dsh.cli.main import main as command

    command()


def jsonrpc_agent() -> None:
    """Entry point of ``dsh-jsonrpc-agent``."""
    leave_quietly_until_started()
    prepare()
    from dsh.cli.jsonrpc import main as server

    server()


def leave_quietly_until_started() -> None:
    """Exit with code 0 on SIGTERM as long as a server has nothing to end: a client may change its mind early."""
    _signal.signal(_signal.SIGTERM, lambda *_: os._exit(0))


def prepare() -> None:
    """What has to be right before anything else is imported; calling it again changes nothing."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _leave)
    _use_utf8()


def _leave(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def _use_utf8() -> None:
    """Start over in UTF-8 mode where the locale knows no more than ASCII.

    Without it, files whose names are written in a composition cannot be opened, and names that were found cannot be
    written anywhere.
    """
    if sys.getfilesystemencoding() == "utf-8" or sys.flags.utf8_mode or not sys.executable:
        return
    os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


if __name__ == "__main__":
    main()
