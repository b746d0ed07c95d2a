// Buttons that copy what stands beside them.
"use strict";
for (const button of document.querySelectorAll("button[data-copies]")) {
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copies);
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = "Copied";
    } catch {
      // No clipboard without https: mark the text, so that it can be copied by hand.
      getSelection().selectAllChildren(source);
    }
  });
}
