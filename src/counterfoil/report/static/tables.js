// Tables that sort by their headings and filter by a word.
"use strict";

(() => {
  const collator = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });

  function sort(table, heading, button) {
    const column = [...heading.parentElement.children].indexOf(heading);
    const numeric = button.dataset.kind !== "text";
    const was = heading.getAttribute("aria-sort");
    const [first, other] = button.dataset.kind === "number" ? ["descending", "ascending"] : ["ascending", "descending"];
    const now = was === first ? other : first;
    for (const each of heading.parentElement.children) {
      if (each.hasAttribute("aria-sort")) each.setAttribute("aria-sort", "none");
    }
    heading.setAttribute("aria-sort", now);
    const sign = now === "ascending" ? 1 : -1;
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => [row.cells[column].dataset.value ?? "", row]);
    rows.sort(([a], [b]) => {
      if (a === "" || b === "") return (a === "") - (b === ""); // what has no value comes last, either way
      return sign * (numeric ? Number(a) - Number(b) : collator.compare(a, b));
    });
    body.append(...rows.map(([, row]) => row));
  }

  function filter(table, controls) {
    const word = controls.querySelector(".table-filter").value.trim().toLocaleLowerCase();
    let left = 0;
    for (const row of table.tBodies[0].rows) {
      const fits = (row.cells[0].dataset.value ?? row.cells[0].textContent).toLocaleLowerCase().includes(word);
      row.hidden = !fits;
      left += fits;
    }
    const total = table.tBodies[0].rows.length;
    const all = `${total.toLocaleString("en")} rows`;
    controls.querySelector(".matches").textContent = left === total ? all : `${left.toLocaleString("en")} of ${all}`;
  }

  document.addEventListener("DOMContentLoaded", () => {
    for (const table of document.querySelectorAll("table.sortable")) {
      for (const button of table.querySelectorAll("button.sort")) {
        button.addEventListener("click", () => sort(table, button.closest("th"), button));
      }
    }
    for (const controls of document.querySelectorAll(".filters.for-table")) {
      const table = controls.parentElement.querySelector("table");
      controls.addEventListener("input", () => filter(table, controls));
    }
  });
})();
