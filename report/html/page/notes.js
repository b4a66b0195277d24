// SPDX-License-Identifier: Apache-2.0
//
// What was missed and what the recording cost: in short at the top of the page,
// where it stays, and in full.

function notesSection(recording) {
  const lost = recording.lost || [];
  return section("lost", "Lost, and cost of stageprof",
    element("h3", null, "Lost"),
    lost.length > 0 ? list(lost, "Losses") : note("Nothing."),
    recording.account ? element("p", { class: "account" }, recording.account) : null,
    ...(recording.budget ? [element("h3", null, "Budget"), list(recording.budget, "Budget")] : []),
    element("h3", null, "Cost of stageprof"),
    list(recording.cost, "Cost of stageprof"),
    ...extraNotes(recording));
}

function extraNotes(recording) {
  const notes = [];
  if (recording.gpu) notes.push(element("h3", null, recording.gpu_title), list(recording.gpu, recording.gpu_title));
  if (recording.warnings) notes.push(element("h3", null, "Warnings"), list(recording.warnings.map((w) => [w]), "Warnings"));
  return notes;
}

// shortNotes are one line about the same.
function shortNotes(recording) {
  const lost = recording.lost || [];
  const cost = recording.cost.find(([what]) => what === "target");
  return element("p", { class: "short-notes" },
    element("a", { href: "#lost" }, "Lost: " + (lost.length > 0 ? lost.map(([what, reason]) => `${what} ${reason}`).join(", ") : "nothing")),
    recording.account.startsWith("ATTENTION") ? element("strong", null, " " + recording.account) : null,
    element("a", { href: "#lost" }, "Cost to the target: " + (cost ? cost[1] : "not known")));
}
