// SPDX-License-Identifier: Apache-2.0
//
// Whose work stages waited for: waiting stages by owning stages.

const mostOwners = 10;
const otherOwners = "(others)";

function debtSection(recording) {
  const owners = largestOwners(recording.debts);
  const table = new SortedTable("Waiting stages by owning stages", [
    nameColumn("WAITING STAGE", ({ stage }) => stage.stage),
    countColumn("WAITS", ({ stage }) => stage.waits),
    timeColumn("WAITED", ({ stage }) => stage.wall),
    ...owners.map(ownerColumn),
  ], "WAITED");
  table.setRows(recording.debts.map((stage) => ({ stage, owed: owedTo(owners, stage) })));
  return section("debt", "Sync debt (estimate)", table.element,
    note("Each row is a stage that waited for the device, and each further column is for a stage whose work was waited for. Waits are counted; how a wait's time is divided is an estimate: in proportion to the operations that each stage had given the device before it, long and short ones alike."));
}

// largestOwners are those to whom most is owed; the others share the last column.
function largestOwners(debts) {
  const owed = new Map();
  for (const { owners } of debts) for (const o of owners) owed.set(o.name, (owed.get(o.name) || 0) + o.wall);
  const names = [...owed.keys()].sort((a, b) => owed.get(b) - owed.get(a));
  return names.length > mostOwners + 1 ? [...names.slice(0, mostOwners), otherOwners] : names;
}

// owedTo sums what the stage owes to each of the owners.
function owedTo(owners, stage) {
  const sums = owners.map(() => ({ wall: 0, operations: 0 }));
  for (const o of stage.owners) {
    const sum = sums.at(owners.indexOf(o.name)); // -1 is the last
    sum.wall += o.wall;
    sum.operations += o.operations;
  }
  return sums;
}

function ownerColumn(name, i) {
  return {
    title: nameOf(name), numeric: true, value: ({ owed }) => owed[i].wall,
    cell: ({ stage, owed }) => owedShare(owed[i], stage.wall),
  };
}

// owedShare is the darker the larger a part of the whole it is.
function owedShare({ wall, operations }, whole) {
  if (wall === 0 && operations === 0) return "";
  const share = element("div", { class: "share", title: plural(operations, "operation") },
    duration(wall), element("small", null, " " + percent(wall, whole)));
  share.style.setProperty("--share", wall / (whole || 1));
  return share;
}
