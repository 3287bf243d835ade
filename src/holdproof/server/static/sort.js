"use strict";
// Lists sort by a click on the name of a column: the rows that are shown, here in the browser. A third click brings the
// server's order back. A part that comes anew is arranged before it is compared with what is shown, so that rows stay.

const orders = new Map();
const collator = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });

// Tables are known by the names of their columns, which no refresh changes.
const nameOf = (table) => [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim()).join("|");

function arrange(part) {
  for (const table of part.querySelectorAll("table.cards")) {
    const [head, body] = [table.tHead?.rows[0], table.tBodies[0]];
    const rows = [...(body?.rows ?? [])];
    if (!head || rows.length < 2 || rows.some((row) => row.cells.length !== head.cells.length)) { continue; }
    table.classList.add("sortable");
    rows.forEach((row, place) => { row.dataset.place ??= place; });
    for (const cell of head.cells) { nameColumn(cell); }
    sortRows(table, orders.get(nameOf(table)));
  }
}

function nameColumn(cell) {
  // A column of buttons is named for screen readers only.
  if (cell.textContent.trim() === "" || cell.querySelector("button, .visually-hidden") !== null) { return; }
  const button = document.createElement("button");
  button.type = "button";
  button.className = "sort";
  button.title = "Sort the rows that are shown";
  button.append(...cell.childNodes);
  cell.append(button);
}

function sortRows(table, order) {
  const cells = table.tHead.rows[0].cells;
  for (const cell of cells) { cell.removeAttribute("aria-sort"); }
  if (order !== undefined) { cells[order.column].setAttribute("aria-sort", order.descending ? "descending" : "ascending"); }
  const body = table.tBodies[0];
  const rows = [...body.rows].sort((one, other) => one.dataset.place - other.dataset.place);
  // Sorting keeps the order of equals; what has no value comes last in both directions.
  if (order !== undefined) { rows.sort((one, other) => compare(valueOf(one, order.column), valueOf(other, order.column), order.descending)); }
  body.append(...rows);
}

function valueOf(row, column) {
  const cell = row.cells[column];
  return cell.dataset.sort ?? cell.querySelector("time[datetime]")?.dateTime ?? cell.textContent.trim();
}

function compare(one, other, descending) {
  const [lacks, otherLacks] = [one, other].map((text) => text === "" || text === "—");
  if (lacks || otherLacks) { return lacks - otherLacks; }
  const [number, otherNumber] = [one, other].map((text) => Number(text.replace(/[\s,%]/g, "")));
  const both = Number.isFinite(number) && Number.isFinite(otherNumber);
  const result = both ? number - otherNumber : collator.compare(one, other);
  return descending ? -result : result;
}

document.addEventListener("click", (event) => {
  const cell = event.target.closest?.("button.sort")?.closest("th");
  if (!cell) { return; }
  const table = cell.closest("table");
  const name = nameOf(table);
  const before = orders.get(name);
  if (before?.column !== cell.cellIndex) { orders.set(name, { column: cell.cellIndex, descending: false }); }
  else if (!before.descending) { orders.set(name, { column: cell.cellIndex, descending: true }); }
  else { orders.delete(name); }
  sortRows(table, orders.get(name));
});

arrange(document);
