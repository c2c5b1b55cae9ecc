"""Take the guard against one known fault away and see its test fail: ``python -m tests.faults.guards [ROW ...]``.

A guard is a few characters of the source; without them the fault is back. The source is copied first and only the copy
is changed, so a run never touches the tree it was started from. A guard whose text is no longer there is reported as
stale: the code has moved, and the guard has to be named anew.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Guard:
    """`old` stands once in `file`; with `new` in its place at least one of `tests` must fail."""

    row: int
    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def _guard(row: int, what: str, file: str, old: str, new: str, *tests: str) -> Guard:
    return Guard(row, what, file, old, new, tests)


DRIVER = "dsh/core/driver.py"
BATCH = "dsh/core/tool_batch.py"
PIPELINE = "dsh/core/tool_pipeline.py"
RESPONSE = "dsh/models/deepseek/response.py"
ADAPTER = "dsh/models/deepseek/adapter.py"
REQUEST = "dsh/models/deepseek/request.py"
MODELS = "tests/models/test_faults.py::"

GUARDS: tuple[Guard, ...] = (
    _guard(
        1,
        "the clock that counts events",
        "dsh/llm/transport/deadline.py",
        "return min(self._active_at + self._idle, self._since + self._progress - self._waited)",
        "return self._active_at + self._idle",
        MODELS + "test_fault01_a_stream_of_pings_alone_is_cut_retried_and_given_up",
    ),
    _guard(
        1,
        "a cancel reaches a waiting stream",
        "dsh/llm/transport/deadline.py",
        "self._undo = None if signal is None else signal.on_abort(self._on_abort)",
        "self._undo = None",
        MODELS + "test_fault01b_cancel_works_while_only_pings_arrive",
    ),
    _guard(
        2,
        "bytes stay bytes until a line is whole (stream)",
        "dsh/llm/transport/http.py",
        "parser.feed(slice_)",
        'parser.feed(slice_.decode("utf-8", "replace").encode())',
        MODELS + "test_fault02_characters_split_over_network_chunks_arrive_whole",
    ),
    _guard(
        2,
        "bytes stay bytes until a line is whole (command output)",
        "dsh/shell/collector.py",
        "self._chunks.append(data)\n",
        'self._chunks.append(data.decode("utf-8", "replace").encode())\n',
        "tests/shell/test_collector.py::test_a_character_in_two_pieces_is_one_character",
    ),
    _guard(
        3,
        "an error object inside a stream is an error",
        RESPONSE,
        'if isinstance(payload, dict) and payload.get("error"):',
        "if False:",
        MODELS + "test_fault03_an_error_inside_a_200_stream_is_a_typed_error_and_is_retried",
    ),
    _guard(
        4,
        "a stream without its end is no reply",
        ADAPTER,
        "if not reader.finish_word:",
        "if False:",
        MODELS + "test_fault04_a_cut_stream_is_no_success_and_executes_nothing",
    ),
    _guard(
        5,
        "reasoning goes back",
        REQUEST,
        "if thinking or reasoning:",
        "if False:",
        MODELS + "test_fault05_reasoning_goes_back_with_every_assistant_message",
    ),
    _guard(
        7,
        "an empty id erases nothing",
        RESPONSE,
        'call.id = call.id or _word(piece.get("id"))',
        'call.id = _word(piece.get("id"))',
        MODELS + "test_fault07_empty_identities_of_continuations_erase_nothing",
    ),
    _guard(
        7,
        "an empty name erases nothing",
        RESPONSE,
        'call.name = _word(function.get("name")) or call.name',
        'call.name = _word(function.get("name"))',
        MODELS + "test_fault07_empty_identities_of_continuations_erase_nothing",
    ),
    _guard(
        8,
        "no arguments are an empty object (call)",
        BATCH,
        "if not raw.strip():\n        return {}\n",
        "",
        MODELS + "test_fault08_calls_without_arguments_run_and_are_replayed_as_an_object",
    ),
    _guard(
        8,
        "no arguments are an empty object (replay)",
        REQUEST,
        'if arguments.strip() not in ("", "null") else "{}"',
        'if arguments.strip() not in ("", "null") else arguments',
        MODELS + "test_fault08_calls_without_arguments_run_and_are_replayed_as_an_object",
    ),
    _guard(
        9,
        "a reply cut at its limit holds no calls",
        "dsh/llm/assembler.py",
        'if self.finish["kind"] != "max-tokens":\n            return every',
        "if True:\n            return every",
        MODELS + "test_fault09_truncated_arguments_never_poison_the_session",
    ),
    _guard(
        9,
        "what goes back to the service is a JSON object",
        REQUEST,
        "if isinstance(value, dict):\n        return arguments",
        "if True:\n        return arguments",
        MODELS + "test_fault09_truncated_arguments_never_poison_the_session",
    ),
    _guard(
        16,
        "the whole tree is killed after the grace time",
        "dsh/shell/child.py",
        "tree.signal(signal.SIGKILL)",
        "pass",
        "tests/shell/test_turns.py::test_f16_a_cancelled_turn_leaves_no_process_and_one_result_a_call",
    ),
    _guard(
        16,
        "a cancel waits for the tree",
        "dsh/shell/bash.py",
        "if cause is not None:\n                await child.wait_for_exit()",
        "pass",
        "tests/shell/test_turns.py::test_f16_a_cancelled_turn_leaves_no_process_and_one_result_a_call",
    ),
    _guard(
        17,
        "a cancel ends the wait of a retry",
        "dsh/models/retry.py",
        "await until_abort(asyncio.sleep(delay_ms / 1000), stop)",
        "await asyncio.sleep(delay_ms / 1000)",
        "tests/models/test_retry.py::test_b48a_cancel_ends_the_wait",
    ),
    _guard(
        18,
        "a second signal leaves at once",
        "dsh/cli/host.py",
        "if self.code is not None:\n            _exit_now(128 + number)",
        "if self.code is not None:\n            return",
        "tests/cli/test_run.py::test_a_second_signal_leaves_at_once_and_no_child_behind",
    ),
    _guard(
        18,
        "a turn that a shutdown ends is closed in the log",
        DRIVER,
        'end = {"kind": "aborted", "reason": self._abort_cause()}\n',
        "raise\n",
        "tests/cli/test_run.py::test_a_signal_during_a_turn_closes_it_and_ends_its_children",
    ),
    _guard(
        19,
        "a torn end is cut before anything is appended",
        "dsh/sessions/jsonl_store.py",
        "self._store.writer.cut(fd, log.keep)",
        "pass",
        "tests/sessions/test_coordinator.py::test_f19_a_torn_end_is_cut_once_and_said_once",
    ),
    _guard(
        20,
        "a second process is refused",
        "dsh/sessions/lease.py",
        "fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "pass",
        "tests/sessions/test_lease.py::test_b12c_a_second_process_is_refused_in_one_sentence",
    ),
    _guard(
        20,
        "a lock dies with its owner though a fork lives on",
        "dsh/sessions/lease.py",
        "os.register_at_fork(after_in_child=in_child)",
        "pass",
        "tests/sessions/test_lease.py::test_f20a_a_lock_does_not_live_on_in_a_forked_child",
    ),
    _guard(
        21,
        "one bad log hides no good one",
        "dsh/sessions/stored.py",
        "except (OSError, SessionPersistenceError) as error:\n            listing.unreadable",
        "except ZeroDivisionError as error:\n            listing.unreadable",
        "tests/sessions/test_stored.py::test_f21a_bad_artifacts_hide_nothing_and_say_what_is_wrong",
        "tests/cli/test_commands.py::test_sessions_survive_bad_neighbours",
    ),
    _guard(
        23,
        "a mount without hard links",
        "dsh/sessions/log_file.py",
        "if error.errno not in _NO_LINKS:\n            raise",
        "raise",
        "tests/sessions/test_jsonl_store.py::test_f23a_without_hard_links_a_log_is_still_published_whole",
    ),
    _guard(
        23,
        "a mount without locks",
        "dsh/sessions/lease.py",
        "_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM, errno.ENOSYS, errno.EINVAL})",
        "_NO_LOCKS: Final = frozenset({0})",
        "tests/sessions/test_lease.py::test_f23d_where_locks_do_not_work_the_lease_runs_out_instead",
    ),
    _guard(
        24,
        "a newer log is refused by its version",
        "dsh/sessions/jsonl_codec.py",
        "if type(version) is int and version != SESSION_FORMAT_VERSION:",
        "if False:",
        "tests/sessions/test_log_format.py::test_b09a_a_newer_version_is_said_to_be_newer_whatever_else_the_header_holds",
    ),
    _guard(
        24,
        "an unknown event is refused unless it may be ignored",
        "dsh/core/stored_log.py",
        "raise UnknownEventTypeError",
        "print",
        "tests/sessions/test_coordinator.py::test_b09d_unknown_event_types_are_refused_kept_or_registered",
    ),
    _guard(
        25,
        "what was accepted is on disk",
        "dsh/sessions/log_file.py",
        "            _write_all(fd, content)\n            if self.durable:\n                os.fsync(fd)\n        except",
        "            os.write(fd, b'')\n        except",
        "tests/sessions/test_crash.py::test_f25_what_was_acknowledged_is_in_the_log_after_a_kill",
    ),
    _guard(
        30,
        "the folder is watched, not the file",
        "dsh/loader/watch.py",
        "                points.setdefault(point, set()).add(path)\n                folders.add(_existing_parent(point))",
        "                points.setdefault(point, set()).add(path)\n                folders.add(point)",
        "tests/loader/test_watch.py::test_b16a_saves_in_place_by_rename_and_deletion_are_seen",
        "tests/loader/test_hmr_config.py::test_b16i_every_kind_of_save_is_applied_once",
    ),
    _guard(
        30,
        "a save is taken once: contents are compared",
        "dsh/loader/config_watch.py",
        "or not (changed or forced) or",
        "or False or",
        "tests/loader/test_hmr_config.py::test_b16i_every_kind_of_save_is_applied_once",
    ),
    _guard(
        31,
        "a failed start takes the edit back",
        "dsh/loader/transaction.py",
        "problems += await self._roll_back()",
        "pass",
        "tests/loader/test_hmr_config.py::test_f31b_a_start_that_fails_rolls_the_whole_edit_back",
    ),
    _guard(
        32,
        "what a plugin defers is undone",
        "dsh/loader/transaction.py",
        "await self._dispose(step for step in self._steps if step.leaves and step not in self._gone)\n        self._commit()",
        "self._commit()",
        "tests/loader/test_hmr.py::test_f32b_a_row_toggled_a_hundred_times_leaves_nothing_behind",
    ),
    _guard(
        34,
        "an unknown key is told",
        "dsh/cordis/schema.py",
        "self._note_unknown(raw, walk, keys)",
        "pass",
        "tests/loader/test_reconcile.py::test_unknown_keys_warn_with_line_and_nearest_key",
        "tests/cli/test_commands.py::test_config_check_says_place_and_remedy",
    ),
    _guard(
        37,
        "a waiting row says what it waits for",
        "dsh/loader/audit.py",
        "message = f\"waiting for services: {', '.join(missing)}\"",
        'message = "is waiting"',
        "tests/loader/test_boot.py::test_b14a_a_waiting_row_is_reported_with_the_services_it_waits_for",
    ),
    _guard(
        37,
        "a circle is named",
        "dsh/loader/audit.py",
        "if circle else _provider_hint(loader, missing)",
        "if False else _provider_hint(loader, missing)",
        "tests/loader/test_boot.py::test_b14b_rows_that_wait_for_each_other_are_named",
    ),
    _guard(
        38,
        "a watcher that cannot start falls back to looking",
        "dsh/loader/watch.py",
        "except (OSError, RuntimeError, UnicodeError) as error:  # the last",
        "except ZeroDivisionError as error:  # the last",
        "tests/loader/test_watch.py::test_f38a_a_watcher_that_cannot_start_falls_back_to_polling_and_says_so",
    ),
    _guard(
        45,
        "a held pipe is waited for no longer than the grace time",
        "dsh/shell/child.py",
        "self._stream_timer = self._loop.call_later(self._grace, self._cut_off_streams)",
        "pass",
        "tests/shell/test_bash.py::test_f45_b09f_a_background_child_does_not_hold_the_call",
    ),
    _guard(
        46,
        "a time limit",
        "dsh/shell/bash.py",
        'timer = asyncio.get_running_loop().call_later(spec.timeout_ms / 1000, stop, "timeout")',
        'timer = asyncio.get_running_loop().call_later(60, stop, "timeout")',
        "tests/shell/test_bash.py::test_f46_b09a_a_time_limit_ends_the_tree_and_keeps_the_output",
    ),
    _guard(
        47,
        "output that is no text is decoded all the same",
        "dsh/shell/collector.py",
        'getincrementaldecoder("utf-8")("replace")',
        'getincrementaldecoder("utf-8")("strict")',
        "tests/shell/test_collector.py::test_f47a_bytes_that_are_no_text_are_marked",
        "tests/shell/test_bash.py::test_f47b_output_that_is_no_text_never_raises",
    ),
    _guard(
        48,
        "only what was edited is written anew",
        "dsh/files/text.py",
        'return "\\r" if crlf == lf == 0 and "\\r" in head else "\\n"',
        'return "\\n"',
        "tests/files/test_tools.py::test_f48_b03p_only_the_edited_bytes_differ",
    ),
    _guard(
        48,
        "a byte order mark stays",
        "dsh/files/text.py",
        'bom = _BOM if text.startswith(_BOM) else ""',
        'bom, text = "", text.removeprefix(_BOM)',
        "tests/files/test_tools.py::test_f48_b03p_only_the_edited_bytes_differ",
    ),
)


@dataclass(frozen=True)
class Verdict:
    """What came of one guard: ``caught`` (a test failed), ``missed`` (all passed) or ``stale`` (no such text)."""

    guard: Guard
    outcome: str
    failed: int
    seconds: float


def try_without(guard: Guard, copy: Path) -> Verdict:
    """Run the tests of `guard` in `copy`, a copy of the project, with the guard taken away; then put it back."""
    path = copy / guard.file
    text = path.read_text("utf-8")
    if text.count(guard.old) != 1:
        return Verdict(guard, "stale", 0, 0.0)
    begun = time.monotonic()
    path.write_text(text.replace(guard.old, guard.new), "utf-8")
    try:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=45", *guard.tests]
        env = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True)
    finally:
        path.write_text(text, "utf-8")
    # 1: tests failed; anything else that is not 0 means pytest could not run them, as with an unknown test name
    outcome = "caught" if done.returncode == 1 else "missed" if done.returncode == 0 else f"error {done.returncode}"
    if outcome.startswith("error"):
        sys.stderr.write(done.stdout[-2000:] + done.stderr[-2000:])
    failed = sum(line.startswith(("FAILED", "ERROR")) for line in done.stdout.splitlines())
    return Verdict(guard, outcome, failed, time.monotonic() - begun)


def main(wanted: Sequence[str]) -> int:
    """Try the guards of the given rows, or all; 0 when every one was caught."""
    rows = {int(each) for each in wanted}
    verdicts = []
    with tempfile.TemporaryDirectory(prefix="dsh-guards-") as folder:
        copy = Path(folder) / "dsh"
        kept = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis")
        shutil.copytree(ROOT, copy, ignore=kept, symlinks=True)
        for guard in GUARDS:
            if rows and guard.row not in rows:
                continue
            verdict = try_without(guard, copy)
            verdicts.append(verdict)
            print(
                f"{guard.row:3} {verdict.outcome:7} {verdict.failed:3} failed {verdict.seconds:6.1f} s  {guard.what}",
                flush=True,
            )
    missed = [verdict for verdict in verdicts if verdict.outcome != "caught"]
    print(f"{len(verdicts)} guards, {len(verdicts) - len(missed)} caught, {len(missed)} not")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
