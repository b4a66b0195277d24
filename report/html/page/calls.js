// SPDX-License-Identifier: Apache-2.0
//
// All driver calls, with search.

function callsSection(recording) {
  if (recording.calls.length === 0) return section("calls", "Calls", note("No driver call was seen."));
  const table = new SortedTable("Driver calls", callColumns(recording), "CUDA");
  const texts = recording.calls.map((c) => callText(recording, c));
  const status = element("p", { role: "status" });
  const search = element("input", { type: "search", id: "call-search", autocomplete: "off", spellcheck: "false", input: () => filter() });
  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = recording.calls.filter((_, i) => words.every((w) => texts[i].includes(w)));
    table.setRows(found);
    const [n, wall] = found.reduce(([n, wall], c) => [n + c.count, wall + c.wall], [0, 0]);
    status.textContent = `${count(found.length)} of ${plural(texts.length, "row")}: ${plural(n, "call")}, ${duration(wall)}`;
  };
  filter();
  return section("calls", "Calls",
    element("div", { class: "controls" }, element("label", { for: search.id }, "Search "), search, status),
    table.element,
    note("Search takes words, all of which have to occur in a row: of stage, function, thread, caller, “held” or “autograd”. ~P50 and ~P99 come from a histogram of powers of two: off by less than a factor of two."));
}

// callText is what the search looks at.
function callText(recording, c) {
  return [stagePath(recording, c.stage), c.symbol, recording.threads[c.thread].name, recording.threads[c.thread].tid, "gil " + c.gil, c.attribution,
    c.errors > 0 ? "errors" : "", ...(c.callers || []).map((s) => s.name)].join("\n").toLowerCase();
}

function callColumns(recording) {
  const columns = [
    nameColumn("CALL", (c) => c.symbol),
    nameColumn("STAGE", (c) => stagePath(recording, c.stage)),
    nameColumn("THREAD", (c) => recording.threads[c.thread].name),
    nameColumn("GIL", (c) => c.gil),
    nameColumn("WHOSE", (c) => c.attribution, "why the call belongs to its stage"),
    nameColumn("CALLER", (c) => (c.callers || []).map((s) => s.name).join(", "), "the functions that called it, the costliest first"),
    countColumn("CALLS", (c) => c.count),
    timeColumn("CUDA", (c) => c.wall, "host time inside the driver"),
    timeColumn("ON CPU", (c) => c.cpu),
    timeColumn("MEAN", (c) => Math.round(c.wall / Math.max(1, c.count))),
    timeColumn("~P50", (c) => c.p50), timeColumn("~P99", (c) => c.p99), timeColumn("MAX", (c) => c.max),
  ];
  if (recording.calls.some((c) => c.bytes > 0)) {
    columns.push({ title: "BYTES", numeric: true, value: (c) => c.bytes, cell: (c) => c.bytes > 0 ? size(c.bytes) : "" });
  }
  if (recording.calls.some((c) => c.errors > 0)) columns.push(countColumn("ERRORS", (c) => c.errors));
  return columns;
}
