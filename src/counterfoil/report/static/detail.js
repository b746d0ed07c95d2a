// One image in full: its pictures, what was said of each, and the way the search took. Its address is #image=KEY.
"use strict";

(() => {
  const { make, picture, className, percent, decimal } = counterfoil;
  const SVG = "http://www.w3.org/2000/svg";
  const PICTURES = [
    ["clean", "Original", ""],
    ["reconstruction", "Reconstruction", "the generator alone"],
    ["made", "Made", "what was kept"],
    ["search", "Difference", "made minus reconstruction"],
    ["generator", "Difference", "reconstruction minus original"],
  ];
  let current = null;

  function table(head, rows) {
    const header = head.length ? make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, text)))) : "";
    const body = rows.map(([first, ...rest]) =>
      make("tr", {}, make("th", { scope: "row" }, first), ...rest.map((text) => make("td", {}, make("bdi", {}, text)))),
    );
    const whole = make("table", {}, header, make("tbody", {}, ...body));
    return make("div", { class: "scroll", tabindex: "0" }, whole);
  }

  function why(entry) {
    const oracle = entry.oracle.reconstruction;
    const sees = oracle ? `it sees ${className(entry, oracle[0])}, and gives the label a score of ${decimal(oracle[2])}` : "no verdict is recorded";
    const [seen, score] = entry.rejected ?? [-1, 0];
    const rejected = `${seen < 0 ? "it named no class" : `it saw ${className(entry, seen)}`}, and gave the label a score of ${decimal(score)}`;
    const reasons = {
      unvalidated: `Rejected: the oracle does not see the class in the plain reconstruction (${sees}). Nothing was made.`,
      oracle: `The oracle rejected the picture after step ${entry.steps + 1} (${rejected}); the one after step ${entry.steps} was kept.`,
      budget: `All ${entry.steps} steps were taken, and the oracle accepted each.`,
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
    return table(["picture", "model says", "confidence", "for the true class", "oracle", "oracle sees", "oracle's score"], rows);
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

  function past(entry, history) {
    const parts = [make("h3", {}, "The way it took")];
    if (history.loss.length) {
      if (history.loss.length > 1) parts.push(pathChart(history));
      const rows = history.loss.map((loss, step) => [
        step === 0 ? "0 (reconstruction)" : String(step),
        decimal(loss),
        `${className(entry, history.predicted[step])} (${history.predicted[step] === entry.label ? "right" : "wrong"})`,
        decimal(history.score[step]),
      ]);
      parts.push(table(["step", "model's loss", "model says", "oracle's score"], rows));
    } else {
      parts.push(make("p", { class: "quiet" }, "No step was taken."));
    }
    if (history.others.length) {
      parts.push(make("h3", {}, "Asked later"));
      const rows = history.others.map(({ who, role, picture: name, said }) =>
        role === "model"
          ? [who, "model", name, `${className(entry, said[0])} (${said[1] ? "right" : "wrong"})`, percent(said[2])]
          : [who, "oracle", name, `${verdict(said[1])}, sees ${className(entry, said[0])}`, decimal(said[2])],
      );
      parts.push(table(["who", "role", "picture", "said", "confidence or score"], rows));
    }
    parts.push(make("h3", {}, "Record"));
    parts.push(
      table([], [["source", history.source || "–"], ["SHA-256 of the pixels", history.sha256 || "–"], ["seed", history.seed], ["model calls", String(history.queries)]]),
    );
    return parts;
  }

  function siblings(entry) {
    const same = counterfoil.entries.filter((other) => other.id === entry.id && other.key !== entry.key);
    if (!same.length) return [];
    const list = make("ul", { class: "siblings" });
    for (const other of same) {
      const text = `${counterfoil.runs.get(other.run).label}, ${other.arm}: ${other.outcome}`;
      const link = make("a", { href: `#image=${other.key}` }, make("bdi", {}, text));
      list.append(make("li", {}, link));
    }
    return [make("h3", {}, "The same image elsewhere in this report"), list];
  }

  function fill(entry) {
    const name = className(entry, entry.label);
    const pictures = make("div", { class: "pictures" });
    for (const [key, title, text] of PICTURES) {
      const caption = make("figcaption", {}, make("b", {}, title), text);
      pictures.append(make("figure", {}, picture(entry, key, title, { large: true }), caption));
    }
    const outcome = make("span", { class: "outcome", "data-outcome": entry.outcome }, entry.outcome);
    document.getElementById("detail-title").replaceChildren(make("bdi", {}, name), " ", outcome);
    const run = counterfoil.runs.get(entry.run);
    const origin = make("p", { class: "detail-id" }, make("bdi", {}, entry.id), " · ", make("bdi", {}, run.label), ` · ${entry.arm} arm`);
    const later = make("div", {});
    document.getElementById("detail-body").replaceChildren(
      origin, make("p", { class: "why" }, why(entry)), pictures,
      make("h3", {}, "What was said"), saidTable(entry), later, ...siblings(entry),
    );
    load(entry, () => {
      if (current === entry) later.replaceChildren(...past(entry, counterfoil.histories.get(entry.key)));
    });
    const visible = counterfoil.visible();
    const place = visible.indexOf(entry);
    document.getElementById("detail-place").textContent = place < 0 ? "" : `${place + 1} of ${visible.length}`;
    document.getElementById("detail-back").disabled = place <= 0;
    document.getElementById("detail-on").disabled = place < 0 || place === visible.length - 1;
  }

  function load(entry, then) {
    if (counterfoil.histories.has(entry.key)) return then();
    const script = make("script", { src: `data/history-${entry.run}-${String(entry.part).padStart(3, "0")}.js` });
    script.addEventListener("load", then);
    document.head.append(script);
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
    const visible = counterfoil.visible();
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
      if (event.target.closest(".scroll")) return; // arrows scroll a wide table there
      if (event.key === "ArrowLeft") go(-1);
      if (event.key === "ArrowRight") go(1);
    });
    window.addEventListener("hashchange", follow);
    follow();
  });
})();
