// SPDX-License-Identifier: Apache-2.0
//
// The timeline: lanes and trend over the same range of time, and the longest
// spans in it as a table.

const longestShown = 20;

function timelineSection(recording) {
  const spans = new SpanList(recording);
  if (spans.length === 0) {
    return section("timeline", "Timeline", note("The recording has no single spans."));
  }
  return new Timeline(recording, spans).element;
}

// stageLegend names the colours of stages.
function stageLegend(recording, stages) {
  return element("ul", { class: "legend", "aria-label": "Colours of the stages" }, ...stages.map((s) => {
    const swatch = element("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = stageColour(s);
    return element("li", null, swatch, nameOf(recording.stages[s].path));
  }));
}

class Timeline {
  constructor(recording, spans) {
    this.recording = recording;
    this.spans = spans;
    this.whole = { from: 0, to: spans.begin.reduce((end, _, i) => Math.max(end, spans.end(i)), Math.max(1, recording.window_ns)) };
    this.range = { ...this.whole };
    this.lanes = new LanesView(spans, this.range);
    this.trend = new TrendView(spans, this.range);
    this.status = element("p", { role: "status", class: "range" });
    this.longest = this.longestTable();
    this.stages = [...new Set(spans.stage)].filter((s) => s >= 0).sort((a, b) => a - b);
    this.choice = element("select", { id: "trend-stage", change: () => this.chooseStage() },
      ...this.stages.map((s) => element("option", { value: s }, recording.stages[s].path)));
    this.element = section("timeline", "Timeline", ...this.content());
    this.listen();
    this.chooseStage();
  }

  content() {
    const left = this.lanes.left > 0 ? note(plural(this.lanes.left, "further lane") + " of threads with less time in stages are not drawn.") : null;
    return [
      this.toolbar(), this.status,
      this.plot = element("div", { class: "plot", tabindex: "0", role: "group", "aria-label": "Timeline. Left and right move, plus and minus zoom, zero shows all.", keydown: (e) => this.key(e) },
        element("div", { class: "lanes" }, this.lanes.canvas)),
      left, stageLegend(this.recording, this.stages),
      this.stages.length === 0 ? null : element("div", { class: "controls" }, element("label", { for: "trend-stage" }, "Spans of the stage "), this.choice),
      this.stages.length === 0 ? null : element("div", { class: "plot" }, this.trend.canvas),
      note("Each span has the colour of its stage, and a band of its parts below it: how much of each, not when. Spans that are too narrow are drawn as the stages' shares of the time. In the second drawing columns are the mean of the spans that begin there, divided into their parts, and the line above is the longest of them. Drag to zoom in."),
      this.stages.length === 0 ? null : this.longest.element,
    ];
  }

  toolbar() {
    const button = (text, act) => element("button", { type: "button", click: act }, text);
    return element("div", { class: "controls", role: "group", "aria-label": "Range of the timeline" },
      button("◀ Earlier", () => this.move(-0.4)), button("Later ▶", () => this.move(0.4)),
      button("+ Zoom in", () => this.zoom(0.5)), button("− Zoom out", () => this.zoom(2)), button("Show all", () => this.setRange(this.whole)));
  }

  key(event) {
    const act = {
      ArrowLeft: () => this.move(-0.2), ArrowRight: () => this.move(0.2),
      "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), 0: () => this.setRange(this.whole),
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  }

  move(share) {
    const { from, to } = this.range, width = to - from;
    const start = Math.min(Math.max(from + share * width, this.whole.from), this.whole.to - width);
    this.setRange({ from: start, to: start + width });
  }

  zoom(factor) {
    const { from, to } = this.range, middle = (from + to) / 2, half = (to - from) / 2 * factor;
    this.setRange({ from: middle - half, to: middle + half });
  }

  // setRange shows a range of time, at least a microsecond, inside the whole.
  setRange({ from, to }) {
    const width = Math.min(Math.max(to - from, 1000), this.whole.to - this.whole.from);
    this.range.from = Math.min(Math.max(from, this.whole.from), this.whole.to - width);
    this.range.to = this.range.from + width;
    this.update();
  }

  chooseStage() {
    if (this.stages.length > 0) this.trend.show(Number(this.choice.value));
    this.update();
  }

  update() {
    const { from, to } = this.range;
    this.status.textContent = `From ${moment(from, to - from)} to ${moment(to, to - from)}`;
    if (this.stages.length > 0) this.longest.setRows(this.longestSpans());
    this.draw();
  }

  // draw does nothing as long as the page has no room for it.
  draw() {
    if (!this.plot.isConnected || this.plot.clientWidth === 0) return;
    this.lanes.draw();
    if (this.stages.length > 0) this.trend.draw();
  }

  longestSpans() {
    const { spans, range } = this, { list } = this.trend;
    return list.filter((i) => spans.end(i) > range.from && spans.begin[i] < range.to)
      .sort((a, b) => spans.wall[b] - spans.wall[a]).slice(0, longestShown);
  }

  longestTable() {
    const { spans, recording } = this;
    return new SortedTable("The longest spans of the stage in this range", [
      timeColumn("LONGEST SPANS", (i) => spans.wall[i]),
      { title: "BEGINS AFTER", numeric: true, value: (i) => spans.begin[i], cell: (i) => moment(spans.begin[i], spans.wall[i]) },
      nameColumn("THREAD", (i) => spans.threadName(i)),
      { title: "LARGEST PARTS", cell: (i) => barText(recording, spans.parts(i), 4) },
      { title: "SHOW", cell: (i) => element("button", { type: "button", "aria-label": `Show the span after ${moment(spans.begin[i], spans.wall[i])}`, click: () => this.showSpan(i) }, "Show") },
    ], "LONGEST SPANS");
  }

  showSpan(i) {
    const { spans } = this;
    this.setRange({ from: spans.begin[i] - spans.wall[i] / 2, to: spans.end(i) + spans.wall[i] / 2 });
    this.plot.focus();
  }

  // listen follows what changes the drawing from outside, and the pointer.
  listen() {
    // Drawing changes the size of what is observed: in the next frame.
    new ResizeObserver(() => requestAnimationFrame(() => this.draw())).observe(this.plot);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      styleValues = new Map();
      this.draw();
    });
    let start = null;
    const { canvas } = this.lanes;
    canvas.addEventListener("pointerdown", (e) => { start = e.offsetX; });
    canvas.addEventListener("pointerup", (e) => {
      if (start !== null && Math.abs(e.offsetX - start) > 4) this.zoomTo(start, e.offsetX);
      start = null;
    });
  }

  zoomTo(a, b) {
    const width = this.lanes.canvas.clientWidth;
    this.setRange({ from: this.lanes.time(Math.min(a, b), width), to: this.lanes.time(Math.max(a, b), width) });
  }
}
