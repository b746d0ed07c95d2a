// Judging images: one at a time, by keys or buttons. The next image is shown once the server has kept the vote.
"use strict";
const ORDER = ["present", "single", "usable"];
const VALUES = { yes: true, no: false, unsure: null };
const address = `/review/${document.body.dataset.review}`;
const at = (id) => document.getElementById(id);

let item = null; // the image on the screen
let answers = {}; // to its questions so far
let waiting = false; // for the server
let later = 0; // the next request for more images

async function ask(path, body) {
  const headers = { "Content-Type": "application/json" };
  const answer = await fetch(address + path, { method: "POST", headers, body: JSON.stringify(body) });
  const content = await answer.json().catch(() => ({}));
  if (answer.ok) return content;
  const error = new Error(content.error || `The server answered ${answer.status}.`);
  error.final = answer.status < 500; // asking again would not help
  throw error;
}

// Asks until the server has answered. Votes may be sent twice: the server takes the same vote once.
async function insist(path, body) {
  if (waiting) return;
  waiting = true;
  document.body.classList.add("waiting");
  try {
    for (let pause = 500; ; pause = Math.min(2 * pause, 8000)) {
      try {
        const turn = await ask(path, body);
        at("trouble").hidden = true;
        show(turn, path);
        return;
      } catch (error) {
        at("trouble").hidden = false;
        at("trouble").textContent = error.final ? error.message : "Not saved yet: the server does not answer. Trying again …";
        if (error.final) return;
        await new Promise((resolve) => setTimeout(resolve, pause));
      }
    }
  } finally {
    waiting = false;
    document.body.classList.remove("waiting");
  }
}

function show(turn, path) {
  item = turn.item;
  answers = {};
  at("work").hidden = item === null;
  at("finished").hidden = item !== null;
  at("foot").hidden = false;
  at("skip").disabled = item === null;
  at("comment").value = "";
  at("note").hidden = !turn.note;
  at("note").textContent = turn.note;
  at("bar").max = turn.images || 1;
  at("bar").value = turn.done;
  at("counts").textContent = `${turn.mine} judged by you · ${turn.done} of ${turn.images} finished`;
  const done = { "/votes": "Saved.", "/skips": "Passed.", "/undo": "Taken back." }[path] || "";
  if (item === null) {
    at("status").textContent = `${done} All done.`;
    clearTimeout(later);
    later = setTimeout(() => item === null && insist("/next", {}), 15000);
    return;
  }
  at("image").src = item.image;
  at("class-name").textContent = item.class_name;
  if (turn.answer) {
    for (const question of ORDER) if (turn.answer[question] !== null) answers[question] = turn.answer[question];
    at("comment").value = turn.answer.comment;
  }
  paint(turn.answer ? "present" : undefined);
  at("status").textContent = `${done} ${at("question").textContent}`;
}

// The first question without an answer.
function current() {
  return ORDER.find((question) => !(question in answers));
}

function paint(active = current()) {
  for (const button of document.querySelectorAll("button[data-question]")) {
    const { question, answer } = button.dataset;
    button.setAttribute("aria-pressed", String(question in answers && answers[question] === VALUES[answer]));
  }
  for (const question of ORDER) at(`ask-${question}`).classList.toggle("active", question === active);
}

function say(question, answer) {
  if (!item || waiting) return;
  // Answering the first question begins anew, so that a vote that was taken back can be given differently.
  if (question === "present") answers = {};
  answers[question] = VALUES[answer];
  paint();
  if (answers.present === false || answers.present === null || current() === undefined) send();
}

function send() {
  const { present = null, single = null, usable = null } = answers;
  insist("/votes", { item: item.id, present, single, usable, comment: at("comment").value });
}

function all() {
  if (!item || waiting) return;
  answers = { present: true, single: true, usable: true };
  paint();
  send();
}

const skip = () => item && insist("/skips", { item: item.id });
const undo = () => insist("/undo", {});
// What the keys answer: the question that is lit.
const lit = () => ORDER.find((question) => at(`ask-${question}`).classList.contains("active")) || "present";
const KEYS = {
  y: () => say(lit(), "yes"),
  n: () => say(lit(), "no"),
  u: () => lit() === "present" && say("present", "unsure"),
  a: all,
  s: skip,
  z: undo,
  c: () => at("comment").focus(),
};

document.addEventListener("keydown", (event) => {
  if (event.target === at("comment")) {
    if (event.key === "Escape" || (event.key === "Enter" && !event.shiftKey)) {
      event.preventDefault();
      at("comment").blur();
    }
    return;
  }
  const act = KEYS[event.key.toLowerCase()];
  if (!act || event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  event.preventDefault();
  act();
});

for (const button of document.querySelectorAll("button[data-question]")) {
  button.addEventListener("click", () => say(button.dataset.question, button.dataset.answer));
}
at("all").addEventListener("click", all);
at("skip").addEventListener("click", skip);
at("undo").addEventListener("click", undo);
at("again").addEventListener("click", () => insist("/next", {}));
at("image").addEventListener("error", () => {
  at("trouble").hidden = false;
  at("trouble").textContent = "This image cannot be shown; pass on it and tell whoever invited you.";
});
insist("/next", {});
