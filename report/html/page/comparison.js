// SPDX-License-Identifier: Apache-2.0
//
// What changed between two recordings, stage by stage and per iteration.

function comparisonSection(data) {
  const { comparison, segments } = data;
  const body = element("tbody", null, ...comparison.stages.flatMap((s) => changeRows(segments, comparison.titles, s)));
  const titles = [...comparison.titles, "ONE ITERATION, BEFORE AND AFTER"];
  const table = element("table", { class: "stages", "aria-label": "What changed in each stage" },
    element("thead", null, element("tr", null, ...titles.map((title, i) =>
      element("th", { scope: "col", class: i > 0 && i < titles.length - 1 ? "number" : null }, title)))), body);
  return section("changes", "What changed",
    element("p", { class: "headline" }, comparison.headline),
    comparison.warnings ? list(comparison.warnings.map((w) => [w]), "Warnings about the comparison") : null,
    meanLegend(segments, comparison.stages),
    element("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": "What changed (table)" }, table),
    note("Means per complete span of a stage. ~ is a difference that chance alone makes often enough: not significant. P is how often. IMPACT is the difference times the iterations after. The upper bar is before, the lower one after, on one scale."));
}

function changeRows(segments, titles, stage) {
  const [[, ...cells], ...more] = stage.rows;
  const details = element("tr", { class: "details", id: freshId("details"), hidden: true });
  const toggle = () => {
    if (!details.hasChildNodes()) details.append(element("td", { colspan: titles.length + 1 }, metricsTable(titles, stage.path, more)));
    details.hidden = !details.hidden;
    button.setAttribute("aria-expanded", String(!details.hidden));
  };
  const button = element("button", { type: "button", class: "expand", "aria-expanded": "false", "aria-controls": details.id, click: toggle },
    nameOf(stage.path), stage.process ? " (whole process)" : null);
  const colour = stage.longer === null ? "" : stage.longer ? " worse" : " better";
  return [element("tr", null,
    element("th", { scope: "row" }, button),
    ...cells.map((text) => element("td", { class: "number" + colour }, text)),
    element("td", { class: "bar-cell" }, ...meanBars(segments, stage))), details];
}

// metricsTable has what else changed, in the order of the metrics.
function metricsTable(titles, path, rows) {
  if (rows.length === 0) return note("Nothing else is known of this stage.");
  return element("table", { "aria-label": "Changes of " + path },
    element("thead", null, element("tr", null, ...["METRIC", ...titles.slice(1)].map((title, i) =>
      element("th", { scope: "col", class: i > 0 ? "number" : null }, title)))),
    element("tbody", null, ...rows.map(([name, ...cells]) => element("tr", null,
      element("th", { scope: "row" }, nameOf(name)), ...cells.map((text) => element("td", { class: "number" }, text))))));
}

// meanBars are two bars, of which the longer one takes all the room.
function meanBars(segments, { before, after }) {
  const longest = Math.max(before ? before.wall : 0, after ? after.wall : 0);
  return [["before", before], ["after", after]].map(([side, mean]) => {
    if (!mean) return element("div", { class: "bar-unknown" }, side + ": nothing to show");
    const texts = mean.segments.map((ns, i) => [ns, i]).filter(([ns]) => ns > 0).sort(([a], [b]) => b - a)
      .map(([ns, i]) => `${segments[i].title} ${duration(Math.round(ns))}`);
    const box = element("div", { class: "bar", role: "img", "aria-label": `${side} ${duration(Math.round(mean.wall))}: ${texts.join(", ")}` });
    box.style.width = 100 * mean.wall / (longest || 1) + "%";
    mean.segments.forEach((ns, i) => {
      if (ns === 0) return;
      const piece = element("span", { class: "segment " + segments[i].class, title: `${side}: ${segments[i].title} ${duration(Math.round(ns))}` });
      piece.style.width = 100 * ns / mean.wall + "%";
      box.append(piece);
    });
    return box;
  });
}

function meanLegend(segments, stages) {
  const occurs = (i) => stages.some((s) => [s.before, s.after].some((mean) => mean && mean.segments[i] > 0));
  return segmentList(segments.filter((s, i) => !s.rare || occurs(i)));
}
