// A form whose button waits until as many boxes are ticked as it needs, and says so.
"use strict";
for (const form of document.querySelectorAll("form[data-least]")) {
  const button = form.querySelector("button[type=submit]");
  if (!button) continue;
  const least = Number(form.dataset.least);
  const most = Number(form.dataset.most);
  const label = button.textContent;
  const count = () => {
    const ticked = form.querySelectorAll("input[type=checkbox]:checked").length;
    button.disabled = ticked < least || ticked > most;
    button.textContent = button.disabled ? `Tick ${least} to ${most} to compare` : label;
  };
  form.addEventListener("change", count);
  window.addEventListener("pageshow", count); // a browser that goes back brings the ticks with it
  count();
}
