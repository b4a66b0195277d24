// SPDX-License-Identifier: Apache-2.0
//
// Python's lock: who holds it inside driver calls, and who waits for it.

function gilSection(recording) {
  const state = (s) => recording.calls.some((c) => c.gil === s);
  const content = [];
  if (!state("free") && !state("held")) {
    const why = state("unknown") ? "The state of the GIL could not be read." : state("disabled") ? "The interpreter runs without a GIL." : "The recording has no call of a thread of Python's.";
    content.push(note(why));
  } else {
    content.push(gilStages(recording), heldCalls(recording));
  }
  content.push(gilWaiters(recording));
  return section("gil", "GIL", ...content,
    note("GIL HELD is driver time during which no other thread could run Python; OTHERS WAITED is how long these waited for the lock meanwhile. GIL WAIT is the time that threads were asleep until the lock was free, outside of driver calls."));
}

const gilTotal = (row, state) => row.gil[state] || { count: 0, wall: 0 };

// othersWaited is a column of what calls with the GIL held made other threads wait for it.
function othersWaited(calls) {
  return timeColumn("OTHERS WAITED", (row) => calls(row).caused || 0, "how long other threads waited for the GIL in calls that held it");
}

function gilStages(recording) {
  const rows = recording.stages.filter((s) => !s.process);
  const table = new SortedTable("GIL by stage", [
    nameColumn("STAGE", (s) => s.path),
    timeColumn("GIL HELD", (s) => gilTotal(s, "held").wall),
    countColumn("CALLS HELD", (s) => gilTotal(s, "held").count),
    othersWaited((s) => gilTotal(s, "held")),
    timeColumn("GIL FREE", (s) => gilTotal(s, "free").wall),
    countColumn("CALLS FREE", (s) => gilTotal(s, "free").count),
    timeColumn("GIL WAIT", (s) => timeOf(recording, s.parts_within, "GIL WAIT")),
    { title: "%WALL", numeric: true, cell: (s) => percent(timeOf(recording, s.parts_within, "GIL WAIT"), s.wall) },
  ], "GIL HELD");
  table.setRows(rows);
  return table.element;
}

// heldCalls are the call sites that kept the lock.
function heldCalls(recording) {
  const held = recording.calls.filter((c) => c.gil === "held").flatMap((c) =>
    (c.callers || [{ name: "unknown", count: c.count, wall: c.wall }]).map((site) => ({ call: c, site })));
  if (held.length === 0) return note("No call was made with the GIL held.");
  const table = new SortedTable("Calls with the GIL held", [
    nameColumn("CALL WITH THE GIL HELD", ({ call }) => call.symbol),
    nameColumn("STAGE", ({ call }) => stagePath(recording, call.stage)),
    nameColumn("CALLER", ({ site }) => site.name),
    nameColumn("THREAD", ({ call }) => recording.threads[call.thread].name),
    countColumn("CALLS", ({ site }) => site.count),
    timeColumn("TIME", ({ site }) => site.wall),
    timeColumn("MEAN", ({ site }) => Math.round(site.wall / Math.max(1, site.count))),
    othersWaited(({ site }) => site),
  ], "TIME");
  table.setRows(held);
  return table.element;
}

function gilWaiters(recording) {
  const threads = recording.threads.filter((t) => timeOf(recording, t.parts, "GIL WAIT") > 0);
  if (threads.length === 0) return note("No thread was seen waiting for the GIL.");
  const table = new SortedTable("Threads that waited for the GIL", [
    nameColumn("WAITING THREAD", (t) => t.name),
    { title: "TID", numeric: true, value: (t) => t.tid, cell: (t) => String(t.tid) },
    timeColumn("GIL WAIT", (t) => timeOf(recording, t.parts, "GIL WAIT")),
    { title: "%WALL", numeric: true, cell: (t) => percent(timeOf(recording, t.parts, "GIL WAIT"), t.parts.wall) },
  ], "GIL WAIT");
  table.setRows(threads);
  return table.element;
}

function stagePath(recording, i) {
  return i < 0 ? outsideTitle : recording.stages[i].path;
}
