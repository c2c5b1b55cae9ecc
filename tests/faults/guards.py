# ruff: noqa: E501 (texts of the source are quoted as they stand)
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


Edit = tuple[str, str, str]
"""A file, a text that stands in it once, and what takes its place."""


@dataclass(frozen=True)
class Guard:
    """With these edits the fault is back: at least one of `tests` must fail."""

    row: int
    what: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]


def _guard(row: int, what: str, file: str, old: str, new: str, *tests: str, also: Sequence[Edit] = ()) -> Guard:
    return Guard(row, what, ((file, old, new), *also), tests)


BATCH = "dsh/core/tool_batch.py"
DRIVER = "dsh/core/driver.py"
PIPELINE = "dsh/core/tool_pipeline.py"
RESPONSE = "dsh/models/deepseek/response.py"
ADAPTER = "dsh/models/deepseek/adapter.py"
REQUEST = "dsh/models/deepseek/request.py"
MODELS = "tests/models/test_faults.py::"
TOOLS = "tests/faults/test_tools.py::"
EDITS = "tests/faults/test_edits.py::"
STOPS = "tests/faults/test_interrupts.py::"
STORED = "tests/faults/test_sessions.py::"
GROWTH = "tests/faults/test_growth.py::"
ENDS = "tests/faults/test_exit_codes.py::"

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
        1,
        "a ping that is an event is no progress",
        ADAPTER,
        "                    if chunks := _read(reader, name, data, reply, peer):\n                        reply.progressed()\n",
        "                    reply.progressed()\n                    if chunks := _read(reader, name, data, reply, peer):\n",
        MODELS + "test_fault01c_pings_that_are_events_are_no_progress_either",
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
        "no arguments are an empty object (replay)",
        REQUEST,
        'if arguments.strip() not in ("", "null") else "{}"',
        'if arguments.strip() not in ("", "null") else arguments',
        MODELS + "test_fault08_calls_without_arguments_run_and_are_replayed_as_an_object",
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
        17,
        "a cancel ends the wait of a retry",
        "dsh/models/retry.py",
        "await until_abort(asyncio.sleep(delay_ms / 1000), stop)",
        "await asyncio.sleep(delay_ms / 1000)",
        "tests/models/test_retry.py::test_b48a_cancel_ends_the_wait",
    ),
    _guard(
        18,
        "a turn that a shutdown ends is closed in the log",
        DRIVER,
        'end = {"kind": "aborted", "reason": signal.reason}\n',
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
        "dsh/loader/failures.py",
        "message = f\"waiting for services: {', '.join(missing)}\"",
        'message = "is waiting"',
        "tests/loader/test_boot.py::test_b14a_a_waiting_row_is_reported_with_the_services_it_waits_for",
    ),
    _guard(
        37,
        "a circle is named",
        "dsh/loader/failures.py",
        "for ring in rings(lacking, after):",
        "for ring in ():",
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
    _guard(
        6,
        "a field that a gateway refuses can be left out",
        REQUEST,
        "    for name in omit:\n        body.pop(name, None)\n",
        "",
        "tests/faults/test_messages.py::test_fault06_a_gateway_that_refuses_a_field_is_met_by_a_switch_that_the_error_names",
    ),
    _guard(
        6,
        "the error names field and switch",
        ADAPTER,
        'elif failure.code == "INVALID_REQUEST" and (named := _optional_fields(failure.message)):',
        "elif False and (named := _optional_fields(failure.message)):",
        "tests/faults/test_messages.py::test_fault06_a_gateway_that_refuses_a_field_is_met_by_a_switch_that_the_error_names",
    ),
    _guard(
        2,
        "bytes stay bytes until a line is whole (JSON-RPC)",
        "dsh/interfaces/stdio_jsonrpc.py",
        'chunk.split(b"\\n")',
        'chunk.decode("utf-8", "replace").encode().split(b"\\n")',
        "tests/fuzz/test_protocols.py::test_fault02_a_character_of_a_frame_may_arrive_byte_by_byte",
    ),
    _guard(
        8,
        "no arguments are an empty object (call)",
        BATCH,
        "    if not raw.strip():\n        return {}\n    try:",
        "    try:",
        MODELS + "test_fault08_calls_without_arguments_run_and_are_replayed_as_an_object",
        TOOLS + "test_fault08_a_call_without_arguments_survives_a_resume",
    ),
    _guard(
        9,
        "a reply cut at its limit holds no calls",
        "dsh/llm/assembler.py",
        'if self.finish["kind"] != "max-tokens":\n            return every',
        "if True:\n            return every",
        TOOLS + "test_fault09_after_truncated_arguments_the_session_goes_on_and_resumes",
    ),
    _guard(
        10,
        "an unknown tool is an answer and no accident",
        PIPELINE,
        "if tool is None:\n            result = ToolResult.from_error(ToolNotFoundError(run.name))",
        "if tool is None:\n            raise KeyError(run.name)",
        TOOLS + "test_fault10_an_unknown_tool_is_answered_and_its_neighbour_runs",
    ),
    _guard(
        11,
        "values of variables are never looked at again",
        "dsh/core/prompt_render.py",
        "done.append(_value_of(group, variables, kind, name))\n        at = group.end()",
        "text = text[:start] + _value_of(group, variables, kind, name) + text[group.end() :]\n        at = start",
        TOOLS + "test_fault11_only_declared_templates_are_expanded",
    ),
    _guard(
        11,
        "an unknown name of a template is refused",
        "dsh/core/prompt_render.py",
        "raise PromptError(texts.unknown_variable(variable, kind, section, variables))",
        'return ""',
        TOOLS + "test_fault11_an_unknown_name_of_a_declared_template_is_named_with_its_place",
    ),
    _guard(
        12,
        "whatever a body raises is its result",
        "dsh/core/tool_body.py",
        "    except BaseException as error:\n        if stops_host(error):\n            raise\n        return None, error",
        "    except ValueError as error:\n        return None, error",
        TOOLS + "test_fault12_whatever_a_tool_does_its_call_has_one_result_and_its_neighbours_run",
    ),
    _guard(
        13,
        "text is text, whatever it looks like",
        RESPONSE,
        'prose.index: {"type": kind, "text": "".join(prose.parts)}',
        'prose.index: {"type": "tool-call", "id": "x", "name": "echo", "arguments": "{}"}'
        ' if "<tool_call>" in "".join(prose.parts) else {"type": kind, "text": "".join(prose.parts)}',
        TOOLS + "test_fault13_text_that_looks_like_a_call_stays_text",
    ),
    _guard(
        14,
        "results are logged in the order of the calls",
        BATCH,
        "while self._started and self._started[0].settled:\n"
        "                await self._commit(self._started.popleft())",
        "for one in [each for each in self._started if each.settled]:\n"
        "                self._started.remove(one)\n                await self._commit(one)",
        TOOLS + "test_fault14_results_come_in_call_order_and_exclusive_calls_are_barriers",
    ),
    _guard(
        14,
        "an exclusive call is a barrier",
        BATCH,
        "and len(running) < cap and self._next_is_parallel():",
        "and len(running) < cap:",
        TOOLS + "test_fault14_results_come_in_call_order_and_exclusive_calls_are_barriers",
    ),
    _guard(
        15,
        "calls that a cancel kept from starting are answered",
        BATCH,
        "for call, raw in self._waiting:\n                self._skip(call, raw)",
        "pass",
        STOPS + "test_fault15_a_cancel_among_running_and_waiting_calls_leaves_one_result_each",
    ),
    _guard(
        15,
        "calls that a crash left open are answered at the next start",
        "dsh/core/repair.py",
        "for call_id, call_seq in pending.items():",
        "for call_id, call_seq in dict[str, int]().items():",
        STOPS + "test_fault15_a_kill_among_calls_is_repaired_by_the_next_start",
    ),
    _guard(
        16,
        "who does not listen to TERM is killed",
        "dsh/shell/child.py",
        "            tree.signal(signal.SIGKILL)\n",
        "            pass\n",
        STOPS + "test_fault16_a_cancelled_tree_is_gone_before_the_turn_ends",
    ),
    _guard(
        16,
        "what comes after the abort is discarded",
        PIPELINE,
        "if not result.is_error and self._caller.aborted:\n            result = _aborted(self._started, result.additional_contexts)",
        "if False:\n            pass",
        STOPS + "test_fault16_what_a_thread_still_answers_after_the_cancel_is_discarded_and_that_is_said",
        also=[
            (
                PIPELINE,
                "if not result.is_error and self._caller.aborted:\n                result = _aborted(True)",
                "if False:\n                pass",
            ),
            (PIPELINE, "if not judged.is_error and self._caller.aborted:", "if False:"),
        ],
    ),
    _guard(
        17,
        "a cancel ends the wait for a prompt",
        "dsh/core/system_prompt.py",
        "answer = await until_abort(awaiting(answer), context.signal)",
        "answer = await answer",
        STOPS + "test_fault17_a_cancel_reaches_every_place_where_a_turn_waits",
    ),
    _guard(
        18,
        "a second signal leaves at once",
        "dsh/cli/host.py",
        "            _exit_now(128 + number, self.line)\n",
        "            return\n",
        STOPS + "test_fault18_a_signal_closes_the_turn_ends_children_and_says_its_code",
    ),
    _guard(
        19,
        "the tear is cut (from the command line)",
        "dsh/sessions/jsonl_store.py",
        "self._store.writer.cut(fd, log.keep)",
        "pass",
        STORED + "test_fault19_a_torn_last_line_is_cut_once_and_said_once",
    ),
    _guard(
        22,
        "a resume restores the model",
        "dsh/interfaces/headless.py",
        "restore_route=True",
        "restore_route=False",
        STORED + "test_fault22_a_resume_restores_model_and_folder_and_names_what_is_gone",
    ),
    _guard(
        22,
        "a resume works in the session's folder",
        "dsh/cli/resume.py",
        "        _enter(entry)\n",
        "",
        STORED + "test_fault22_a_resume_restores_model_and_folder_and_names_what_is_gone",
    ),
    _guard(
        22,
        "a model that is gone is named and replaced",
        "dsh/core/creation.py",
        "if reason is None:\n        return AgentOptions",
        "if True:\n        return AgentOptions",
        STORED + "test_fault22_a_resume_restores_model_and_folder_and_names_what_is_gone",
    ),
    _guard(
        24,
        "an unknown event is refused unless it may be ignored",
        "dsh/core/event_types.py",
        "if event.type not in known and not event.ignorable:",
        "if False:",
        STORED + "test_fault24_a_log_of_another_version_is_refused_or_kept_but_never_half_understood",
    ),
    _guard(
        25,
        "what was accepted is on disk",
        "dsh/sessions/live_log.py",
        "        if self.clean:\n            return None\n        future",
        "        if True:\n            return None\n        future",
        "tests/sessions/test_crash.py::test_f25_what_was_acknowledged_is_in_the_log_after_a_kill",
    ),
    _guard(
        33,
        "a package is reloaded as one",
        "dsh/loader/code_reload.py",
        "upwards = closure(survey.importers, survey.changed)",
        "upwards = set(survey.changed)",
        "tests/loader/test_hmr.py::test_f33_a_package_of_three_files_is_one_unit_and_the_core_is_never_doubled",
    ),
    _guard(
        35,
        "a removed agent ends at its next step boundary",
        "dsh/core/configured_agents.py",
        "await configured.lifecycle.drain(DRAIN_SECONDS)",
        "await configured.lifecycle.dispose()",
        EDITS + "test_fault35_an_agent_row_that_is_removed_during_a_call_and_comes_back",
    ),
    _guard(
        35,
        "a started body finishes on its own definition",
        PIPELINE,
        "result = self._success(tool, value)",
        "result = self._from_value(value)",
        EDITS + "test_fault35_a_tool_row_that_is_removed_during_its_call",
    ),
    _guard(
        36,
        "an edit of the row reaches the next tool group",
        "dsh/core/agent_loop.py",
        'self._limits.rebase(LoopSettings.validate({"maxParallelToolCalls": new.max_parallel_tool_calls}))',
        "pass",
        "tests/settings/test_live_loop.py::test_b21b_the_limit_of_a_running_loop_follows_the_command_line_the_row_and_each_falls_back",
    ),
    _guard(
        58,
        "a locale that knows only ASCII is left behind",
        "dsh/cli/start.py",
        "    _use_utf8()\n\n\ndef _leave",
        "\n\ndef _leave",
        "tests/faults/test_places.py::test_fault58_files_commands_plugins_logs_and_resume_work_in_any_folder",
    ),
    _guard(
        60,
        "what was encoded before is not encoded again",
        "dsh/models/deepseek/history.py",
        "if messages[: len(before.messages)] != before.messages:",
        "if True:",
        GROWTH + "test_fault60_the_own_part_of_a_request_is_encoded_once",
    ),
    _guard(
        60,
        "the log's beginning is not walked again",
        "dsh/core/derivation.py",
        "if self._generation != surface.replace_generation:",
        "if True:",
        GROWTH + "test_fault60_a_late_step_costs_no_more_calls_than_an_early_one",
    ),
    _guard(
        61,
        "the loop lets go of an agent that ended",
        "dsh/core/creation.py",
        "        self._loop.lifecycles.discard(self)\n",
        "",
        GROWTH + "test_fault61_closed_sessions_are_freed",
    ),
    _guard(
        61,
        "the encoded conversation of a closed session is let go",
        "dsh/models/deepseek/__init__.py",
        "    ctx.on(SessionDisposed, lambda event: adapter.forget(event.session.id), global_=True)\n",
        "",
        GROWTH + "test_fault61_nothing_of_a_closed_conversation_is_kept_for_its_next_request",
    ),
    _guard(
        61,
        "only so many sessions stay warm",
        "dsh/sessions/prepared.py",
        "while len(self._kept) > self.size:",
        "while False:",
        "tests/sessions/test_coordinator.py::test_only_so_many_sessions_stay_warm",
    ),
    _guard(
        62,
        "only a completed run is a success",
        "dsh/interfaces/outcome.py",
        'return 0 if self.status == "completed" else 1',
        "return 0",
        ENDS + "test_fault62_completed_and_provider_error",
        ENDS + "test_fault62_a_step_limit",
    ),
    _guard(
        62,
        "a run that fails before its result says so in a last line",
        "dsh/cli/last_line.py",
        "if exit_code == 0 or self.out is None or self.out.concluded:",
        "if True:",
        ENDS + "test_fault62_a_bad_composition",
    ),
    _guard(
        62,
        "a run that raises says so in a last line",
        "dsh/interfaces/outcome.py",
        '    outcome.status, outcome.error = "error", {"message": message, "code": code}\n    write_result(out, form, outcome)\n',
        "",
        ENDS + "test_fault62_a_run_that_raises_before_its_end_still_says_so",
    ),
    _guard(
        12,
        "an odd value is a failure of its tool",
        PIPELINE,
        "frozen = snapshot_json(value)",
        "frozen = value",
        TOOLS + "test_fault12_whatever_a_tool_does_its_call_has_one_result_and_its_neighbours_run",
        also=[
            (
                PIPELINE,
                "if violations := value_violations(tool.output_schema, frozen):",
                "if violations := list[str]():",
            )
        ],
    ),
    _guard(
        16,
        "a cancel waits for the tree",
        "dsh/shell/bash.py",
        "if cause is not None:\n                await child.wait_for_exit()",
        "pass",
        STOPS + "test_fault16_a_cancelled_tree_is_gone_before_the_turn_ends",
    ),
    _guard(
        30,
        "a link is followed to its target",
        "dsh/loader/watch.py",
        "    while os.path.islink(name) and name not in seen:",
        "    while False:",
        "tests/loader/test_watch.py::test_f30_a_change_of_the_target_of_a_link_and_of_the_link_is_seen",
        also=[
            (
                "dsh/loader/watch.py",
                "        info = os.stat(path)\n    except (OSError, ValueError)",
                "        info = os.lstat(path)\n    except (OSError, ValueError)",
            )
        ],
    ),
    _guard(
        38,
        "what nobody announces is found by looking",
        "dsh/loader/watch.py",
        "            now = _signature(path)\n            if now != before:",
        "            now = before\n            if now != before:",
        "tests/loader/test_watch.py::test_f38b_a_mount_without_notifications_is_followed_by_looking",
    ),
)


@dataclass(frozen=True)
class Verdict:
    """What came of one guard: ``caught`` (a test failed), ``missed`` (all passed) or ``stale`` (no such text)."""

    guard: Guard
    outcome: str
    failed: int = 0
    seconds: float = 0.0


def try_without(guard: Guard, copy: Path) -> Verdict:
    """Run the tests of `guard` in `copy`, a copy of the project, with the guard taken away; then put it back."""
    before = {file: (copy / file).read_text("utf-8") for file, _, _ in guard.edits}
    if any(before[file].count(old) != 1 for file, old, _ in guard.edits):
        return Verdict(guard, "stale")
    begun = time.monotonic()
    for file, old, new in guard.edits:
        text = (copy / file).read_text("utf-8")
        (copy / file).write_text(text.replace(old, new), "utf-8")
    try:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=45", *guard.tests]
        env = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True)
    finally:
        for file, text in before.items():
            (copy / file).write_text(text, "utf-8")
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
            told = f"{verdict.outcome:7} {verdict.failed:3} failed {verdict.seconds:6.1f} s"
            print(f"{guard.row:3} {told}  {guard.what}", flush=True)
    missed = [verdict for verdict in verdicts if verdict.outcome != "caught"]
    print(f"{len(verdicts)} guards, {len(verdicts) - len(missed)} caught, {len(missed)} not")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
