// SPDX-License-Identifier: Apache-2.0
//
// What a wall time consists of: bars, their legend, and the parts in numbers.

// segmentTimes sums parts by the segments of bars.
function segmentTimes(recording, parts) {
  const times = new Array(recording.segments.length).fill(0);
  for (const [name, ns] of parts.parts) times[recording.part_names[name].segment] += ns;
  return times;
}

// bar is a wall time divided into segments. Its length is a share of the room.
function bar(recording, parts, share) {
  if (!parts) return element("div", { class: "bar-unknown" }, "not known");
  const box = element("div", { class: "bar", role: "img", "aria-label": barText(recording, parts, 12) });
  box.style.width = 100 * share + "%";
  segmentTimes(recording, parts).forEach((ns, i) => {
    if (ns === 0) return;
    const { title, class: style } = recording.segments[i];
    const piece = element("span", { class: "segment " + style, title: `${title} ${duration(ns)}, ${percent(ns, parts.wall)}` });
    piece.dataset.ns = ns;
    piece.style.width = 100 * ns / parts.wall + "%";
    box.append(piece);
  });
  return box;
}

// barText names the largest segments.
function barText(recording, parts, most) {
  const times = segmentTimes(recording, parts);
  const order = [...times.keys()].filter((i) => times[i] > 0).sort((a, b) => times[b] - times[a]);
  return order.slice(0, most).map((i) => `${recording.segments[i].title} ${percent(times[i], parts.wall)}`).join(", ") || "no time";
}

// legend names the segments of the bars; rare ones only if they occur.
function legend(recording, listOfParts) {
  const occurs = new Set();
  for (const parts of listOfParts) {
    if (parts) segmentTimes(recording, parts).forEach((ns, i) => ns > 0 && occurs.add(i));
  }
  return segmentList(recording.segments.filter((s, i) => !s.rare || occurs.has(i)));
}

function segmentList(segments) {
  return element("ul", { class: "legend", "aria-label": "Legend of the bars" }, ...segments.map((s) =>
    element("li", null, element("span", { class: "swatch " + s.class, "aria-hidden": "true" }), s.title)));
}

// partsTable is a partition in numbers.
function partsTable(recording, parts, label) {
  const table = new SortedTable(label, [
    nameColumn("PART", ([name]) => recording.part_names[name].name),
    timeColumn("TIME", ([, ns]) => ns),
    { title: "%WALL", numeric: true, cell: ([, ns]) => percent(ns, parts.wall) },
  ], "TIME");
  table.setRows(parts.parts);
  return table.element;
}

// timeOf sums the parts whose segment has one of the titles.
function timeOf(recording, parts, ...titles) {
  if (!parts) return null;
  return segmentTimes(recording, parts).reduce((sum, ns, i) => titles.includes(recording.segments[i].title) ? sum + ns : sum, 0);
}
