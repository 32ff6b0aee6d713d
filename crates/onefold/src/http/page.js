// Asks for the page once a second and puts in what has changed. Without it the page is right, and stands still.
"use strict";
const gone = document.getElementById("gone");
const find = () => document.getElementById("find");
let timer;

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
  clearTimeout(timer);
  const wanted = find()?.value ?? "";
  try {
    const answer = await fetch(wanted ? `/?find=${encodeURIComponent(wanted)}` : "/", { cache: "no-store", signal: AbortSignal.timeout(8000) });
    const text = await answer.text();
    // What came for fewer letters is late.
    if (wanted === (find()?.value ?? "")) {
      show(text);
    }
    document.body.classList.toggle("old", !answer.ok);
    gone.hidden = true;
  } catch {
    if (gone.hidden) {
      gone.textContent = `No answer since ${new Date().toLocaleTimeString()}: these are the last figures.`;
    }
    gone.hidden = false;
    document.body.classList.add("old");
  }
  clearTimeout(timer);
  timer = setTimeout(update, 1000);
}

// Without the script the field's form asks for the page with what was found.
document.addEventListener("submit", (event) => event.preventDefault());
document.addEventListener("input", (event) => event.target === find() && update());
timer = setTimeout(update, 1000);
