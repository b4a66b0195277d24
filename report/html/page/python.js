// SPDX-License-Identifier: Apache-2.0
//
// The program's own lines of Python by way of which driver calls were made.

function pythonSection(recording) {
  const table = new SortedTable("Lines of Python", [
    nameColumn("PYTHON LINE", (line) => line.line),
    nameColumn("STAGE", (line) => line.stage),
    timeColumn("CUDA", (line) => line.calls.wall),
    timeColumn("GIL HELD", (line) => gilTotal(line, "held").wall),
    othersWaited((line) => gilTotal(line, "held")),
    countColumn("CALLS", (line) => line.calls.count),
    countColumn("SAMPLES", (line) => line.samples),
    nameColumn("MOSTLY", (line) => (line.symbols || []).slice(0, 3).map((s) => s.name).join(", "), "the driver functions called, the costliest first"),
    nameColumn("FROM", (line) => line.from, "what called the line, mostly"),
  ], "CUDA");
  table.setRows(recording.python);
  return section("python", "Python", table.element,
    note("The innermost line outside installed packages. CUDA and CALLS are exact in each stage; how they are divided over lines is estimated from SAMPLES, calls whose Python stack was read."));
}
