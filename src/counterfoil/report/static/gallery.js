// The gallery: holds what the data scripts hand over, filters it and shows one page at a time.
"use strict";

const counterfoil = (() => {
  const PAGE = 24;
  const SMALL = 128; // pictures up to this side are enlarged without smoothing
  const runs = new Map();
  const entries = [];
  const histories = new Map();
  let visible = [];
  let page = 0;
  let exact = ""; // a class asked for from the table of classes, whole; typing a word ends it

  const percent = (share) => (share === null || share === undefined ? "–" : `${(100 * share).toFixed(1)} %`);
  const decimal = (value) => (value === null || value === undefined ? "–" : value.toFixed(3));

  // Elements are made, never parsed from text, so that class names and ids can hold anything.
  function make(name, attributes = {}, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }

  function className(entry, index) {
    return runs.get(entry.run).classes[index] ?? "another class";
  }

  function add(data) {
    runs.set(data.run, data);
    for (const entry of data.entries) entries.push({ ...entry, run: data.run, mark: entry.key.split("-")[1] });
    delete data.entries;
  }

  function history(data) {
    for (const [key, value] of Object.entries(data)) histories.set(key, value);
  }

  function picture(entry, name, title, { large = false } = {}) {
    const paths = entry.pictures[name];
    if (!paths) {
      const reason = entry.missing.includes(name) ? "picture missing" : name === "made" ? "not made" : "none";
      return make("div", { class: "gap" }, reason);
    }
    const image = make("img", {
      src: large ? paths[0] : paths[1] ?? paths[0],
      alt: `${title} of ${className(entry, entry.label)}, image ${entry.id}`,
      loading: large ? "eager" : "lazy",
      decoding: "async",
    });
    const settle = () => image.classList.toggle("crisp", image.naturalWidth <= SMALL && !paths[1]);
    image.addEventListener("load", settle);
    return image;
  }

  function said(entry) {
    const model = entry.model.made ?? entry.model.reconstruction;
    const oracle = entry.oracle.made ?? entry.oracle.reconstruction;
    const line = make("p", { class: "card-said" });
    if (entry.outcome === "unvalidated") {
      const sees = oracle ? className(entry, oracle[0]) : "something else";
      line.append("Rejected: the oracle sees ", make("b", {}, make("bdi", {}, sees)), ` in the reconstruction (${decimal(oracle?.[2])} for the label).`);
      return line;
    }
    if (model) line.append("Model says ", make("b", {}, make("bdi", {}, className(entry, model[0]))), `, ${percent(model[2])}. `);
    if (oracle) line.append(`Oracle ${decimal(oracle[2])}. `);
    line.append(`${entry.steps} ${entry.steps === 1 ? "step" : "steps"}, ended by ${entry.ending}.`);
    return line;
  }

  function card(entry) {
    const name = className(entry, entry.label);
    const open = make("button", { type: "button", class: "card-open", title: name, "data-key": entry.key }, make("bdi", {}, name));
    const strip = make("div", { class: "strip" });
    for (const [key, title] of [["clean", "original"], ["reconstruction", "recon\u00ADstruction"], ["made", "made"], ["search", "difference"]]) {
      strip.append(make("figure", {}, picture(entry, key, title.replace("\u00AD", "")), make("figcaption", {}, title)));
    }
    const head = make("div", { class: "card-head" }, make("h3", { class: "card-class" }, open));
    head.append(make("span", { class: "outcome", "data-outcome": entry.outcome }, entry.outcome));
    const item = make("li", { class: "card" }, head, strip, said(entry));
    if (runs.size > 1) item.append(make("p", { class: "card-said" }, make("bdi", {}, runs.get(entry.run).label), entry.arm === "guided" ? "" : `, ${entry.arm}`));
    else if (entry.arm !== "guided") item.append(make("p", { class: "card-said" }, `${entry.arm} arm`));
    return item;
  }

  const collator = new Intl.Collator(undefined, { numeric: true });
  const ORDERS = {
    mistakes: (entry) => (entry.model.made && !entry.model.made[1] ? -entry.model.made[2] : 2),
    steps: (entry) => (entry.outcome === "unvalidated" ? Infinity : entry.steps),
    doubt: (entry) => (entry.oracle.made ?? entry.oracle.reconstruction)?.[2] ?? Infinity,
  };

  function chosen() {
    const value = (name) => document.querySelector(`#gallery-filters [name="${name}"]`)?.value ?? "";
    const word = value("class").trim().toLocaleLowerCase();
    const fits = (name) => (exact !== "" ? name === exact : word === "" || name.toLocaleLowerCase().includes(word));
    const found = entries.filter(
      (entry) =>
        (value("run") === "" || String(entry.run) === value("run")) &&
        (value("outcome") === "" || entry.outcome === value("outcome")) &&
        (value("ending") === "" || entry.ending === value("ending")) &&
        (value("arm") === "" || entry.arm === value("arm")) &&
        fits(className(entry, entry.label)),
    );
    if (value("order") === "name") return found.sort((a, b) => collator.compare(a.id, b.id));
    const rank = ORDERS[value("order")];
    if (!rank) return found;
    return found
      .map((entry) => [rank(entry), entry])
      .sort(([a], [b]) => (a === b ? 0 : a < b ? -1 : 1))
      .map(([, entry]) => entry);
  }

  function draw() {
    const pages = Math.max(1, Math.ceil(visible.length / PAGE));
    page = Math.min(Math.max(page, 0), pages - 1);
    const cards = visible.slice(page * PAGE, (page + 1) * PAGE).map(card);
    const list = document.getElementById("cards");
    list.replaceChildren(...cards);
    if (!cards.length) list.append(make("li", { class: "empty" }, "No image fits these filters."));
    const count = document.getElementById("gallery-count");
    count.textContent = visible.length === entries.length ? `${entries.length} trials` : `${visible.length} of ${entries.length} trials`;
    document.getElementById("pager").hidden = pages < 2;
    document.getElementById("page-place").textContent = `Page ${page + 1} of ${pages}`;
    document.getElementById("page-back").disabled = page === 0;
    document.getElementById("page-on").disabled = page === pages - 1;
  }

  function filter() {
    visible = chosen();
    page = 0;
    draw();
  }

  function turn(by) {
    page += by;
    draw();
    document.getElementById("gallery-title").scrollIntoView();
  }

  function suggestClasses() {
    const names = new Set([...runs.values()].flatMap((run) => run.classes));
    document.getElementById("class-names").replaceChildren(...[...names].slice(0, 2000).map((name) => make("option", { value: name })));
  }

  function show(button) {
    const set = (name, value) => {
      const field = document.querySelector(`#gallery-filters [name="${name}"]`);
      if (field) field.value = value;
    };
    for (const name of ["outcome", "ending", "order"]) set(name, "");
    set("class", button.dataset.class);
    set("run", button.dataset.run);
    exact = button.dataset.class;
    filter();
    document.getElementById("gallery-title").scrollIntoView();
  }

  document.addEventListener("DOMContentLoaded", () => {
    for (const button of document.querySelectorAll(".show-class")) button.addEventListener("click", () => show(button));
    const filters = document.getElementById("gallery-filters");
    if (!filters) return;
    suggestClasses();
    entries.sort((a, b) => (a.mark === b.mark ? a.run - b.run : a.mark < b.mark ? -1 : 1)); // mixed, with each image's runs together
    filters.addEventListener("input", (event) => {
      if (event.target.name === "class") exact = "";
      filter();
    });
    document.getElementById("gallery-reset").addEventListener("click", () => {
      for (const field of filters.querySelectorAll("input")) field.value = "";
      for (const field of filters.querySelectorAll("select")) field.selectedIndex = 0;
      exact = "";
      filter();
    });
    document.getElementById("page-back").addEventListener("click", () => turn(-1));
    document.getElementById("page-on").addEventListener("click", () => turn(1));
    filter();
  });

  return { add, history, histories, entries, runs, make, picture, className, percent, decimal, visible: () => visible };
})();
