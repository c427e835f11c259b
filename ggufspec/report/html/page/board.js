"use strict";

/* Filters: a row is shown if it has every chosen value and all words. */
{
  const words = document.getElementById("words");
  const shown = document.getElementById("shown");
  const body = document.querySelector("#configurations tbody");
  const rows = Array.from(body ? body.rows : [], (row) => ({ row, text: row.textContent.toLowerCase() }));
  const choices = document.querySelectorAll("select[data-column]");

  const filter = () => {
    const parts = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = Array.from(choices).filter((choice) => choice.value);
    let count = 0;
    for (const { row, text } of rows) {
      const matches =
        chosen.every((choice) => row.cells[choice.dataset.column].textContent === choice.value) &&
        parts.every((part) => text.includes(part));
      row.hidden = !matches;
      count += matches;
    }
    shown.textContent = `${count} of ${rows.length} shown`;
  };

  if (words) {
    words.addEventListener("input", filter);
    for (const choice of choices) choice.addEventListener("change", filter);
    filter();
  }
}
