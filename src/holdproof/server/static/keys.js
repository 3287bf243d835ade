"use strict";
// Keys, and searching everything. Each key does what a link or a button of the page does.

const PLACES = { t: "/today", i: "/inbox", f: "/flows", a: "/agents", e: "/evidence", h: "/health" };
let going = false;

const editable = (target) => target.closest("input:not([type=checkbox]):not([type=radio]), textarea, select, dialog") !== null;
const press = (name) => {
  const target = document.querySelector(`[data-key="${name}"]`);
  if (target === null || target.disabled) { return; }
  const details = target.closest("details");
  if (details) { details.open = true; }
  if (target.matches("input, textarea, select")) { target.focus(); target.scrollIntoView({ block: "center" }); } else { target.click(); }
};

addEventListener("keydown", (event) => {
  const letter = event.key.toLowerCase();
  if ((event.metaKey || event.ctrlKey) && letter === "k") { event.preventDefault(); openPalette(); return; }
  if ((event.metaKey || event.ctrlKey) && event.key === "Enter") { event.target.form?.requestSubmit(defaultButton(event.target)); return; }
  if (event.metaKey || event.ctrlKey || event.altKey || editable(event.target)) { return; }
  if (going) {
    going = false;
    if (PLACES[letter]) { location.href = PLACES[letter]; }
    return;
  }
  if (event.key === "?") { document.getElementById("help")?.showModal(); return; }
  if (event.key === "/") { event.preventDefault(); openPalette(); return; }
  if (letter === "g") { going = true; setTimeout(() => { going = false; }, 1500); return; }
  if ("jkaerbh".includes(letter) && !event.repeat && document.querySelector(`[data-key="${letter}"]`)) {
    event.preventDefault();
    press(letter);
  }
});

// The button that was pressed last with a key, or the first of the form.
let wantedButton = null;
const defaultButton = (target) => (wantedButton?.form === target.form ? wantedButton : undefined);

// An answer that needs a reason asks for it here, and not on another page.
document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-reason]");
  if (button === null) { return; }
  const reason = button.form.elements.comment;
  if (reason.value.trim() === "") {
    event.preventDefault();
    wantedButton = button;
    reason.required = true;
    reason.focus();
    reason.reportValidity();
  }
});

// --- search everything -----------------------------------------------------------------------------------------------

const palette = document.getElementById("palette");
const hits = document.getElementById("hits");
let searching = null;

function openPalette() {
  if (palette === null || palette.open) { return; }
  palette.showModal();
  palette.querySelector("input").select();
}

document.querySelector("[data-palette]")?.addEventListener("click", (event) => { event.preventDefault(); openPalette(); });
palette?.addEventListener("click", (event) => { if (event.target === palette) { palette.close(); } });

palette?.querySelector("input").addEventListener("input", (event) => {
  clearTimeout(searching);
  searching = setTimeout(async () => {
    const answer = await fetch("/search?q=" + encodeURIComponent(event.target.value), { credentials: "same-origin" });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("results");
    hits.replaceChildren(...(fresh ? [...fresh.childNodes].map((each) => document.importNode(each, true)) : []));
  }, 150);
});

palette?.addEventListener("keydown", (event) => {
  const links = [...hits.querySelectorAll("a")];
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (event.key === "Enter" && event.target.matches("input") && links.length) { event.preventDefault(); links[0].click(); }
  if (!step || !links.length) { return; }
  event.preventDefault();
  const at = links.indexOf(document.activeElement);
  links[Math.max(0, Math.min(links.length - 1, at + step))].focus();
});
