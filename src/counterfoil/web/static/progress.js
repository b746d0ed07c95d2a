// Keeps a page about a run under way up to date, and loads it anew when the run has ended.
"use strict";
const panel = document.getElementById("progress");
const words = document.getElementById("progress-words");
const format = new Intl.NumberFormat("en");

function remaining(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s left`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min left`;
  return `${(seconds / 3600).toFixed(1)} h left`;
}

async function look() {
  try {
    const answer = await fetch(panel.dataset.address);
    if (answer.ok) {
      const now = await answer.json();
      if (now.state !== "under way") return location.reload();
      if (now.share !== null) document.getElementById("progress-bar").value = now.share;
      const of = now.expected ? ` of ${format.format(now.expected)}` : "";
      const speed = now.per_second ? `, ${now.per_second.toFixed(1)} a second` : "";
      const left = now.seconds_left !== null ? `, ${remaining(now.seconds_left)}` : "";
      const stages = Object.entries(now.stages).map(([name, lines]) => `${name} ${format.format(lines)}`);
      document.getElementById("progress-stages").textContent = stages.join(" · ");
      words.textContent = `${format.format(now.images)}${of} images, ${format.format(now.validated)} accepted${speed}${left}`;
    }
  } catch {
    // The server may be starting anew; the next look tells.
  }
  setTimeout(look, 2000);
}

if (panel.dataset.live === "yes") setTimeout(look, 1000);
