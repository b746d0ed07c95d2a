// What all pages of a report share: the data that scripts hand over, and how elements, names and pictures are made from it.
"use strict";

const counterfoil = (() => {
  const SMALL = 128; // pictures up to this side are enlarged without smoothing
  const runs = new Map();
  const entries = [];
  const histories = new Map();

  const percent = (share) => (share === null || share === undefined ? "–" : `${(100 * share).toFixed(1)} %`);
  const decimal = (value) => (value === null || value === undefined ? "–" : value.toFixed(3));

  // Elements are made, never parsed from text, so that class names and ids can hold anything.
  function make(name, attributes = {}, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }

  // A class of the run by its number; one that only the model knows comes by its name.
  function className(entry, index) {
    return typeof index === "string" ? index : runs.get(entry.run).classes[index] ?? "another class";
  }

  function name(data) {
    runs.set(data.run, data);
  }

  function add(data) {
    for (const entry of data.entries) {
      entry.run = data.run;
      entry.mark = entry.key.split("-")[1];
      entries.push(entry);
    }
  }

  function history(data) {
    for (const entry of data.entries) histories.set(entry.key, { ...entry, run: data.run });
  }

  // What a model said of an entry's pictures; without a name, the model of the entry's run.
  function saidBy(entry, model) {
    return model === "" || model === runs.get(entry.run).model ? entry.model : entry.scored[model];
  }

  // What became of the image in the eyes of a model; null if it was not asked. Rejections are the same for all.
  function outcomeFor(entry, model) {
    const said = saidBy(entry, model);
    if (!said) return null;
    if (said === entry.model || !entry.pictures.made) return entry.outcome;
    if (entry.outcome === "unvalidated" || entry.outcome === "rejected") return entry.outcome;
    if (!said.made) return null;
    if (said.made[1]) return "kept";
    const before = said.reconstruction ?? said.clean;
    return before && !before[1] ? "wrong before" : "fooled";
  }

  function picture(entry, key, title, { large = false } = {}) {
    const paths = entry.pictures[key];
    if (!paths) {
      const reason = entry.missing.includes(key) ? "picture missing" : key === "made" ? "not made" : "none";
      return make("div", { class: "gap" }, reason);
    }
    const image = make("img", {
      src: large ? paths[0] : paths[1] ?? paths[0],
      alt: `${title} of ${className(entry, entry.label)}, image ${entry.id}`,
      loading: large ? "eager" : "lazy",
      decoding: "async",
    });
    image.addEventListener("load", () => image.classList.toggle("crisp", image.naturalWidth <= SMALL && !paths[1]));
    return image;
  }

  return { runs, entries, histories, name, add, history, make, className, percent, decimal, picture, saidBy, outcomeFor };
})();
