#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads a trace of `stageprof timeline` with Perfetto's own definitions, the way
its trace processor does, and compares it with the Recording that it is of.

usage: check.py RECORDING PERFETTO_TRACE CHROME_JSON_GZ

Nothing of stageprof is used. What the trace processor counts as an error of
import is one here: fields that the definitions do not have, packets without a
sequence, references to interned data or tracks that are not there, ends without
begins, slices that are never closed or end before they begin, flows without one
of their ends. Then each thread must have as many slices as the Recording has
events, with the same names and durations to the nanosecond, and the flows must
be those that follow from the streams. Prints what it has compared.
"""

import collections
import gzip
import json
import sys

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto

Slice = collections.namedtuple("Slice", "thread track name begin duration")
CLEARED = perfetto.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
NEEDS = perfetto.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
INTERNED = ("event_categories", "event_names", "debug_annotation_names", "debug_annotation_string_values")


def fail(message):
    sys.exit(f"check: {message}")


def expect(holds, message):
    if not holds:
        fail(message)


def expect_known(message):
    """No field that the definitions do not have, in it or below it."""
    expect(not UnknownFieldSet(message), f"unknown fields in {type(message).__name__}")
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for part in [value] if hasattr(value, "ListFields") else value:
                expect_known(part)


class Trace:
    """The slices and flows of a trace of Perfetto's."""

    def __init__(self, path):
        trace = perfetto.Trace()
        with open(path, "rb") as f:
            trace.ParseFromString(f.read())
        self.tracks = {}  # uuid -> (thread id, name)
        self.open = collections.defaultdict(list)
        self.slices = []
        self.categories = []
        self.flows = collections.defaultdict(lambda: ([], []))  # id -> begins, ends
        self.interned = None
        self.clocks = {}
        for packet in trace.packet:
            expect_known(packet)
            self.packet(packet)
        left = sum(len(stack) for stack in self.open.values())
        expect(left == 0, f"{left} slices are never closed")
        for flow, (begins, ends) in self.flows.items():
            expect(len(begins) == 1 and len(ends) == 1, f"flow {flow} has {len(begins)} begins and {len(ends)} ends")
            expect(begins[0].begin <= ends[0].begin, f"flow {flow} leads back in time")

    def packet(self, packet):
        expect(packet.trusted_packet_sequence_id != 0, "a packet without a sequence")
        if packet.sequence_flags & CLEARED:
            self.interned = {kind: {} for kind in INTERNED}
        if packet.HasField("interned_data"):
            for kind in INTERNED:
                for entry in getattr(packet.interned_data, kind):
                    expect(entry.iid not in self.interned[kind], f"{kind} {entry.iid} is given twice")
                    text = entry.str.decode() if kind.endswith("values") else entry.name
                    self.interned[kind][entry.iid] = text
        if packet.HasField("clock_snapshot"):
            self.clocks = {clock.clock_id: clock.timestamp for clock in packet.clock_snapshot.clocks}
        if packet.HasField("track_descriptor"):
            self.describe(packet.track_descriptor)
        if packet.HasField("track_event"):
            expect(packet.sequence_flags & NEEDS and self.interned is not None, "an event without interned data")
            self.event(packet.timestamp, packet.track_event)

    def describe(self, track):
        expect(track.uuid and track.uuid not in self.tracks, f"track {track.uuid} is described twice, or is none")
        thread, name = 0, track.name
        if track.HasField("parent_uuid"):
            expect(track.parent_uuid in self.tracks, f"track {track.uuid} has no parent")
            thread = self.tracks[track.parent_uuid][0]
        if track.HasField("thread"):
            thread, name = track.thread.tid, "stages"
            expect(track.thread.thread_name != "", f"thread {thread} has no name")
        self.tracks[track.uuid] = (thread, name)

    def event(self, time, event):
        expect(event.track_uuid in self.tracks, f"an event on track {event.track_uuid}, which is not described")
        stack = self.open[event.track_uuid]
        if event.type == perfetto.TrackEvent.TYPE_SLICE_END:
            expect(stack, "an end without a begin")
            begin, number, flows, ends = stack.pop()
            expect(time >= begin.begin, f"{begin.name} ends before it begins")
            done = begin._replace(duration=time - begin.begin)
            self.slices[number] = done
            for flow in flows:
                self.flows[flow][0].append(done)
            for flow in ends:
                self.flows[flow][1].append(done)
            return
        expect(event.type == perfetto.TrackEvent.TYPE_SLICE_BEGIN, f"an event of type {event.type}")
        for annotation in event.debug_annotations:
            self.text("debug_annotation_names", annotation.name_iid)
            if annotation.HasField("string_value_iid"):
                self.text("debug_annotation_string_values", annotation.string_value_iid)
        thread, track = self.tracks[event.track_uuid]
        begin = Slice(thread, track, self.text("event_names", event.name_iid), time, None)
        stack.append((begin, len(self.slices), list(event.flow_ids), list(event.terminating_flow_ids)))
        self.slices.append(begin)
        self.categories.append([self.text("event_categories", iid) for iid in event.category_iids])

    def text(self, kind, iid):
        expect(iid in self.interned[kind], f"{kind} {iid} was never given")
        return self.interned[kind][iid]


def expected(recording):
    """The slices that follow from a Recording."""
    timeline = recording["timeline"]
    threads = {t["id"]: t["tid"] for t in recording["threads"]}
    threads[-1] = 0
    for span in recording.get("spans", []) + timeline.get("spans", []):
        if span["begin_ns"] + span["wall_ns"] >= timeline["start_ns"]:
            name = recording["paths"][span["path"]]["names"][-1]
            yield Slice(threads[span["thread"]], "stages", name, span["begin_ns"], span["wall_ns"])
    for call in timeline["calls"]:
        name = recording["symbols"][call["symbol"]]["name"]
        if call["gil"] == "held":
            name += " (gil held)"
        yield Slice(threads[call["thread"]], "calls", name, call["begin_ns"], call["wall_ns"])
    for off in timeline["off"]:
        yield Slice(threads[off["thread"]], "off the CPU", off["state"], off["begin_ns"], off["wall_ns"])


def expected_flows(recording):
    """Begins of calls that gave operations, and of those that first waited for them."""
    timeline = recording["timeline"]
    operations = collections.defaultdict(dict)
    waits = collections.defaultdict(list)
    for wait in timeline.get("waits", []):
        waits[wait["thread"], wait["begin_ns"]].append(wait)
    for call in timeline["calls"]:
        if call.get("operation") and not call.get("partial"):
            operations[call["stream"]][call["operation"]] = call["begin_ns"]
    for call in timeline["calls"]:
        for wait in waits.get((call["thread"], call["begin_ns"]), []):
            for operation in range(wait["from"] + 1, wait["until"] + 1):
                begin = operations[wait["stream"]].pop(operation, None)
                if begin is not None:
                    yield begin, call["begin_ns"]


def nanoseconds(microseconds):
    whole, _, rest = str(microseconds).partition(".")
    return int(whole) * 1000 + int(rest.ljust(3, "0"))


def chrome_slices(path, start):
    with gzip.open(path, "rt", encoding="utf-8") as f:
        events = json.load(f, parse_float=str)["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    flows = collections.Counter(e["ph"] for e in events if e["ph"] in "sf")
    expect(flows["s"] == flows["f"], f"Chrome: {flows['s']} flows begin, {flows['f']} end")
    slices = collections.Counter()
    for event in events:
        if event["ph"] == "X":
            who, _, track = names[event["tid"]].rpartition(": ")
            thread = 0 if who == "process" else int(who.rpartition(" ")[2])
            slices[Slice(thread, track, event["name"], start + nanoseconds(event["ts"]), nanoseconds(event["dur"]))] += 1
    return slices, flows["s"]


def compare(what, want, got):
    missing, more = want - got, got - want
    expect(not missing and not more,
           f"{what}: {sum(missing.values())} missing, such as {list(missing)[:3]}; {sum(more.values())} too many, such as {list(more)[:3]}")


def main():
    if len(sys.argv) != 4:
        sys.exit("usage: check.py RECORDING PERFETTO_TRACE CHROME_JSON_GZ")
    with gzip.open(sys.argv[1], "rt", encoding="utf-8") as f:
        recording = json.load(f)
    trace = Trace(sys.argv[2])
    want = collections.Counter(expected(recording))
    compare("slices", want, collections.Counter(trace.slices))
    compare("flows", collections.Counter(expected_flows(recording)),
            collections.Counter((begins[0].begin, ends[0].begin) for begins, ends in trace.flows.values()))
    chrome, chrome_flows = chrome_slices(sys.argv[3], recording["window"]["start_ns"])
    compare("Chrome's slices", want, chrome)
    expect(chrome_flows == len(trace.flows), f"Chrome: {chrome_flows} flows, Perfetto {len(trace.flows)}")
    boot = perfetto.BUILTIN_CLOCK_BOOTTIME
    expect(trace.clocks[boot] == recording["window"]["start_ns"], "the clocks are not those of the window's start")
    expect(perfetto.BUILTIN_CLOCK_REALTIME in trace.clocks, "there is no time of day")

    tracks = collections.Counter(s.track for s in trace.slices)
    held = sum("gil held" in c for c in trace.categories)
    print(f"{len(trace.slices)} slices: {tracks['stages']} stages, {tracks['calls']} calls ({held} with the GIL held), "
          f"{tracks['off the CPU']} off the CPU; {len(trace.flows)} flows; {len({s.thread for s in trace.slices})} threads")


if __name__ == "__main__":
    main()
