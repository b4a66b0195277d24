// SPDX-License-Identifier: Apache-2.0
//
// Making elements. Texts become text nodes, so a name is never read as markup.

// element makes an element. Attributes that are functions are listeners, true
// and false set or leave out; children that are null are left out.
function element(name, attributes, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (typeof value === "function") e.addEventListener(key, value);
    else if (value === true) e.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) e.setAttribute(key, value);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined));
  return e;
}

// name shows a name that the target chose.
function nameOf(text) {
  return element("bdi", { class: "name" }, text);
}

// section is a part of the page with a heading that can be linked to.
function section(id, title, ...children) {
  return element("section", { id, "aria-labelledby": id + "-title" },
    element("h2", { id: id + "-title" }, title), ...children);
}

function note(text) {
  return element("p", { class: "note" }, text);
}

// list is a table of cells without titles: [[what, text, ...], ...].
function list(rows, label) {
  return element("table", { class: "list", "aria-label": label }, element("tbody", null, ...rows.map((cells) =>
    element("tr", null, ...cells.map((cell, i) =>
      i === 0 && cells.length > 1 ? element("th", { scope: "row" }, cell) : element("td", null, cell))))));
}

let serial = 0;

// freshId is an id that no other element has.
function freshId(prefix) {
  serial++;
  return prefix + "-" + serial;
}
