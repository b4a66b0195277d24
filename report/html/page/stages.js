// SPDX-License-Identifier: Apache-2.0
//
// The stages: their wall time as bars, and for each what is behind it.

const outsideTitle = "(outside any stage)";
const itselfTitle = "(itself)";

function stagesSection(recording) {
  const rows = stageRows(recording);
  const longest = Math.max(1, ...rows.map((r) => r.parts ? r.parts.wall : 0));
  const body = element("tbody");
  const draw = (relative) => body.replaceChildren(...rows.flatMap((r) =>
    stageRow(recording, r, relative && r.parts ? r.parts.wall / longest : 1)));
  draw(false);
  const table = element("table", { class: "stages", "aria-label": "Stages and where their wall time goes" },
    element("thead", null, element("tr", null, ...["STAGE", "SPANS", "WALL", "PER SPAN", "CUDA", "WHERE THE WALL TIME GOES"].map((title, i) =>
      element("th", { scope: "col", class: i > 0 && i < 5 ? "number" : null }, title)))), body);
  return section("stages", "Stages",
    rows.length === 0 ? note("No stage was seen, and no time outside of stages. Mark stages in the training code, e.g. with stageprof.stage(\"forward\"): …") : null,
    rows.length === 0 ? null : element("div", { class: "controls" }, scaleChoice(draw), legend(recording, rows.map((r) => r.parts))),
    rows.length === 0 ? null : element("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": "Stages (table)" }, table),
    note("Each bar is all of its WALL. WALL and CUDA are summed over threads and include the stages inside; CUDA is host time inside driver calls, not GPU time. PER SPAN is the mean of complete spans; +n are spans that the edge of the recording cut."));
}

// stageRows are the rows of the table: stages, "(itself)" behind the stages
// inside a stage, and the time outside of stages.
function stageRows(recording) {
  const rows = [];
  const open = []; // stages around, whose "(itself)" is still to come
  const close = (depth) => {
    while (open.length > 0 && open[open.length - 1].depth >= depth) {
      const stage = open.pop();
      if (stage.parts) rows.push({ title: itselfTitle, depth: stage.depth + 1, parts: stage.parts });
    }
  };
  for (const stage of recording.stages) {
    close(stage.depth);
    rows.push({ title: stage.name, depth: stage.depth, stage, parts: stage.parts_within });
    if (stage.inside > 0 && !stage.process) open.push(stage);
  }
  close(0);
  if (recording.outside) rows.push({ title: outsideTitle, depth: 0, parts: recording.outside });
  return rows;
}

function scaleChoice(draw) {
  const choice = (label, relative) => element("label", null,
    element("input", { type: "radio", name: "scale", checked: !relative, change: () => draw(relative) }), label);
  return element("fieldset", null, element("legend", null, "Length of the bars"),
    choice("each 100 %", false), choice("by wall time", true));
}

// stageRow gives the row and, below, its details, which are made when asked for.
function stageRow(recording, r, share) {
  const { stage, parts } = r;
  const details = element("tr", { class: "details", id: freshId("details"), hidden: true });
  const toggle = () => {
    if (!details.hasChildNodes()) details.append(element("td", { colspan: "6" }, ...stageDetails(recording, r)));
    details.hidden = !details.hidden;
    button.setAttribute("aria-expanded", String(!details.hidden));
  };
  const button = element("button", { type: "button", class: "expand", "aria-expanded": "false", "aria-controls": details.id, click: toggle },
    nameOf(r.title), stage && stage.process ? " (whole process)" : null);
  button.style.marginInlineStart = 1.25 * r.depth + "em";
  const row = element("tr", null,
    element("th", { scope: "row" }, button),
    ...[stage ? spanCount(stage) : "", duration(wallOf(r)), stage ? duration(stage.per_span) : "", duration(cudaOf(recording, r))].map((text) =>
      element("td", { class: "number" }, text)),
    element("td", { class: "bar-cell" }, bar(recording, parts, share),
      parts ? element("div", { class: "bar-text", "aria-hidden": "true" }, barText(recording, parts, 3)) : null));
  return [row, details];
}

function wallOf({ stage, parts }) {
  if (parts) return parts.wall;
  return stage ? stage.wall : null;
}

function cudaOf(recording, { stage, parts }) {
  return stage ? stage.calls.wall : timeOf(recording, parts, "CUDA CPU", "CUDA BLKD", "CUDA CPU, GIL HELD", "CUDA BLKD, GIL HELD");
}

function spanCount(stage) {
  if (stage.wall === null) return missing;
  return count(stage.complete) + (stage.partial > 0 ? " +" + count(stage.partial) : "");
}

function stageDetails(recording, { title, stage, parts }) {
  const about = stage ? stage.path : title;
  return [
    parts ? partsTable(recording, parts, "Parts of the wall time of " + about) : note("What this time consists of is not known."),
    stage && stage.iterations ? iterationsTable(stage) : null,
    stage && stage.adopted ? adoptedList(stage) : null,
  ].filter(Boolean);
}

// iterationsTable describes the complete spans that were kept one by one.
function iterationsTable(stage) {
  const { iterations } = stage;
  const spans = iterations.missing > 0
    ? `${count(iterations.count)} of ${count(iterations.count + iterations.missing)}` : count(iterations.count);
  const label = `One span of ${stage.path}: ${spans}`;
  const table = new SortedTable(label, [
    nameColumn(`ONE OF ${spans} SPANS`, (d) => d.name || "wall"),
    timeColumn("MEAN", (d) => d.mean), timeColumn("P50", (d) => d.p50), timeColumn("P99", (d) => d.p99), timeColumn("MAX", (d) => d.max),
  ], "MEAN");
  table.setRows([iterations.wall, ...iterations.parts || []]);
  return table.element;
}

function adoptedList(stage) {
  return list(stage.adopted.map((a) => ["+ " + a.attribution,
    `${plural(a.calls.count, "call")} of other threads on behalf of the stage took ${duration(a.calls.wall)}, beside its wall time`]),
  "Calls on behalf of " + stage.path);
}
