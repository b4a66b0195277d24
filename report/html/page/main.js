// SPDX-License-Identifier: Apache-2.0
//
// Builds the page from the data in it.

// panels are the sections of the page, in order. Some are there only if the
// recording has what they show.
const panels = [
  ["Stages", "stages", stagesSection], ["Timeline", "timeline", timelineSection], ["GIL", "gil", gilSection],
  ["Sync debt", "debt", debtSection, (recording) => recording.debts],
  ["Python", "python", pythonSection, (recording) => recording.python],
  ["Calls", "calls", callsSection], ["Threads", "threads", threadsSection], ["Lost and cost", "lost", notesSection],
];

function panelsOf(recording) {
  return panels.filter(([, , , occurs]) => !occurs || occurs(recording));
}

function heading(data, recording) {
  const links = [...data.comparison ? [["What changed", "changes"]] : [], ...panelsOf(recording)];
  return [
    element("div", { class: "title" },
      element("h1", null, "stageprof ", nameOf(recording.name)),
      element("nav", { "aria-label": "Sections" }, element("ul", null, ...links.map(([title, id]) =>
        element("li", null, element("a", { href: "#" + id }, title)))))),
    shortNotes(recording),
  ];
}

// recordingChoice says which of several recordings the page is about.
function recordingChoice(data, show) {
  return element("fieldset", null, element("legend", null, "What follows is about"),
    ...data.recordings.map((r, i) => element("label", null,
      element("input", { type: "radio", name: "recording", checked: i === data.shown, change: () => show(r) }), nameOf(r.name))));
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
  const about = element("div");
  const show = (recording) => {
    document.getElementById("heading").replaceChildren(...heading(data, recording));
    about.replaceChildren(summary(recording), ...panelsOf(recording).map(([, , make]) => make(recording)));
  };
  for (const recording of data.recordings) recording.segments = data.segments;
  const content = document.getElementById("content");
  if (data.comparison) content.append(comparisonSection(data), recordingChoice(data, show));
  content.append(about);
  show(data.recordings[data.shown]);
}

// For tests: how values are written.
window.stageprof = { duration, size, count };

start();
