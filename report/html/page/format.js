// SPDX-License-Identifier: Apache-2.0
//
// How values are written: as in the text report.

const missing = "-";

// Each unit has a name, a size, and the bound from which on the next is used.
const timeUnits = [
  ["µs", 1e3, 999.5], ["ms", 1e6, 999.5], ["s", 1e9, 599.5], ["min", 60e9, 599.5], ["h", 3600e9, Infinity],
];
const sizeUnits = [
  ["KiB", 2 ** 10, 999.5], ["MiB", 2 ** 20, 999.5], ["GiB", 2 ** 30, 999.5], ["TiB", 2 ** 40, Infinity],
];

function threeDigits(value, units) {
  const [name, size] = units.find(([, size, below]) => value / size < below);
  const x = value / size;
  const digits = x < 9.995 ? 2 : x < 99.95 ? 1 : 0;
  return fixed(x, digits) + " " + name;
}

// fixed is toFixed, but for ties, which the text report rounds to even digits.
function fixed(x, digits) {
  const rounded = x.toFixed(digits);
  const [next, ...further] = x.toFixed(60).split(".")[1].slice(digits); // all digits that x has
  const tie = next === "5" && further.every((d) => d === "0");
  if (!tie || "02468".includes(rounded.at(-1))) return rounded;
  return (rounded - 10 ** -digits).toFixed(digits);
}

// duration writes nanoseconds; null is not known.
function duration(ns) {
  if (ns === null || ns === undefined) return missing;
  if (ns < 0) return "-" + duration(-ns);
  if (ns === 0) return "0";
  return ns < 1000 ? Math.round(ns) + " ns" : threeDigits(ns, timeUnits);
}

// moment writes a time with as many digits as it takes to tell it from another
// one that is a hundredth of width away.
function moment(ns, width) {
  if (ns === 0) return "0";
  const [name, size] = timeUnits.find(([, size, below]) => ns / size < below);
  const digits = Math.ceil(Math.log10(100 * size / width));
  return (ns / size).toFixed(Math.min(Math.max(digits, 0), 9)) + " " + name;
}

function size(bytes) {
  if (bytes === 0) return "0";
  return bytes < 1000 ? bytes + " B" : threeDigits(bytes, sizeUnits);
}

function count(n) {
  return String(n).replace(/\B(?=(\d{3})+$)/g, ",");
}

// percent writes a part of a whole; of nothing it is not known.
function percent(part, whole) {
  if (!whole || part === null || part === undefined) return missing;
  const p = 100 * part / whole;
  if (p === 0) return "0%";
  if (p < 0.1) return "<0.1%";
  return p.toFixed(p < 9.95 ? 1 : 0) + "%";
}

function plural(n, what) {
  return n === 1 ? "1 " + what : count(n) + " " + what + "s";
}
