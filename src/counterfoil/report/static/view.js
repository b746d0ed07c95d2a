// One image in full: its pictures, what was said of each, and the way the search took. Used by the gallery and by its own page.
"use strict";

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

  const LEVEL = document.body.dataset.section ?? "h3"; // on its own page an image's sections stand right below the title
  const heading = (text) => make(LEVEL, { class: "section" }, text);

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
      made: entry.outcome === "unvalidated" ? `Rejected: the oracle does not see the class in the made picture (${sees}).` : "The picture was made, and every check let it pass.",
      unvalidated: `Rejected: the oracle does not see the class in the plain reconstruction (${sees}). Nothing was made.`,
      oracle: `The oracle rejected the picture after step ${entry.steps + 1} (${rejected}); the one after step ${entry.steps} was kept.`,
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
    return table("What was said", ["picture", "model says", "confidence", "for the true class", "oracle", "oracle sees", "oracle's score"], rows);
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

  // The way as a strip: a cell a step, between the picture it began with and the one that was kept.
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
      parts.push(heading("The way it took"), stepStrip(entry, history));
      if (history.loss.length > 1) parts.push(pathChart(history));
      const rows = history.loss.map((loss, step) => [
        step === 0 ? "0 (reconstruction)" : String(step),
        decimal(loss),
        `${className(entry, history.predicted[step])} (${history.predicted[step] === entry.label ? "right" : "wrong"})`,
        decimal(history.score[step]),
      ]);
      const whole = table("The way as a table", ["step", "model's loss", "model says", "oracle's score"], rows);
      parts.push(make("details", {}, make("summary", {}, "The same as a table"), whole));
    } else if (entry.ending !== "made" && entry.ending !== "rejected") {
      parts.push(heading("The way it took"), make("p", { class: "quiet" }, "No step was taken."));
    }
    if (history.others.length) {
      parts.push(heading("Asked later"));
      const rows = history.others.map(({ who, role, picture: name, said }) => [
        who,
        role,
        name === "clean" ? "original" : name,
        ...(role === "model"
          ? [`${className(entry, said[0])} (${said[1] ? "right" : "wrong"})`, percent(said[2])]
          : [`${verdict(said[1])}, sees ${className(entry, said[0])}`, decimal(said[2])]),
      ]);
      parts.push(table("Asked later", ["who", "role", "picture", "said", "confidence or score"], rows));
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
    const pictures = make("div", { class: "pictures" });
    for (const [key, text, more] of PICTURES) {
      if (!entry.pictures[key] && !entry.missing.includes(key) && key !== "made") continue;
      const caption = make("figcaption", {}, make("b", {}, text), more);
      pictures.append(make("figure", {}, picture(entry, key, text, { large: true }), caption));
    }
    const run = counterfoil.runs.get(entry.run);
    const origin = make("p", { class: "detail-id" }, make("bdi", {}, entry.id), " · ", make("bdi", {}, run.label), ` · ${entry.arm}`);
    return [origin, make("p", { class: "why" }, why(entry)), pictures, heading("What was said"), saidTable(entry)];
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
