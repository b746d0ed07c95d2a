// The gallery: data that scripts hand over, filters over it, and the view of one image, whose address is #image=KEY.
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

  // The answers of a model about an entry's images; without a name, the model of the entry's run.
  function saidBy(entry, model) {
    return model === "" || model === runs.get(entry.run).model ? entry.model : entry.scored[model];
  }

  // What became of the image for a model; null if it was not asked. Rejections are the same for all.
  function outcomeFor(entry, model) {
    const said = saidBy(entry, model);
    if (!said) return null;
    if (said === entry.model || !entry.images.made) return entry.outcome;
    if (entry.outcome === "unvalidated" || entry.outcome === "rejected") return entry.outcome;
    if (!said.made) return null;
    if (said.made[1]) return "kept";
    const before = said.reconstruction ?? said.clean;
    return before && !before[1] ? "already wrong" : "fooled";
  }

  function picture(entry, key, title, { large = false } = {}) {
    const paths = entry.images[key];
    if (!paths) {
      const reason = entry.missing.includes(key) ? "image missing" : key === "made" ? "not made" : "none";
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

counterfoil.view = (() => {
  const { make, picture, className, percent, decimal } = counterfoil;
  const SVG = "http://www.w3.org/2000/svg";
  const PICTURES = [
    ["clean", "Original", ""],
    ["reconstruction", "Reconstruction", "the generator alone"],
    ["made", "Made", "what was kept"],
    ["search", "Difference", "what was changed on purpose"],
    ["generator", "Difference", "reconstruction minus original"],
  ];

  const heading = (text) => make("h3", { class: "section" }, text);

  function table(title, head, rows) {
    const header = head.length ? make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, text)))) : "";
    const body = rows.map(([first, ...rest]) =>
      make("tr", {}, make("th", { scope: "row" }, make("bdi", {}, first)), ...rest.map((text) => make("td", {}, make("bdi", {}, text)))),
    );
    const whole = make("table", {}, header, make("tbody", {}, ...body));
    return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, whole);
  }

  function why(entry) {
    const oracle = entry.oracle.made ?? entry.oracle.reconstruction;
    const sees = oracle ? `it sees ${className(entry, oracle[0])}, and gives the label a score of ${decimal(oracle[2])}` : "no verdict is recorded";
    const [seen, score] = entry.rejected ?? [-1, 0];
    const rejected = `${seen < 0 ? "it named no class" : `it saw ${className(entry, seen)}`}, and gave the label a score of ${decimal(score)}`;
    const reasons = {
      rejected: `Rejected: ${entry.reason || "no reason is recorded"}`,
      made: entry.outcome === "unvalidated" ? `Rejected: the oracle does not see the class in the generated image (${sees}).` : "The image was made and passed every check.",
      unvalidated: `Rejected: the oracle does not see the class in the plain reconstruction (${sees}). Nothing was made.`,
      oracle: `The oracle rejected the image after step ${entry.steps + 1} (${rejected}); the one after step ${entry.steps} was kept.`,
      budget: `All ${entry.steps} steps were taken, and the oracle rejected none.`,
      fooled: `The model was fooled after step ${entry.steps}, and the run was told to stop there.`,
      queries: `The allowed model calls were spent after ${entry.steps} kept steps.`,
    };
    return reasons[entry.ending] ?? "";
  }

  function verdict(keeps) {
    return keeps === null ? "undecided" : keeps ? "accepts" : "rejects";
  }

  function saidTable(entry) {
    const rows = [["clean", "original"], ["reconstruction", "reconstruction"], ["made", "made"]]
      .filter(([name]) => entry.model[name] || entry.oracle[name])
      .map(([name, title]) => {
        const model = entry.model[name];
        const oracle = entry.oracle[name];
        return [
          title,
          model ? `${className(entry, model[0])} (${model[1] ? "right" : "wrong"})` : "–",
          percent(model?.[2]),
          percent(model?.[3]),
          oracle ? verdict(oracle[1]) : "–",
          oracle ? className(entry, oracle[0]) : "–",
          decimal(oracle?.[2]),
        ];
      });
    return table("Answers", ["image", "model", "confidence", "for the true class", "oracle", "oracle sees", "oracle's score"], rows);
  }

  function drawn(name, attributes, text = "") {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.textContent = text;
    return element;
  }

  // Two small charts above each other: the model's loss and the oracle's score after each step.
  function pathChart(past) {
    const width = matchMedia("(max-width: 40rem)").matches ? 340 : 720; // so that its text keeps its size on a phone
    const [height, left, right] = [250, 52, 20];
    const last = Math.max(past.loss.length - 1, 1);
    const across = (step) => left + (step / last) * (width - left - right);
    const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, class: "path", "aria-hidden": "true" });
    const panels = [
      [past.loss, "model's loss", "guided", 20, Math.max(...past.loss, 1e-9)],
      [past.score, "oracle's score for the label", "random", 138, Math.max(...past.score, 1e-9)],
    ];
    for (const [values, title, colour, top, most] of panels) {
      const up = (value) => top + 76 * (1 - Math.max(value ?? 0, 0) / most);
      for (const value of [0, most]) {
        svg.append(drawn("line", { x1: left, x2: width - right, y1: up(value), y2: up(value), class: "grid" }));
        svg.append(drawn("text", { x: left - 8, y: up(value) + 4, "text-anchor": "end", class: "chart-text faint" }, Number(value.toPrecision(3)).toString()));
      }
      const places = values.map((value, step) => [across(step), up(value)]);
      svg.append(drawn("polyline", { points: places.map((each) => each.join()).join(" "), class: `curve ${colour}` }));
      for (const [x, y] of places) svg.append(drawn("circle", { cx: x, cy: y, r: 3, class: `mark ${colour}` }));
      svg.append(drawn("text", { x: left, y: top - 8, class: `chart-text ${colour}` }, title));
    }
    const every = Math.max(1, Math.ceil(last / (width > 400 ? 12 : 6)));
    for (let step = 0; step < past.loss.length; step += every) {
      svg.append(drawn("text", { x: across(step), y: 236, "text-anchor": "middle", class: "chart-text faint" }, String(step)));
    }
    return svg;
  }

  // The steps as a strip: a cell a step, between the image it began with and the one that was kept.
  function stepStrip(entry, history) {
    const strip = make("ol", { class: "steps", tabindex: "0", "aria-label": "Step by step" });
    const last = history.loss.length - 1;
    history.predicted.forEach((predicted, step) => {
      const right = predicted === entry.label;
      const cell = make("li", { class: right ? "step right" : "step wrong" });
      if (step === 0) cell.append(picture(entry, "reconstruction", "reconstruction"));
      else if (step === last) cell.append(picture(entry, "made", "made"));
      else cell.append(make("div", { class: "between", "aria-hidden": "true" }, right ? "\u2713" : "\u2715"));
      cell.append(
        make("b", {}, step === 0 ? "start" : `step ${step}`),
        make("span", {}, `${right ? "right" : "wrong"}: `, make("bdi", {}, className(entry, predicted))),
        make("span", { class: "quiet" }, `oracle ${decimal(history.score[step])}`),
      );
      strip.append(cell);
    });
    if (entry.rejected) {
      const [seen, score] = entry.rejected;
      const cell = make("li", { class: "step stopped" }, make("div", { class: "between", "aria-hidden": "true" }, "\u2298"));
      const sees = seen < 0 ? "no class named" : className(entry, seen);
      cell.append(make("b", {}, `step ${last + 1}`), make("span", {}, "rejected: ", make("bdi", {}, sees)), make("span", { class: "quiet" }, `oracle ${decimal(score)}`));
      strip.append(cell);
    }
    return strip;
  }

  function words(entry, history) {
    const rows = [["caption", history.caption], ["made from", history.prompt], ["factor", entry.factor], ["value", entry.value], ["variant", history.variant]]
      .filter(([, text]) => text);
    if (history.quality) rows.push(["fit of the change to the words", decimal(history.quality)]);
    return rows.length ? [heading("In words"), table("In words", [], rows)] : [];
  }

  function past(entry, history) {
    const parts = words(entry, history);
    if (history.loss.length) {
      parts.push(heading("Step by step"), stepStrip(entry, history));
      if (history.loss.length > 1) parts.push(pathChart(history));
      const rows = history.loss.map((loss, step) => [
        step === 0 ? "0 (reconstruction)" : String(step),
        decimal(loss),
        `${className(entry, history.predicted[step])} (${history.predicted[step] === entry.label ? "right" : "wrong"})`,
        decimal(history.score[step]),
      ]);
      const whole = table("The steps as a table", ["step", "model's loss", "model", "oracle's score"], rows);
      parts.push(make("details", {}, make("summary", {}, "The same as a table"), whole));
    } else if (entry.ending !== "made" && entry.ending !== "rejected") {
      parts.push(heading("Step by step"), make("p", { class: "quiet" }, "No step was taken."));
    }
    if (history.others.length) {
      parts.push(heading("Other models and oracles"));
      const rows = history.others.map(({ who, role, picture: name, said }) => [
        who,
        role,
        name === "clean" ? "original" : name,
        ...(role === "model"
          ? [`${className(entry, said[0])} (${said[1] ? "right" : "wrong"})`, percent(said[2])]
          : [`${verdict(said[1])}, sees ${className(entry, said[0])}`, decimal(said[2])]),
      ]);
      parts.push(table("Other models and oracles", ["who", "role", "image", "answer", "confidence or score"], rows));
    }
    parts.push(heading("Record"));
    const record = [["source", history.source || "–"], ["SHA-256 of the pixels", history.sha256 || "–"], ["seed", history.seed], ["model calls", String(history.queries)]];
    parts.push(table("Record", [], record));
    return parts;
  }

  // Others of the same image, which `address` leads to.
  function siblings(entry, same, address) {
    if (!same.length) return [];
    const list = make("ul", { class: "siblings" });
    for (const other of same) {
      const what = [counterfoil.runs.get(other.run).label, other.factor ? `${other.factor} ${other.value ?? ""}`.trim() : other.arm];
      const link = make("a", { href: address(other) }, make("bdi", {}, `${what.join(", ")}: ${other.outcome}`));
      list.append(make("li", {}, link));
    }
    return [heading("The same image elsewhere in this report"), list];
  }

  function title(entry) {
    return [make("bdi", {}, className(entry, entry.label)), " ", make("span", { class: "outcome", "data-outcome": entry.outcome }, entry.outcome)];
  }

  // The body without its history, which may come later.
  function body(entry) {
    const pictures = make("div", { class: "images" });
    for (const [key, text, more] of PICTURES) {
      if (!entry.images[key] && !entry.missing.includes(key) && key !== "made") continue;
      const caption = make("figcaption", {}, make("b", {}, text), more);
      pictures.append(make("figure", {}, picture(entry, key, text, { large: true }), caption));
    }
    const run = counterfoil.runs.get(entry.run);
    const origin = make("p", { class: "detail-id" }, make("bdi", {}, entry.id), " · ", make("bdi", {}, run.label), ` · ${entry.arm}`);
    return [origin, make("p", { class: "why" }, why(entry)), pictures, heading("Answers"), saidTable(entry)];
  }

  const part = (entry) => String(entry.part).padStart(3, "0");

  function load(run, number, then) {
    const script = make("script", { src: `data/history-${run}-${number}.js` });
    script.addEventListener("load", then);
    script.addEventListener("error", then);
    document.head.append(script);
  }

  return { title, body, past, siblings, part, load };
})();

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
      const where = entry.oracle.made ? "the generated image" : "the reconstruction";
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

  // A filter that a table of the page, or an address with #show=…, asks for, as in class=boot&run=2.
  function show(text) {
    const wanted = new URLSearchParams(text);
    for (const name of ["outcome", "ending", "order", "factor", "model", "class", "run"]) {
      const field = document.querySelector(`#gallery-filters [name="${name}"]`);
      if (field) field.value = wanted.get(name) ?? "";
    }
    exact = wanted.get("class") ?? "";
    filter();
    document.getElementById("gallery-title").scrollIntoView();
  }

  document.addEventListener("DOMContentLoaded", () => {
    for (const button of document.querySelectorAll(".show")) button.addEventListener("click", () => show(button.dataset.show));
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
    if (location.hash.startsWith("#show=")) show(location.hash.slice("#show=".length));
    else filter();
  });

  return { visible: () => visible };
})();

(() => {
  const { make } = counterfoil;
  const { title, body, past, siblings, part, load } = counterfoil.view;
  let current = null;

  function fill(entry) {
    document.getElementById("detail-title").replaceChildren(...title(entry));
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
