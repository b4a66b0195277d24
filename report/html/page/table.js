// SPDX-License-Identifier: Apache-2.0
//
// Tables that can be sorted and that show many rows bit by bit.

const rowsAtOnce = 100;

// SortedTable shows rows. A column has a title; cell(row), which gives a text or
// an element; and, if rows can be sorted by it, value(row), a number or a text.
// What is not known has the value null, and stands last.
class SortedTable {
  constructor(label, columns, sortedBy) {
    this.columns = columns;
    this.column = columns.findIndex((c) => c.title === sortedBy);
    this.descending = true;
    this.rows = [];
    this.shown = rowsAtOnce;
    this.headers = columns.map((c, i) => this.header(c, i));
    this.body = element("tbody");
    this.more = element("button", { type: "button", class: "more", click: () => this.showMore() });
    this.element = element("div", null,
      element("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": label + " (table)" },
        element("table", { "aria-label": label }, element("thead", null, element("tr", null, ...this.headers)), this.body)),
      this.more);
  }

  header(column, i) {
    const attributes = { scope: "col", class: column.numeric ? "number" : null };
    if (!column.value) return element("th", attributes, column.title);
    return element("th", attributes, element("button", { type: "button", title: column.hint, click: () => this.sortBy(i) }, column.title));
  }

  // setRows replaces the rows; the order stays chosen.
  setRows(rows) {
    this.rows = [...rows];
    this.shown = rowsAtOnce;
    this.sort();
  }

  // sortBy orders by a column: numbers begin with the largest, texts with the
  // first; once more turns the order around.
  sortBy(i) {
    this.descending = i === this.column ? !this.descending : Boolean(this.columns[i].numeric);
    this.column = i;
    this.sort();
  }

  sort() {
    const column = this.columns[this.column];
    if (column) {
      const sign = this.descending ? -1 : 1;
      const keyed = this.rows.map((row, i) => [column.value(row), i, row]);
      keyed.sort(([a, i], [b, j]) => compareValues(a, b, sign) || i - j);
      this.rows = keyed.map(([, , row]) => row);
    }
    this.headers.forEach((th, i) => {
      if (!this.columns[i].value) return;
      th.setAttribute("aria-sort", i !== this.column ? "none" : this.descending ? "descending" : "ascending");
    });
    this.draw();
  }

  showMore() {
    const first = this.shown;
    this.shown *= 4;
    this.draw();
    // The button may be gone: what has been added is where to go on.
    const row = this.body.rows[first];
    row.tabIndex = -1;
    row.focus();
  }

  draw() {
    this.body.replaceChildren(...this.rows.slice(0, this.shown).map((row) => this.row(row)));
    const rest = this.rows.length - this.shown;
    this.more.hidden = rest <= 0;
    this.more.textContent = "Show more: " + plural(rest, "further row");
  }

  row(row) {
    return element("tr", null, ...this.columns.map((c, i) => {
      const cell = c.cell(row);
      return element(i === 0 ? "th" : "td", { scope: i === 0 ? "row" : null, class: c.numeric ? "number" : null }, cell);
    }));
  }
}

function compareValues(a, b, sign) {
  if (a === null || b === null) return (a === null) - (b === null);
  if (typeof a === "string") return sign * a.localeCompare(b, "en", { numeric: true });
  return sign * (a - b);
}

// timeColumn is a column of durations.
function timeColumn(title, ns, hint) {
  return { title, hint, numeric: true, value: ns, cell: (row) => duration(ns(row)) };
}

function countColumn(title, n, hint) {
  return { title, hint, numeric: true, value: n, cell: (row) => count(n(row)) };
}

function nameColumn(title, text, hint) {
  return { title, hint, value: text, cell: (row) => nameOf(text(row)) };
}
