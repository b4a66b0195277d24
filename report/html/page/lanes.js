// SPDX-License-Identifier: Apache-2.0
//
// Spans over time, drawn lane by lane. Those that are narrower than a pixel are
// summed by pixel, and drawn as shares of its height, so that any number of them
// takes as many strokes as there are pixels.

const laneHeight = 22;
const threadGap = 8;
const gutter = 150; // for the threads' names
const mostLanes = 200; // a drawing has a largest height

class LanesView {
  constructor(spans, range, pick) {
    this.spans = spans;
    this.range = range;
    const lanes = spans.lanes();
    this.lanes = lanes.slice(0, mostLanes);
    this.left = lanes.length - this.lanes.length;
    let y = 0;
    this.lanes.forEach((lane, i) => {
      if (i > 0 && lane.thread !== this.lanes[i - 1].thread) y += threadGap;
      lane.y = y;
      y += laneHeight;
    });
    this.height = y + 20; // the axis
    this.canvas = element("canvas", { role: "img", "aria-label": "Spans of each thread over time. The table below lists the longest ones.", mousemove: (e) => this.hover(e), mouseleave: hideTip });
    this.pick = pick;
  }

  draw() {
    const g = prepare(this.canvas, this.height);
    const { width } = g;
    for (const lane of this.lanes) this.drawLane(g, lane, width);
    this.drawNames(g);
    drawAxis(g, this.range, gutter, width, this.height - 18);
  }

  x(ns, width) { return gutter + (ns - this.range.from) / (this.range.to - this.range.from) * (width - gutter); }

  time(x, width) { return this.range.from + (x - gutter) / (width - gutter) * (this.range.to - this.range.from); }

  drawLane(g, lane, width) {
    const { spans } = this;
    const list = lane.spans;
    const pixels = new Map(); // the stages' times in each
    for (let n = firstAt(list, (i) => spans.end(i), this.range.from); n < list.length; n++) {
      const i = list[n];
      if (spans.begin[i] > this.range.to) break;
      const from = Math.max(gutter, this.x(spans.begin[i], width)), to = Math.min(width, this.x(spans.end(i), width));
      if (to - from >= 1) {
        this.drawSpan(g, lane, i, from, to);
        continue;
      }
      const pixel = Math.floor(from), stage = spans.stage[i];
      if (!pixels.has(pixel)) pixels.set(pixel, new Map());
      pixels.get(pixel).set(stage, (pixels.get(pixel).get(stage) || 0) + spans.wall[i]);
    }
    pixels.forEach((stages, pixel) => this.drawShares(g, lane, stages, pixel, width));
  }

  drawShares(g, lane, stages, pixel, width) {
    const whole = Math.max((this.range.to - this.range.from) / (width - gutter), [...stages.values()].reduce((a, b) => a + b));
    let y = lane.y + laneHeight - 3;
    for (const stage of [...stages.keys()].sort((a, b) => a - b)) {
      const height = stages.get(stage) / whole * (laneHeight - 3);
      y -= height;
      g.context.fillStyle = stageColour(stage);
      g.context.fillRect(pixel, y, 1, height);
    }
  }

  // drawSpan draws a stage's colour and below, where there is room, its parts:
  // how much of each, not when.
  drawSpan(g, lane, i, from, to) {
    const { context } = g;
    const height = laneHeight - 3, band = 5;
    context.fillStyle = stageColour(this.spans.stage[i]);
    context.fillRect(from, lane.y, Math.max(1, to - from - 0.5), height);
    if (to - from >= 6) this.drawParts(g, i, from, to, lane.y + height - band, band);
    if (to - from < 40) return;
    context.fillStyle = "#000";
    const name = fitted(context, this.stageTitle(i), to - from - 6);
    if (name) context.fillText(name, from + 3, lane.y + 11);
  }

  drawParts(g, i, from, to, y, height) {
    const { recording } = this.spans;
    const parts = this.spans.parts(i);
    let x = from;
    segmentTimes(recording, parts).forEach((ns, s) => {
      const width = ns / parts.wall * (to - from);
      g.context.fillStyle = segmentColour(recording.segments[s].class);
      g.context.fillRect(x, y, width, height);
      x += width;
    });
  }

  stageTitle(i) {
    const stage = this.spans.recording.stages[this.spans.stage[i]];
    return stage ? stage.name : "?";
  }

  drawNames(g) {
    const { context } = g;
    context.fillStyle = styleValue("--ground");
    context.fillRect(0, 0, gutter - 2, this.height);
    context.fillStyle = styleValue("--text");
    this.lanes.forEach((lane, i) => {
      if (i > 0 && lane.thread === this.lanes[i - 1].thread) return;
      const thread = this.spans.recording.threads[lane.thread];
      context.fillText(fitted(context, `${thread.name} ${thread.tid}`, gutter - 10), 2, lane.y + 13);
    });
  }

  // at is the span below the pointer, -1 if there is none.
  at(event) {
    const lane = this.lanes.find((l) => event.offsetY >= l.y && event.offsetY < l.y + laneHeight);
    if (!lane || event.offsetX < gutter) return -1;
    const { spans } = this, time = this.time(event.offsetX, this.canvas.clientWidth);
    const n = firstAt(lane.spans, (i) => spans.end(i), time);
    return n < lane.spans.length && spans.begin[lane.spans[n]] <= time ? lane.spans[n] : -1;
  }

  hover(event) {
    const i = this.at(event);
    if (i === -1) hideTip();
    else showTip(event, spanText(this.spans, i));
  }
}

// spanText says what a span is, in lines.
function spanText(spans, i) {
  const { recording } = spans, parts = spans.parts(i);
  const largest = [...parts.parts].sort(([, a], [, b]) => b - a).slice(0, 6);
  return [
    `${spans.stageName(i)}: ${duration(spans.wall[i])}${spans.partial.has(i) ? ", cut by the edge of the recording" : ""}`,
    `on ${spans.threadName(i)}, after ${moment(spans.begin[i], spans.wall[i])}`,
    ...largest.map(([name, ns]) => `${percent(ns, parts.wall)}  ${recording.part_names[name].name}  ${duration(ns)}`),
  ];
}

// prepare makes a canvas as large as its place, in the screen's own pixels.
function prepare(canvas, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.style.height = height + "px";
  const width = canvas.clientWidth;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.fillStyle = styleValue("--ground"); // printed on other ground, it stays readable
  context.fillRect(0, 0, width, height);
  context.font = "12px system-ui, sans-serif";
  return { context, width };
}

// drawAxis writes times since the window's begin.
function drawAxis({ context }, range, left, width, y) {
  const steps = Math.max(1, Math.floor((width - left) / 140));
  context.fillStyle = styleValue("--text");
  context.fillRect(left, y, width - left, 1);
  for (let i = 0; i <= steps; i++) {
    const x = left + i / steps * (width - left);
    const text = moment(range.from + i / steps * (range.to - range.from), range.to - range.from);
    const room = context.measureText(text).width;
    context.fillText(text, Math.min(Math.max(left, x - room / 2), width - room), y + 14);
    context.fillRect(Math.min(x, width - 1), y, 1, 3);
  }
}

// fitted cuts a text so that it fits; nothing if hardly any of it does.
function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  const letters = Math.floor(text.length * width / context.measureText(text).width) - 1;
  return letters < 3 ? "" : text.slice(0, letters) + "…";
}

// stageColour tells neighbours apart: each hue is far from the one before.
function stageColour(stage) {
  return stage < 0 ? "#999" : `hsl(${Math.round(stage * 137.5) % 360} 45% 68%)`;
}

let styleValues = new Map();

// styleValue is a custom property of the style sheet; the map is emptied when
// light becomes dark.
function styleValue(name) {
  if (!styleValues.has(name)) styleValues.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return styleValues.get(name);
}

function segmentColour(style) { return styleValue("--" + style); }

function showTip(event, lines) {
  const tip = document.getElementById("tip");
  tip.replaceChildren(...lines.map((line) => element("div", null, line)));
  tip.hidden = false;
  tip.style.left = Math.min(event.pageX + 14, document.documentElement.clientWidth - tip.offsetWidth - 4) + "px";
  tip.style.top = event.pageY + 14 + "px";
}

function hideTip() {
  document.getElementById("tip").hidden = true;
}
