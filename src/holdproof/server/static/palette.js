"use strict";
// Searching everything, from any page.

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
