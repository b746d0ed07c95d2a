// The view of one image above the gallery. Its address is #image=KEY.
"use strict";

(() => {
  const { make } = counterfoil;
  const { title, body, past, siblings, part, load } = counterfoil.view;
  let current = null;

  function fill(entry) {
    document.getElementById("detail-title").replaceChildren(...title(entry));
    document.getElementById("detail-page").href = `image.html#${entry.run}/${part(entry)}/${entry.key}`;
    const later = make("div", {});
    const same = counterfoil.entries.filter((other) => other.id === entry.id && other.key !== entry.key);
    document.getElementById("detail-body").replaceChildren(
      ...body(entry), later, ...siblings(entry, same, (other) => `#image=${other.key}`),
    );
    const show = () => {
      const known = counterfoil.histories.get(entry.key);
      if (current === entry && known) later.replaceChildren(...past(entry, known.history));
    };
    if (counterfoil.histories.has(entry.key)) show();
    else load(entry.run, part(entry), show);
    const visible = counterfoil.gallery.visible();
    const place = visible.indexOf(entry);
    document.getElementById("detail-place").textContent = place < 0 ? "" : `${place + 1} of ${visible.length}`;
    document.getElementById("detail-back").disabled = place <= 0;
    document.getElementById("detail-on").disabled = place < 0 || place === visible.length - 1;
  }

  function follow() {
    const dialog = document.getElementById("detail");
    const key = /^#image=(.+)$/.exec(location.hash)?.[1];
    const entry = counterfoil.entries.find((each) => each.key === key);
    if (!entry) {
      current = null;
      if (dialog.open) dialog.close();
      return;
    }
    current = entry;
    fill(entry);
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
  }

  function go(by) {
    const visible = counterfoil.gallery.visible();
    const next = visible[visible.indexOf(current) + by];
    if (current && next) location.replace(`#image=${next.key}`);
  }

  document.addEventListener("DOMContentLoaded", () => {
    const dialog = document.getElementById("detail");
    document.getElementById("cards")?.addEventListener("click", (event) => {
      const button = event.target.closest("[data-key]");
      if (button) location.hash = `image=${button.dataset.key}`;
    });
    document.getElementById("detail-back").addEventListener("click", () => go(-1));
    document.getElementById("detail-on").addEventListener("click", () => go(1));
    document.getElementById("detail-close").addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => {
      if (location.hash.startsWith("#image=")) history.replaceState(null, "", location.pathname + location.search);
      current = null;
    });
    dialog.addEventListener("keydown", (event) => {
      if (event.target.closest(".scroll, .steps")) return; // arrows scroll a wide table there
      if (event.key === "ArrowLeft") go(-1);
      if (event.key === "ArrowRight") go(1);
    });
    window.addEventListener("hashchange", follow);
    follow();
  });
})();
