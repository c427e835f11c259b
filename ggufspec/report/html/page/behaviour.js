"use strict";

const said = document.getElementById("said");

/* Charts: drawn as SVG by an interpreter, so that nothing is compiled from text on this page. */
for (const source of document.querySelectorAll("script[data-chart]")) {
  const place = document.getElementById(source.dataset.chart);
  vegaEmbed(place.firstElementChild, JSON.parse(source.textContent), {
    mode: "vega-lite",
    renderer: "svg",
    actions: false,
    ast: true,
    defaultStyle: false,
    tooltip: { disableDefaultStyle: true },
  }).then(
    () => place.setAttribute("data-drawn", ""),
    (error) => {
      place.textContent = "This chart could not be drawn; its data are below.";
      console.error(error);
    },
  );
}

/* Tables: a heading sorts by its column, a second time the other way round; absent values stay last. */
const order = new Intl.Collator(undefined, { numeric: true });

function key(row, column) {
  const cell = row.cells[column];
  if (!cell.textContent) return null;
  const number = cell.dataset.key;
  return number === undefined || Number.isNaN(Number(number)) ? cell.textContent : Number(number);
}

function compare(one, two) {
  if (typeof one === "number" && typeof two === "number") return one - two;
  return order.compare(String(one), String(two));
}

function sort(head) {
  const table = head.closest("table");
  const body = table.tBodies[0];
  const column = head.cellIndex;
  const down = head.getAttribute("aria-sort") === "ascending";
  const rows = Array.from(body.rows, (row) => [key(row, column), row]);
  rows.sort(([one], [two]) => {
    if (one === null || two === null) return (one === null) - (two === null);
    return down ? compare(two, one) : compare(one, two);
  });
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  body.append(...rows.map(([, row]) => row));
  said.textContent = `Sorted by ${head.textContent.trim()}, ${down ? "descending" : "ascending"}.`;
}

for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => sort(button.closest("th")));
}

/* Commands: copied, or selected where the browser does not let a page copy. */
async function copy(button) {
  const code = button.parentElement.querySelector("code");
  try {
    await navigator.clipboard.writeText(code.textContent);
    said.textContent = "Copied.";
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  } catch {
    getSelection().selectAllChildren(code);
    said.textContent = "Selected; copy it with your keyboard.";
  }
}

for (const button of document.querySelectorAll("button.copy")) {
  button.addEventListener("click", () => copy(button));
}

/* Paper shows what is folded away: the exact commands, but not every chart's data. */
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details.commands:not([open])")];
  for (const each of opened) each.open = true;
});
addEventListener("afterprint", () => {
  for (const each of opened) each.open = false;
});
