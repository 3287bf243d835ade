"use strict";
// What the pages of the API add for whoever has JavaScript: a search while one types, and trying what only reads.

const search = document.querySelector("[data-filter]");

function filter() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const section of document.querySelectorAll(".docs-index")) {
    let here = 0;
    for (const row of section.querySelectorAll("li")) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      here += row.hidden ? 0 : 1;
    }
    section.hidden = here === 0 || words.length === 0;
    count += here;
  }
  document.getElementById("cards").hidden = words.length > 0;
  document.getElementById("hits").textContent = `${count} method${count === 1 ? "" : "s"}`;
  document.getElementById("none").hidden = count > 0;
}

// A list that the server has narrowed is not narrowed again: its other methods are not on the page.
if (search !== null && search.value === "") { search.addEventListener("input", filter); }

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, textarea") !== null;
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    if (search === null) { location.assign("/docs"); } else { search.focus(); }
  }
});

async function call(form) {
  const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
  const place = form.parentElement.querySelector("pre");
  place.hidden = false;
  place.textContent = "…";
  try {
    const answer = await fetch(`${form.getAttribute("action")}?${query}`, { headers: { Accept: "application/json" } });
    const text = await answer.text();
    let shown = text;
    try { shown = JSON.stringify(JSON.parse(text), null, 2); } catch { /* not JSON: as it came */ }
    place.textContent = `${answer.status} ${answer.statusText}\n\n${shown.slice(0, 50_000)}`;
  } catch (error) {
    place.textContent = `The server did not answer: ${error.message}`;
  }
}

// Browsers that do not open a fold by themselves for the address that leads into it.
function unfold() {
  const place = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const fold = place === null ? null : place.closest(".fold");
  if (fold !== null && !fold.open) { fold.open = true; place.scrollIntoView(); }
}
addEventListener("hashchange", unfold);
unfold();

for (const part of document.querySelectorAll(".try")) { part.hidden = false; }
for (const form of document.querySelectorAll("[data-try]")) {
  form.addEventListener("submit", (event) => { event.preventDefault(); call(form); });
}
