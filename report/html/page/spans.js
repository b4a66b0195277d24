// SPDX-License-Identifier: Apache-2.0
//
// The single spans, and the lanes in which a thread's spans do not overlap.

// SpanList gives access to the lists of the data.
class SpanList {
  constructor(recording) {
    const s = recording.spans;
    this.recording = recording;
    this.length = s.stage.length;
    this.stage = s.stage;
    this.thread = s.thread;
    this.begin = Float64Array.from(s.begin);
    this.wall = Float64Array.from(s.wall);
    this.partial = new Set(s.partial);
    this.packed = s.parts;
    this.partsAt = new Uint32Array(this.length);
    for (let i = 0, at = 0; i < this.length; i++) {
      this.partsAt[i] = at;
      at += 1 + 2 * this.packed[at];
    }
  }

  end(i) { return this.begin[i] + this.wall[i]; }

  // parts are those of one span, in the shape of all parts.
  parts(i) {
    const at = this.partsAt[i];
    const list = [];
    for (let n = 0; n < this.packed[at]; n++) list.push([this.packed[at + 1 + 2 * n], this.packed[at + 2 + 2 * n]]);
    return { wall: this.wall[i], parts: list };
  }

  stageName(i) {
    const stage = this.recording.stages[this.stage[i]];
    return stage ? stage.path : "(unknown stage)";
  }

  threadName(i) { return this.recording.threads[this.thread[i]].name; }

  depth(i) {
    const stage = this.recording.stages[this.stage[i]];
    return stage ? stage.depth : 0;
  }

  // ofStage are the indices of a stage's spans, by begin.
  ofStage(stage) {
    const found = [];
    for (let i = 0; i < this.length; i++) if (this.stage[i] === stage) found.push(i);
    return found;
  }

  // lanes has one for each thread and depth of nesting, those of one thread
  // together, the threads with the longest time in spans first.
  lanes() {
    const byKey = new Map();
    const total = new Map();
    for (let i = 0; i < this.length; i++) {
      const thread = this.thread[i], depth = this.depth(i), key = thread + "/" + depth;
      if (!byKey.has(key)) byKey.set(key, { thread, depth, spans: [] });
      byKey.get(key).spans.push(i);
      if (depth === 0) total.set(thread, (total.get(thread) || 0) + this.wall[i]);
    }
    return [...byKey.values()].sort((a, b) =>
      (total.get(b.thread) || 0) - (total.get(a.thread) || 0) || a.thread - b.thread || a.depth - b.depth);
  }
}

// firstAt is the first place in a sorted list of spans whose value is at least so
// large, its length if there is none.
function firstAt(list, value, least) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (value(list[middle]) < least) low = middle + 1;
    else high = middle;
  }
  return low;
}
