// Small behaviours of the server's pages, each for the elements that ask for it.
"use strict";
const format = new Intl.NumberFormat("en");

// The token stands behind the # of an invitation, where no server sees it. It is sent once, and taken out of the address.
const enter = document.getElementById("enter");
if (enter && location.hash.length > 1) {
  document.getElementById("token").value = decodeURIComponent(location.hash.slice(1));
  history.replaceState(null, "", location.pathname);
  enter.submit();
}

// Buttons that copy an element's text.
for (const button of document.querySelectorAll("button[data-copies]")) {
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copies);
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = "Copied";
    } catch {
      // No clipboard without https: mark the text, so that it can be copied by hand.
      getSelection().selectAllChildren(source);
    }
  });
}

// Fields that leave only those rows of a table in sight that hold what was typed.
for (const field of document.querySelectorAll("input[data-filters]")) {
  const rows = [...document.querySelectorAll(`#${field.dataset.filters} tbody tr`)].map((row) => [row, row.textContent.toLowerCase()]);
  const told = document.querySelector(`[data-count-of="${field.dataset.filters}"]`);
  const count = (shown) => `${shown === rows.length ? "" : `${shown} of `}${format.format(rows.length)} ${rows.length === 1 ? "run" : "runs"}`;
  field.addEventListener("input", () => {
    const wanted = field.value.trim().toLowerCase();
    let shown = 0;
    for (const [row, text] of rows) {
      row.hidden = !text.includes(wanted);
      shown += row.hidden ? 0 : 1;
    }
    if (told) told.textContent = count(shown);
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") event.preventDefault(); // it would send the form around it
  });
}

// A form whose button waits until as many boxes are ticked as it needs, and says so.
for (const form of document.querySelectorAll("form[data-least]")) {
  const button = form.querySelector("button[type=submit]");
  if (!button) continue;
  const { least, most } = form.dataset;
  const label = button.textContent;
  const count = () => {
    const ticked = form.querySelectorAll("input[type=checkbox]:checked").length;
    button.disabled = ticked < Number(least) || ticked > Number(most);
    button.textContent = button.disabled ? `Tick ${least} to ${most} to compare` : label;
  };
  form.addEventListener("change", count);
  window.addEventListener("pageshow", count); // a browser that goes back brings the ticks with it
  count();
}

// Keep the page of a run in progress up to date, and load it again when the run has ended.
const panel = document.getElementById("progress");

function remaining(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s left`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min left`;
  return `${(seconds / 3600).toFixed(1)} h left`;
}

async function follow() {
  try {
    const answer = await fetch(panel.dataset.address);
    if (answer.ok) {
      const now = await answer.json();
      if (now.state !== "under way") return location.reload();
      if (now.share !== null) document.getElementById("progress-bar").value = now.share;
      const of = now.expected ? ` of ${format.format(now.expected)}` : "";
      const speed = now.per_second ? `, ${now.per_second.toFixed(1)} per second` : "";
      const left = now.seconds_left !== null ? `, ${remaining(now.seconds_left)}` : "";
      const stages = Object.entries(now.stages).map(([name, lines]) => `${name} ${format.format(lines)}`);
      document.getElementById("progress-stages").textContent = stages.join(" · ");
      document.getElementById("progress-words").textContent =
        `${format.format(now.images)}${of} images, ${format.format(now.accepted)} accepted${speed}${left}`;
    }
  } catch {
    // The server may be restarting; the next request tells.
  }
  setTimeout(follow, 2000);
}

if (panel && panel.dataset.live === "yes") setTimeout(follow, 1000);
