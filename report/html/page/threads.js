// SPDX-License-Identifier: Apache-2.0
//
// Threads, also those in no stage.

function threadsSection(recording) {
  if (recording.threads.length === 0) return section("threads", "Threads", note("No thread was seen."));
  const table = new SortedTable("Threads", [
    nameColumn("THREAD", (t) => t.name),
    { title: "TID", numeric: true, value: (t) => t.tid, cell: (t) => String(t.tid) },
    nameColumn("ROLE", (t) => t.role, "as far as the thread's name says"),
    timeColumn("WALL", (t) => t.parts ? t.parts.wall : null),
    timeColumn("IN STAGES", (t) => t.stages),
    timeColumn("CUDA", (t) => t.calls.wall),
    timeColumn("GIL HELD", (t) => gilTotal(t, "held").wall),
    countColumn("CALLS", (t) => t.calls.count),
    { title: "WHERE ITS TIME GOES", cell: (t) => threadBar(recording, t) },
  ], "CUDA");
  table.setRows(recording.threads);
  return section("threads", "Threads", legend(recording, recording.threads.map((t) => t.parts)), table.element);
}

function threadBar(recording, thread) {
  return element("div", { class: "bar-cell" }, bar(recording, thread.parts, 1));
}
