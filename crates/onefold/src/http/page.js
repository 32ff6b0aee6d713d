// Asks for the page once a second and puts in what has changed. Without it the page is right, and stands still.
"use strict";
const gone = document.getElementById("gone");

function show(text) {
  const fresh = new DOMParser().parseFromString(text, "text/html");
  for (const part of document.querySelectorAll("[data-live]")) {
    const other = fresh.getElementById(part.id);
    if (other && other.outerHTML !== part.outerHTML) {
      part.replaceWith(document.importNode(other, true));
    }
  }
  document.title = fresh.title;
}

async function update() {
  try {
    const answer = await fetch("/", { cache: "no-store", signal: AbortSignal.timeout(8000) });
    show(await answer.text());
    document.body.classList.toggle("old", !answer.ok);
    gone.hidden = true;
  } catch {
    if (gone.hidden) {
      gone.textContent = `No answer since ${new Date().toLocaleTimeString()}: these are the last figures.`;
    }
    gone.hidden = false;
    document.body.classList.add("old");
  }
  setTimeout(update, 1000);
}

setTimeout(update, 1000);
