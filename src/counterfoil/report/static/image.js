// The page of one image. Its address is image.html#RUN/PART/KEY, and it loads nothing but the part that holds the image.
"use strict";

(() => {
  const { title, body, past, siblings, part, load } = counterfoil.view;
  const page = document.getElementById("image-body");

  function tell(text) {
    document.getElementById("image-title").textContent = "No such image";
    page.replaceChildren(counterfoil.make("p", { class: "empty" }, text));
  }

  function show(key) {
    const entry = counterfoil.histories.get(key);
    if (!entry) return tell("This report has no image at this address. Open one from the gallery.");
    document.getElementById("image-title").replaceChildren(...title(entry));
    document.title = `${counterfoil.className(entry, entry.label)}, ${entry.id} · Counterfoil report`;
    const same = [...counterfoil.histories.values()].filter((other) => other.id === entry.id && other.run === entry.run && other.key !== key);
    page.replaceChildren(
      ...body(entry), ...past(entry, entry.history), ...siblings(entry, same, (other) => `#${other.run}/${part(other)}/${other.key}`),
    );
  }

  function follow() {
    const asked = /^#(\d+)\/(\d+)\/([\w.-]+)$/.exec(location.hash);
    if (!asked) return tell("The address names no image. Open one from the gallery.");
    const [, run, number, key] = asked;
    if (counterfoil.histories.has(key)) show(key);
    else load(run, number, () => show(key));
  }

  document.addEventListener("DOMContentLoaded", () => {
    window.addEventListener("hashchange", follow);
    follow();
  });
})();
