// SPDX-License-Identifier: Apache-2.0
//
// How long the spans of one stage took, over time, and what of.

const trendHeight = 150;
const columnWidth = 3;

class TrendView {
  constructor(spans, range) {
    this.spans = spans;
    this.range = range;
    this.canvas = element("canvas", { role: "img", mousemove: (e) => this.hover(e), mouseleave: hideTip });
  }

  // show chooses the stage.
  show(stage) {
    this.stage = stage;
    this.list = this.spans.ofStage(stage);
    this.canvas.setAttribute("aria-label", "Wall time of the spans of " + this.spans.recording.stages[stage].path + " over time");
  }

  draw() {
    const g = prepare(this.canvas, trendHeight + 20);
    this.columns = this.summarise(Math.floor((g.width - gutter) / columnWidth));
    const highest = Math.max(1, ...this.columns.map((c) => c.max));
    const y = (ns) => trendHeight - ns / highest * (trendHeight - 8);
    this.columns.forEach((c, i) => c.count > 0 && this.drawColumn(g.context, c, gutter + i * columnWidth, y));
    this.drawScale(g, highest, y);
    drawAxis(g, this.range, gutter, g.width, trendHeight + 2);
  }

  // summarise sums the spans that begin in each column of the drawing.
  summarise(columns) {
    const { spans, range } = this;
    const all = Array.from({ length: columns }, () => ({ count: 0, wall: 0, max: 0, times: new Array(spans.recording.segments.length).fill(0) }));
    const width = (range.to - range.from) / columns;
    for (let n = firstAt(this.list, (i) => spans.begin[i], range.from); n < this.list.length; n++) {
      const i = this.list[n];
      if (spans.begin[i] >= range.to) break;
      const c = all[Math.min(columns - 1, Math.floor((spans.begin[i] - range.from) / width))];
      c.count++;
      c.wall += spans.wall[i];
      c.max = Math.max(c.max, spans.wall[i]);
      segmentTimes(spans.recording, spans.parts(i)).forEach((ns, s) => { c.times[s] += ns; });
    }
    return all;
  }

  drawColumn(context, c, x, y) {
    let below = 0;
    c.times.forEach((ns, s) => {
      if (ns === 0) return;
      const mean = ns / c.count;
      context.fillStyle = segmentColour(this.spans.recording.segments[s].class);
      context.fillRect(x, y(below + mean), columnWidth, y(below) - y(below + mean));
      below += mean;
    });
    context.fillStyle = styleValue("--text");
    context.fillRect(x, y(c.max) - 1, columnWidth, 1.5);
  }

  drawScale({ context, width }, highest, y) {
    context.fillStyle = styleValue("--text");
    for (const ns of [highest, highest / 2, 0]) {
      const text = duration(Math.round(ns));
      context.fillText(text, gutter - 6 - context.measureText(text).width, Math.max(10, y(ns) + 4));
      context.fillRect(gutter - 4, y(ns), 4, 1);
    }
    context.globalAlpha = 0.25;
    context.fillRect(gutter, y(highest / 2), width - gutter, 1);
    context.globalAlpha = 1;
  }

  hover(event) {
    const c = this.columns[Math.floor((event.offsetX - gutter) / columnWidth)];
    if (!c || c.count === 0) {
      hideTip();
      return;
    }
    const { segments } = this.spans.recording;
    showTip(event, [
      `${plural(c.count, "span")}: mean ${duration(Math.round(c.wall / c.count))}, longest ${duration(c.max)}`,
      ...c.times.map((ns, s) => [ns, s]).filter(([ns]) => ns > 0).sort(([a], [b]) => b - a)
        .map(([ns, s]) => `${percent(ns, c.wall)}  ${segments[s].title}`),
    ]);
  }
}
