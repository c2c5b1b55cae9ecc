"""The bytes of a log: what is written, what is accepted, what a crash leaves and what it cannot have left."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from dsh.cordis.jsonio import snapshot_json
from dsh.core.session_event import SessionEvent
from dsh.sessions import jsonl_codec
from dsh.sessions.errors import (
    SessionFormatUnsupportedError,
    SessionPersistenceCorruptionError,
    SessionPersistenceError,
)
from dsh.sessions.frames import FrameCodec, frame_end, walk
from dsh.sessions.jsonl_codec import DecodedLog, decode_header, decode_raw, decode_zstd, encode_batch, encode_header
from dsh.sessions.log_file import LogWriter, read_header
from tests.sessions.helpers import LogBuilder, header, log_of, raw_bytes, zstd_bytes


def unzstd(data: bytes) -> DecodedLog:
    return decode_zstd(data, FrameCodec(), "s", "/x/session.jsonl.zstd")


def unraw(data: bytes) -> DecodedLog:
    return decode_raw(data, "s", "/x/session.jsonl")


# -- writing ----------------------------------------------------------------------------------------------------------


def test_the_header_line_has_the_agreed_keys_in_order() -> None:
    head = header(parent_session="p", seed_length=3, origin="subagent", delegation_depth=1, agent_preset="x")
    line = encode_header(head)
    assert list(json.loads(line)) == [
        "type", "version", "id", "createdAt", "cwd", "parentSession", "seedLength", "origin", "delegationDepth",
        "agentPreset",
    ]  # fmt: skip
    assert line.endswith(b"}\n") and b" :" not in line and json.loads(line)["type"] == "session"
    assert list(json.loads(encode_header(header(cwd=None)))) == [
        "type",
        "version",
        "id",
        "createdAt",
        "delegationDepth",
    ]


def test_an_event_line_has_the_agreed_keys_in_order() -> None:
    event = SessionEvent("assistant/message", 7, 5, snapshot_json({"a": 1}), "append", (1, 2), True)
    assert encode_batch([event]) == (
        b'{"type":"assistant/message","seq":7,"time":5,"data":{"a":1},"sourceEventSeqs":[1,2],"surfaceOp":"append",'
        b'"ignorable":true}\n'
    )


def test_runs_of_chunks_become_one_row_unless_packing_is_off() -> None:
    events = log_of(1)
    assert b'"type":"text-chunks"' in encode_batch(events)
    assert encode_batch(events, pack_chunks=False).count(b"assistant/chunk") == 4


def test_an_event_that_json_cannot_hold_is_named() -> None:
    bad = SessionEvent("my/event", 0, 0, {"x": float("nan")})
    with pytest.raises(SessionPersistenceError, match='"my/event"'):
        encode_batch([bad])


def test_b18_hard_text_survives(tmp_path: Path) -> None:
    text = "a\u2028b\u2029c\x85d\x00e\ud800f\x0cg\U0001f600\r"
    event = SessionEvent("x", 0, 0, snapshot_json({"text": text, "big": 2**53}))
    for data, read in ((raw_bytes(header(), [event]), unraw), (zstd_bytes(header(), [event]), unzstd)):
        (back,) = read(data).events
        assert back.data == {"text": text, "big": 2**53}


def test_a_compressed_log_is_the_header_frame_and_a_frame_a_batch() -> None:
    events = log_of(1, 2)
    data = zstd_bytes(header(), events[:5], events[5:])
    frames = [data[start:end] for start, end in walk(data)]
    assert len(frames) == 3
    assert zstandard.ZstdDecompressor().decompress(frames[0]) == encode_header(header())
    for frame in frames:
        parameters = zstandard.get_frame_parameters(frame)
        assert parameters.has_checksum


# -- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("make", "read"), [(raw_bytes, unraw), (zstd_bytes, unzstd)])
def test_what_was_written_is_read(make: Callable[..., bytes], read: Callable[[bytes], DecodedLog]) -> None:
    events = log_of(1, 2, 3)
    data = make(header(), events[:4], events[4:9], events[9:])
    log = read(data)
    assert log.header == header()
    assert log.events == events
    assert log.keep == len(data) and log.rewrite == len(events)


def test_readers_accept_any_layout_of_packed_rows() -> None:
    events = log_of(1)
    for cut in range(1, len(events)):
        assert unraw(raw_bytes(header(), events[:cut], events[cut:])).events == events
    one_by_one = encode_header(header()) + b"".join(encode_batch([event]) for event in events)
    assert unraw(one_by_one).events == events


def test_lines_break_at_newlines_alone() -> None:
    event = SessionEvent("x", 0, 0, snapshot_json({"t": "a\u2028b\x85c\x0bd"}))
    line = json.dumps(event.to_wire(), ensure_ascii=False).encode()
    assert b"\xe2\x80\xa8" in line
    assert unraw(encode_header(header()) + line + b"\n").events[0].data["t"] == "a\u2028b\x85c\x0bd"


def test_frames_of_another_writer_without_content_size_are_read() -> None:
    events = log_of(1)
    plain = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True)
    streamed = plain.compressobj()
    body = streamed.compress(encode_batch(events)) + streamed.flush()
    data = plain.compress(encode_header(header())) + body
    assert unzstd(data).events == events


def test_a_frame_of_several_blocks_is_walked() -> None:
    data = zstandard.ZstdCompressor(write_checksum=True).compress(os.urandom(500_000))
    assert frame_end(data + b"more", 0) == len(data)
    for cut in (1, 4, 5, 9, 200_000, len(data) - 1):
        assert frame_end(data[:cut], 0) is None


def test_an_rle_block_and_a_skippable_frame_are_walked() -> None:
    zeros = zstandard.ZstdCompressor(write_checksum=True).compress(b"\0" * 300_000)
    skippable = (0x184D2A53).to_bytes(4, "little") + (3).to_bytes(4, "little") + b"abc"
    assert frame_end(zeros, 0) == len(zeros)
    assert frame_end(skippable + zeros, 0) == 11


# -- the header judged ------------------------------------------------------------------------------------------------


def head_line(**fields: object) -> bytes:
    base = {"type": "session", "version": 0, "id": "s", "createdAt": 1, "delegationDepth": 0}
    return json.dumps({**base, **fields}).encode()


def test_b09a_a_newer_version_is_said_to_be_newer_whatever_else_the_header_holds() -> None:
    line = head_line(version=1, createdAt="soon", cwd=7, origin="moon")
    with pytest.raises(SessionFormatUnsupportedError) as caught:
        decode_header(line, "s", "/logs/session.jsonl")
    assert str(caught.value) == (
        'session "s" uses log format v1, but this harness reads only v0: the log was written by a newer harness — '
        "upgrade the harness to open it (raw log: /logs/session.jsonl)"
    )
    assert caught.value.location == "/logs/session.jsonl"


def test_b09b_an_older_version_is_said_to_be_older() -> None:
    with pytest.raises(SessionFormatUnsupportedError) as caught:
        decode_header(head_line(version=-1), "s")
    assert str(caught.value) == (
        'session "s" uses log format v-1, older than the supported v0, and this build ships no upgrade path for it'
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"version": True},
        {"version": "0"},
        {"createdAt": -1},
        {"createdAt": True},
        {"createdAt": 1.5},
        {"createdAt": 2**53},
        {"delegationDepth": -1},
        {"seedLength": True},
        {"origin": "human"},
        {"cwd": "relative/path"},
        {"sandboxMode": "read-only"},
        {"approvalPolicy": "ask"},
        {"id": ""},
        {"type": "other"},
    ],
)
def test_malformed_headers_are_corruption(fields: dict[str, object]) -> None:
    with pytest.raises(SessionPersistenceCorruptionError, match='^stored session "s" failed validation: '):
        decode_header(head_line(**fields), "s")


def test_f24_a_header_without_delegation_depth_is_one_of_an_older_writer() -> None:
    assert decode_header(b'{"type":"session","version":0,"id":"s","createdAt":1}', "s").delegation_depth == 0
    assert b'"delegationDepth":0' in encode_header(header())


def test_minus_zero_is_no_number_of_a_header() -> None:
    with pytest.raises(SessionPersistenceCorruptionError):
        decode_header(b'{"type":"session","version":0,"id":"s","createdAt":-0.0,"delegationDepth":0}', "s")


def test_unknown_header_fields_are_ignored() -> None:
    assert decode_header(head_line(messagePrefix={"a": 1}), "s").id == "s"


# -- torn ends --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batches", [1, 3])
def test_b05a_a_raw_log_cut_at_any_byte_keeps_its_committed_lines(batches: int) -> None:
    events = log_of(1)
    step = -(-len(events) // batches)
    data = raw_bytes(header(), *(events[at : at + step] for at in range(0, len(events), step)))
    lines = data.split(b"\n")[:-1]
    for size in range(len(encode_header(header())), len(data) + 1):
        log = unraw(data[:size])
        whole = data[:size].count(b"\n")
        assert log.keep == sum(len(line) + 1 for line in lines[:whole])
        assert log.events == events[: len(log.events)]
        assert log.rewrite == len(log.events)


def test_b05b_a_compressed_log_cut_at_any_byte_keeps_its_whole_frames() -> None:
    events = log_of(1)
    data = zstd_bytes(header(), events[:3], events[3:6], events[6:])
    ends = [end for _, end in walk(data) if end is not None]
    stored_at = dict(zip(ends, (0, 3, 6, len(events)), strict=True))
    for size in range(ends[0], len(data) + 1):
        log = unzstd(data[:size])
        sound = max(end for end in ends if end <= size)
        assert log.keep == sound
        assert log.rewrite == stored_at[sound]
        assert log.events == events[: len(log.events)] and len(log.events) >= log.rewrite


def test_b06a_complete_records_of_a_torn_frame_are_kept() -> None:
    builder = LogBuilder()
    for _ in range(6):
        builder.add("x", {"noise": os.urandom(60_000).hex()}, ignorable=True)
    data = zstd_bytes(header(), builder.events)
    first_end = next(end for _, end in walk(data))
    log = unzstd(data[:-1000])
    assert log.keep == first_end and log.rewrite == 0
    assert 0 < len(log.events) < 6
    assert log.events == builder.events[: len(log.events)]


def test_a_file_without_a_whole_header_is_corrupt() -> None:
    data = raw_bytes(header())
    for torn in (b"", data[:-1], data[:10]):
        with pytest.raises(SessionPersistenceCorruptionError, match="no complete session header"):
            unraw(torn)
    packed = zstd_bytes(header())
    for size in (0, 3, len(packed) - 1):
        with pytest.raises(SessionPersistenceCorruptionError, match="no complete session header"):
            unzstd(packed[:size])


def test_a_rest_of_zero_bytes_is_a_lost_write() -> None:
    events = log_of(1)
    for make, read in ((raw_bytes, unraw), (zstd_bytes, unzstd)):
        data = make(header(), events)
        log = read(data + bytes(1000))
        assert log.events == events and log.keep == len(data)


# -- damage -----------------------------------------------------------------------------------------------------------


def rows(*lines: object) -> bytes:
    return encode_header(header()) + b"".join(
        line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines
    )


def row(seq: int, type_: str = "turn/start", **data: object) -> dict[str, object]:
    return {"type": type_, "seq": seq, "time": 1, "data": data}


def test_b06b_an_unparsable_line_is_cut_unless_a_turn_ended_behind_it() -> None:
    good = rows(row(0, turn=1))
    log = unraw(good + b"{half\n" + json.dumps(row(1, "step/start")).encode() + b"\n")
    assert len(log.events) == 1 and log.keep == len(good)
    with pytest.raises(SessionPersistenceCorruptionError) as caught:
        unraw(good + b"{half\n" + json.dumps(row(2, "turn/end", turn=1)).encode() + b"\n")
    assert str(caught.value) == 'stored session "s" failed validation: unparsable committed event at line 3'


DAMAGE: list[bytes] = [
    b'{"type":"a","seq":1,"time":1,"data":{}},{"type":"a","seq":2,"time":1,"data":{}}\n',  # two values in a line
    b'{"type":"a","seq":1\n"time":1,"data":{}}\n',  # one value in two lines
    b'{"type":"a","seq":1,"time":1,"data":{}},{"type":"a","seq":2\n"time":1,"data":{}}\n',  # both: the count is right
    b'{"type":"a","seq":1.0,"time":1e0,"data":{"n":2.0,"big":1e300}}\n',  # numbers as others write them
    b'{"type":"a","seq":1,"time":1,"data":{"n":-0.0}}\n',
    b'{"type":"a","seq":1,"time":1,"data":{"n":9007199254740993}}\n',
    b'{"type":"a","seq":1,"time":1,"data":{"t":"\\ud800"}}\n',
    b'{"type":"a","seq":true,"time":1,"data":{}}\n',
    b'{"type":"a","seq":1,"time":1,"data":{},"ignorable":true}\n',
    b'{"type":"a","seq":1,"time":1,"data":{},"more":1}\n',
    b'{"type":"a","seq":1,"time":9007199254740993,"data":{}}\n',
    b'{"type":"a","seq":1,"time":1,"data":%s1%s}\n' % (b"[" * 2000, b"]" * 2000),
    b"[1]\n",
    b"null\n",
    b"\n",
]


@pytest.mark.parametrize("line", DAMAGE)
@pytest.mark.parametrize("after", [b"", b'{"type":"turn/start","seq":2,"time":1,"data":{"turn":1}}\n'])
def test_lines_that_are_parsed_together_are_judged_one_by_one(
    line: bytes, after: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judged() -> object:
        try:
            log = unraw(rows(row(0, turn=1)) + line + after)
            return encode_batch(log.events), log.keep, log.rewrite
        except SessionPersistenceCorruptionError as error:
            return str(error)

    together = judged()
    monkeypatch.setattr(jsonl_codec, "_parse", lambda lines: None)
    assert together == judged()


def test_b06c_a_gap_is_cut_unless_a_turn_ended_behind_it() -> None:
    log = unraw(rows(row(0, turn=1), row(2, "step/start")))
    assert [event.seq for event in log.events] == [0]
    with pytest.raises(SessionPersistenceCorruptionError) as caught:
        unraw(rows(row(0, turn=1), row(2, "step/start"), row(3, "turn/end", turn=1)))
    assert str(caught.value).endswith("seq gap in committed region at line 3 (expected 1, got 2)")


def test_text_that_only_mentions_a_turn_end_does_not_make_a_tear_corrupt() -> None:
    log = unraw(rows(row(0, turn=1), b"{half\n", row(2, "note", text='"turn/end"')))
    assert len(log.events) == 1


def test_b06d_damage_inside_a_compressed_log_is_corruption() -> None:
    events = log_of(1)
    data = bytearray(zstd_bytes(header(), events[:5], events[5:]))
    middle = [start for start, _ in walk(bytes(data))][1]
    data[middle + 20] ^= 0x55
    with pytest.raises(SessionPersistenceCorruptionError, match="failed validation: "):
        unzstd(bytes(data))


def test_b06e_a_bad_checksum_of_a_whole_last_frame_is_corruption() -> None:
    data = bytearray(zstd_bytes(header(), log_of(1)))
    data[-1] ^= 1
    with pytest.raises(SessionPersistenceCorruptionError, match="checksum"):
        unzstd(bytes(data))


def test_b06f_a_whole_frame_with_half_a_record_is_corruption() -> None:
    codec = FrameCodec()
    data = zstd_bytes(header()) + codec.encode(b'{"type":"turn/start","seq":0,')
    with pytest.raises(SessionPersistenceCorruptionError, match="inside a record"):
        unzstd(data)


def test_the_first_frame_holds_the_header_alone() -> None:
    codec = FrameCodec()
    data = codec.encode(encode_header(header()) + encode_batch(log_of(1)))
    with pytest.raises(SessionPersistenceCorruptionError, match="header alone"):
        unzstd(data)


@pytest.mark.parametrize(
    "line",
    [
        {"type": "x", "seq": 0, "time": 1},
        {"type": "x", "seq": 0, "time": 1, "data": {}, "ignorable": False},
        {"type": "x", "seq": 0, "time": 1, "data": {}, "extra": 1},
        {"type": "x", "seq": True, "time": 1, "data": {}},
        {"type": "x", "seq": 0, "time": 1.5, "data": {}},
        {"type": "x", "seq": 2**53, "time": 1, "data": {}},
    ],
)
def test_b09c_a_malformed_envelope_is_corruption(line: dict[str, object]) -> None:
    with pytest.raises(SessionPersistenceCorruptionError, match="envelope"):
        unraw(rows(line))


def test_a_malformed_packed_row_is_corruption() -> None:
    bad = {
        "type": "text-chunks",
        "seq0": 0,
        "time0": 0,
        "data": {"turn": 1, "step": 1, "index": 0, "dt": [1], "texts": ["a", "b", "c"]},
    }
    with pytest.raises(SessionPersistenceCorruptionError, match="malformed text-chunks storage row"):
        unraw(rows(bad))


def test_minus_zero_and_nan_are_no_numbers_of_a_log() -> None:
    with pytest.raises(SessionPersistenceCorruptionError):
        unraw(rows(b'{"type":"x","seq":0,"time":1,"data":{"n":-0.0}}\n', row(1, "turn/end", turn=1)))


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compressed", [False, True])
def test_a_header_is_read_without_the_rest_of_the_file(tmp_path: Path, compressed: bool) -> None:
    head = header(cwd="/" + "deep/" * 3000)
    path = tmp_path / ("session.jsonl.zstd" if compressed else "session.jsonl")
    path.write_bytes((zstd_bytes if compressed else raw_bytes)(head, log_of(1)))
    read, st = read_header(str(path), "s")
    assert read == head and st.st_size == path.stat().st_size


def test_create_never_overwrites(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    writer = LogWriter()
    writer.create(str(path), header(), log_of(1))
    before = path.read_bytes()
    with pytest.raises(SessionPersistenceError, match="collision"):
        writer.create(str(path), header(), log_of(1, 2))
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["session.jsonl"]
    assert path.stat().st_mode & 0o777 == 0o600
