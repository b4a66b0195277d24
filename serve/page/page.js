// SPDX-License-Identifier: Apache-2.0
// The live page: asks for totals once a second and shows their differences.
"use strict";

const PERIOD_MS = 1000;
const BARS = 120;
const WIDTH = 960;
const HEIGHT = 220;

// What a thread did, in the order and colours in which it is drawn.
const PARTS = [
  ["running", "running", "#4e9a51"],
  ["cuda_cpu", "in the driver, on a CPU", "#2f7ed8"],
  ["cuda_blocked", "in the driver, asleep", "#8fbcf0"],
  ["gil_wait", "waiting for the GIL", "#d9534f"],
  ["runnable", "waiting for a CPU", "#e6a23c"],
  ["blocked_futex", "asleep: futex", "#a9a9b3"],
  ["blocked_poll", "asleep: poll", "#94949f"],
  ["blocked_read", "asleep: read", "#80808c"],
  ["blocked_sleep", "asleep: sleep", "#bdbdc6"],
  ["blocked_page_fault", "asleep: page fault", "#7b5ea7"],
  ["blocked_other", "asleep: other", "#6c6c78"],
];

const OUTSIDE = "none"; // any stage
const colours = new Map([[OUTSIDE, "#8a8f96"]]); // by stage, in the order of appearance
const bars = []; // [{stage: seconds}]
let before = null;
let paused = false;

const byId = (id) => document.getElementById(id);

function colourOf(stage) {
  if (!colours.has(stage)) {
    // Steps of the golden angle keep neighbours apart.
    colours.set(stage, `hsl(${Math.round((210 + colours.size * 137.5) % 360)} 55% 52%)`);
  }
  return colours.get(stage);
}

function element(name, attributes, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  e.append(...children);
  return e;
}

function rect(x, y, width, height, colour, title) {
  const r = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  const attributes = { x, y, width: Math.max(width, 0), height: Math.max(height, 0), fill: colour };
  for (const [key, value] of Object.entries(attributes)) r.setAttribute(key, value);
  if (title) {
    const t = document.createElementNS("http://www.w3.org/2000/svg", "title");
    t.textContent = title;
    r.append(t);
  }
  return r;
}

function swatch(colour) {
  const s = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  s.setAttribute("class", "swatch");
  s.setAttribute("viewBox", "0 0 1 1");
  s.setAttribute("aria-hidden", "true");
  s.append(rect(0, 0, 1, 1, colour));
  return s;
}

function duration(seconds) {
  if (seconds >= 1) return seconds.toFixed(2) + " s";
  if (seconds >= 1e-3) return (seconds * 1e3).toFixed(2) + " ms";
  return (seconds * 1e6).toFixed(0) + " µs";
}

const sum = (parts) => Object.values(parts).reduce((a, b) => a + b, 0);

// since is what the stages did between two answers.
function since(earlier, later) {
  const old = new Map(earlier.stages.map((s) => [s.stage, s]));
  const took = later.seconds - earlier.seconds;
  const stages = later.stages.map((s) => {
    const o = old.get(s.stage) || { spans: 0, wall_seconds: 0, parts: {} };
    const parts = {};
    for (const [name, seconds] of Object.entries(s.parts)) parts[name] = Math.max(0, seconds - (o.parts[name] || 0));
    return { stage: s.stage, spans: s.spans - o.spans, parts, seconds: sum(parts) };
  });
  return { took, calls: later.calls - earlier.calls, stages };
}

function partsBar(parts, total) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 100 10");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  const words = [];
  let x = 0;
  for (const [name, label, colour] of PARTS) {
    const seconds = parts[name] || 0;
    if (seconds <= 0 || total <= 0) continue;
    const width = (100 * seconds) / total;
    svg.append(rect(x, 0, width, 10, colour, `${label}: ${duration(seconds)}`));
    words.push(`${label} ${width.toFixed(0)} %`);
    x += width;
  }
  svg.setAttribute("aria-label", words.join(", ") || "nothing");
  return svg;
}

function drawChart() {
  const chart = byId("chart");
  const most = Math.max(...bars.map(sum), 1e-9);
  const width = WIDTH / BARS;
  const order = [...colours.keys()].filter((stage) => stage !== OUTSIDE);
  chart.replaceChildren();
  byId("most").textContent = most.toFixed(2);
  bars.forEach((bar, i) => {
    let y = HEIGHT;
    for (const stage of order) {
      const seconds = bar[stage] || 0;
      const height = (HEIGHT * seconds) / most;
      if (height <= 0) continue;
      y -= height;
      chart.append(rect((BARS - bars.length + i) * width, y, width - 1, height, colourOf(stage), `${stage}: ${duration(seconds)}`));
    }
  });
  byId("legend").replaceChildren(...order.map((stage) => element("li", {}, swatch(colourOf(stage)), stage)));
}

function drawStages(change) {
  byId("span-of-time").textContent = duration(change.took);
  const rows = change.stages.filter((s) => s.seconds > 0).sort((a, b) => b.seconds - a.seconds);
  byId("stages").replaceChildren(...rows.map((s) => element("tr", {},
    element("th", { scope: "row" }, swatch(colourOf(s.stage)), " ", s.stage === OUTSIDE ? "(outside any stage)" : s.stage),
    element("td", { class: "n" }, String(s.spans)),
    element("td", { class: "n" }, (s.seconds / change.took).toFixed(3)),
    element("td", { class: "bar" }, partsBar(s.parts, s.seconds)))));
}

function drawSpans(spans) {
  byId("spans").replaceChildren(...spans.map((s) => element("tr", {},
    element("td", {}, s.ended.toFixed(3) + " s"),
    element("td", {}, s.stage),
    element("td", {}, s.thread),
    element("td", { class: "n" }, duration(s.wall_seconds) + (s.partial ? " (cut)" : "")),
    element("td", { class: "bar" }, partsBar(s.parts, sum(s.parts))))));
}

function show(state) {
  byId("target").textContent = state.target ? `· pid ${state.target.pid} (${state.target.comm})` : "";
  byId("status").textContent = !state.target ? "no process is being recorded yet"
    : `${state.up ? "recording" : "the process has ended"}, ${state.seconds.toFixed(0)} s, ${state.calls.toLocaleString("en")} calls, ${state.lost.toLocaleString("en")} lost`;
  if (before && before.epoch === state.epoch && state.seconds > before.seconds) {
    const change = since(before, state);
    const bar = {};
    for (const s of change.stages.filter((s) => s.stage !== OUTSIDE)) {
      colourOf(s.stage);
      bar[s.stage] = s.seconds / change.took;
    }
    bars.push(bar);
    if (bars.length > BARS) bars.shift();
    drawChart();
    drawStages(change);
  }
  drawSpans(state.spans);
  before = state;
}

async function poll() {
  if (!paused) {
    try {
      const answer = await fetch("/api/live");
      if (!answer.ok) throw new Error(await answer.text());
      show(await answer.json());
    } catch (error) {
      byId("status").textContent = `no answer: ${error.message}`;
    }
  }
  setTimeout(poll, PERIOD_MS);
}

byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  byId("pause").textContent = paused ? "Go on" : "Pause";
});
byId("parts").replaceChildren(...PARTS.map(([, label, colour]) => element("li", {}, swatch(colour), label)));
poll();
