// The gallery: filters what the data scripts handed over and shows one page of cards at a time.
"use strict";

counterfoil.gallery = (() => {
  const { runs, entries, make, className, percent, decimal, picture, saidBy, outcomeFor } = counterfoil;
  const PAGE = 24;
  const STRIP = [["clean", "original"], ["reconstruction", "recon\u00ADstruction"], ["made", "made"], ["search", "difference"]];
  let visible = [];
  let page = 0;
  let exact = ""; // a class asked for from the table of classes, whole; typing a word ends it

  const value = (name) => document.querySelector(`#gallery-filters [name="${name}"]`)?.value ?? "";

  function said(entry, asked, outcome) {
    const told = saidBy(entry, asked) ?? {};
    const model = told.made ?? told.reconstruction ?? told.clean;
    const oracle = entry.oracle.made ?? entry.oracle.reconstruction;
    const line = make("p", { class: "card-said" });
    if (outcome === "rejected") {
      line.append(`Rejected: ${entry.reason || "no reason is recorded"}`);
      return line;
    }
    if (outcome === "unvalidated") {
      const sees = oracle ? className(entry, oracle[0]) : "something else";
      const where = entry.oracle.made ? "the made picture" : "the reconstruction";
      line.append("Rejected: the oracle sees ", make("b", {}, make("bdi", {}, sees)), ` in ${where} (${decimal(oracle?.[2])} for the label).`);
      return line;
    }
    if (model) line.append(`${asked || "Model"} says `, make("b", {}, make("bdi", {}, className(entry, model[0]))), `, ${percent(model[2])}. `);
    if (oracle) line.append(`Oracle ${decimal(oracle[2])}. `);
    if (entry.ending !== "made") line.append(`${entry.steps} ${entry.steps === 1 ? "step" : "steps"}, ended by ${entry.ending}.`);
    return line;
  }

  function card(entry) {
    const name = className(entry, entry.label);
    const asked = value("model");
    const outcome = outcomeFor(entry, asked);
    const open = make("button", { type: "button", class: "card-open", title: name, "data-key": entry.key }, make("bdi", {}, name));
    const strip = make("div", { class: "strip" });
    for (const [key, title] of STRIP) {
      if (entry.arm === "painted" && key !== "made") continue;
      strip.append(make("figure", {}, picture(entry, key, title.replace("\u00AD", "")), make("figcaption", {}, title)));
    }
    const head = make("div", { class: "card-head" }, make("h3", { class: "card-class" }, open));
    head.append(make("span", { class: "outcome", "data-outcome": outcome }, outcome));
    const item = make("li", { class: "card" }, head, strip, said(entry, asked, outcome));
    const more = [];
    if (entry.factor) more.push(entry.value ? `${entry.factor}: ${entry.value}` : entry.factor);
    if (runs.size > 1) more.push(runs.get(entry.run).label);
    if (entry.arm === "random") more.push("random arm");
    if (more.length) item.append(make("p", { class: "card-said" }, ...more.flatMap((text, index) => [index ? " · " : "", make("bdi", {}, text)])));
    return item;
  }

  const collator = new Intl.Collator(undefined, { numeric: true });
  const ORDERS = {
    mistakes: (entry, told) => (told.made && !told.made[1] ? -told.made[2] : 2),
    steps: (entry) => (entry.outcome === "unvalidated" ? Infinity : entry.steps),
    doubt: (entry) => (entry.oracle.made ?? entry.oracle.reconstruction)?.[2] ?? Infinity,
  };

  function chosen() {
    const wanted = Object.fromEntries(["run", "outcome", "ending", "arm", "factor", "model", "order"].map((name) => [name, value(name)]));
    const word = value("class").trim().toLocaleLowerCase();
    const fits = (name) => (exact !== "" ? name === exact : word === "" || name.toLocaleLowerCase().includes(word));
    const found = entries.filter((entry) => {
      if (wanted.run !== "" && String(entry.run) !== wanted.run) return false;
      if (wanted.ending !== "" && entry.ending !== wanted.ending) return false;
      if (wanted.arm !== "" && entry.arm !== wanted.arm) return false;
      if (wanted.factor !== "" && entry.factor !== wanted.factor) return false;
      const outcome = outcomeFor(entry, wanted.model);
      return outcome !== null && (wanted.outcome === "" || outcome === wanted.outcome) && fits(className(entry, entry.label));
    });
    if (wanted.order === "name") return found.sort((a, b) => collator.compare(a.id, b.id));
    const rank = ORDERS[wanted.order];
    if (!rank) return found;
    return found
      .map((entry) => [rank(entry, saidBy(entry, wanted.model)), entry])
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
    const all = `${entries.length.toLocaleString("en")} trials`;
    const count = document.getElementById("gallery-count");
    count.textContent = visible.length === entries.length ? all : `${visible.length.toLocaleString("en")} of ${all}`;
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

  const all = (pick) => [...new Set([...runs.values()].flatMap(pick))];

  // Filters whose choices are in the data, not in the page; one without a choice goes away.
  function offer(name, choices, own = "") {
    const field = document.querySelector(`#gallery-filters [name="${name}"]`);
    field.replaceChildren(make("option", { value: "" }, own || "all"), ...choices.map((each) => make("option", { value: each }, each)));
    field.closest("label").hidden = choices.length === 0;
  }

  function show(button) {
    const set = (name, text) => {
      const field = document.querySelector(`#gallery-filters [name="${name}"]`);
      if (field) field.value = text;
    };
    for (const name of ["outcome", "ending", "order", "factor", "model"]) set(name, "");
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
    document.getElementById("class-names").replaceChildren(...all((run) => run.classes).slice(0, 2000).map((name) => make("option", { value: name })));
    const scored = all((run) => run.scored);
    const tested = all((run) => [run.model]).filter(Boolean);
    offer("model", scored.length ? [...new Set([...tested, ...scored])] : [], tested.length ? "the one tested" : "no model");
    offer("factor", [...new Set(entries.map((entry) => entry.factor).filter(Boolean))].sort());
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

  return { visible: () => visible };
})();
