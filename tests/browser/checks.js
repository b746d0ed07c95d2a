// What is wrong with a page as the browser sees it: a function that answers with a list of complaints.
() => {
  const problems = [];
  const shown = (e) => e.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const say = (e) => `${e.tagName.toLowerCase()}${e.id ? "#" + e.id : ""}.${e.getAttribute("class") ?? ""} ${(e.textContent ?? "").trim().slice(0, 30)}`;
  const nameOf = (e) => {
    const by = e.getAttribute("aria-labelledby");
    if (by) return by.split(/\s+/).map((id) => document.getElementById(id)?.textContent ?? "").join(" ").trim();
    const own = [...(e.labels ?? [])].map((label) => label.textContent).join(" ").trim();
    return (e.getAttribute("aria-label") ?? "").trim() || own || (e.tagName === "IMG" ? e.alt : e.textContent).trim();
  };
  if (!document.documentElement.lang) problems.push("no language");
  if (!document.title.trim()) problems.push("no title");
  if (document.querySelectorAll("main").length !== 1) problems.push("not one main");
  if (document.querySelectorAll("h1").length !== 1) problems.push("not one h1");
  let level = 0;
  for (const heading of document.querySelectorAll("h1, h2, h3, h4")) {
    if (!shown(heading)) continue;
    const now = Number(heading.tagName[1]);
    if (now > level + 1 && level) problems.push(`heading jumps from ${level} to ${now}: ${say(heading)}`);
    level = now;
  }
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  if (new Set(ids).size !== ids.length) problems.push("an id twice");
  for (const e of document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0'], [role='region'], dialog[open]")) {
    if (shown(e) && !nameOf(e)) problems.push(`no name: ${say(e)}`);
  }
  for (const e of document.querySelectorAll("img")) if (!e.hasAttribute("alt") || !e.alt.trim()) problems.push(`no alternative text: ${say(e)}`);
  for (const e of document.querySelectorAll("svg")) {
    if (e.getAttribute("aria-hidden") !== "true" && !e.getAttribute("aria-label")) problems.push(`a drawing without words: ${say(e)}`);
  }
  for (const e of document.querySelectorAll("table")) {
    if (shown(e) && !e.querySelector("th[scope]")) problems.push(`a table without headings: ${say(e)}`);
  }
  for (const e of document.querySelectorAll("*")) {
    const by = ["aria-labelledby", "aria-describedby"].flatMap((key) => (e.getAttribute(key) ?? "").split(/\s+/).filter(Boolean));
    for (const id of by) if (!document.getElementById(id)) problems.push(`points to nothing: ${say(e)} ${id}`);
  }
  for (const e of document.querySelectorAll(".scroll, .steps")) {
    if (e.scrollWidth > e.clientWidth + 1 && shown(e) && e.tabIndex < 0) problems.push(`scrolls, but not by keyboard: ${say(e)}`);
  }
  if (document.documentElement.scrollWidth > innerWidth + 1) problems.push(`wider than the window: ${document.documentElement.scrollWidth}`);

  // Contrast of every piece of text with what is behind it.
  const parse = (text) => {
    const found = /rgba?\(([\d.]+), ([\d.]+), ([\d.]+)(?:, ([\d.]+))?\)/.exec(text);
    return found ? [Number(found[1]), Number(found[2]), Number(found[3]), found[4] === undefined ? 1 : Number(found[4])] : null;
  };
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (e) => {
    for (let at = e; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour && colour[3] > 0.99) return colour;
    }
    return parse(getComputedStyle(document.body).backgroundColor) ?? [255, 255, 255, 1];
  };
  const seen = new Set();
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !shown(e) || e.closest(":disabled") || e.tagName === "OPTION" || e.tagName === "NOSCRIPT") continue;
    const style = getComputedStyle(e);
    const svg = e instanceof SVGElement;
    if (svg && /heat-text/.test(e.getAttribute("class") ?? "")) continue; // on a shade of its own, checked with the colours
    const colour = parse(svg ? style.fill : style.color);
    if (!colour) continue;
    const [high, low] = [light(colour), light(behind(e))].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) seen.add(`contrast ${ratio.toFixed(2)}: ${say(e)}`);
  }
  return [...problems, ...seen];
}
