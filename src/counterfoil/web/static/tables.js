// Fields that leave only those rows of a table in sight that hold what was typed.
"use strict";
for (const field of document.querySelectorAll("input[data-filters]")) {
  const rows = [...document.querySelectorAll(`#${field.dataset.filters} tbody tr`)].map((row) => [row, row.textContent.toLowerCase()]);
  const told = document.querySelector(`[data-count-of="${field.dataset.filters}"]`);
  field.addEventListener("input", () => {
    const wanted = field.value.trim().toLowerCase();
    let shown = 0;
    for (const [row, text] of rows) {
      row.hidden = !text.includes(wanted);
      shown += row.hidden ? 0 : 1;
    }
    if (told) told.textContent = wanted ? `${shown} of ${rows.length}` : `${rows.length}`;
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") event.preventDefault(); // it would send the form around it
  });
}
