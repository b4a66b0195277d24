// SPDX-License-Identifier: Apache-2.0
//
// Builds the page from the data in it.

// panels are the sections of the page, in order.
const panels = [
  ["Stages", "stages", stagesSection], ["Timeline", "timeline", timelineSection], ["GIL", "gil", gilSection],
  ["Calls", "calls", callsSection], ["Threads", "threads", threadsSection], ["Lost and cost", "lost", notesSection],
];

function heading(recording) {
  return [
    element("div", { class: "title" },
      element("h1", null, "stageprof ", nameOf(recording.name)),
      element("nav", { "aria-label": "Sections" }, element("ul", null, ...panels.map(([title, id]) =>
        element("li", null, element("a", { href: "#" + id }, title)))))),
    shortNotes(recording),
  ];
}

function summary(recording) {
  return element("div", { class: "summary" },
    element("p", null, recording.process.join(" · ")),
    element("p", null, element("code", null, recording.command)),
    element("p", null, recording.window),
    element("p", null, recording.calls_line));
}

function start() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const [recording] = data.recordings;
  recording.segments = data.segments;
  document.getElementById("heading").append(...heading(recording));
  document.getElementById("content").append(summary(recording), ...panels.map(([, , make]) => make(recording)));
}

// For tests: how values are written.
window.stageprof = { duration, size, count };

start();
