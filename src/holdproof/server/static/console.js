"use strict";
// Pages work without this file. It keeps them fresh, copies ids, and tells times as they pass.

const FRESH_MS = 400;
let asked = false;
let waiting = null;

// Fetch this page again, and exchange the parts that are marked as live. What somebody is typing in stays.
async function refresh() {
  if (asked) { schedule(); return; }
  asked = true;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin" });
    if (!answer.ok) { return; }
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      const next = fresh.getElementById(part.id);
      const busy = part.contains(document.activeElement) && document.activeElement.matches("input, textarea, select");
      if (next === null || busy || next.innerHTML === part.dataset.shown) { continue; }
      const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
      const shown = next.innerHTML;
      part.replaceWith(document.importNode(next, true));
      const here = document.getElementById(next.id);
      here.dataset.shown = shown;
      if (focused) { document.getElementById(focused)?.focus(); }
    }
    document.title = fresh.title;
    poll();
  } catch (error) {
    // The server is away; the stream of events says when it is back.
  } finally {
    asked = false;
  }
}

function schedule() {
  waiting ??= setTimeout(() => { waiting = null; refresh(); }, FRESH_MS);
}

// A job that runs is looked at again and again.
function poll() {
  if (document.querySelector("[data-poll]")) { schedule(); }
}

function follow() {
  const kinds = new Set();
  for (const part of document.querySelectorAll("[data-live]")) {
    for (const kind of part.dataset.live.split(" ")) { if (kind) { kinds.add(kind); } }
  }
  const state = document.getElementById("stream");
  if (kinds.size === 0 || state === null) { return; }
  const stream = new EventSource("/v1/events?ns=" + encodeURIComponent(document.body.dataset.ns));
  stream.onopen = () => { state.dataset.state = "live"; state.textContent = "live"; schedule(); };
  stream.onerror = () => { state.dataset.state = "away"; state.textContent = "reconnecting"; };
  for (const kind of kinds) { stream.addEventListener(kind, schedule); }
  addEventListener("pagehide", () => stream.close());
}

const SPANS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
const skew = Date.parse(document.body.dataset.now) - Date.now();

function tell() {
  const now = Date.now() + skew;
  for (const each of document.querySelectorAll("time[datetime]:not(.exact)")) {
    const passed = (now - Date.parse(each.dateTime)) / 1000;
    if (Number.isNaN(passed)) { continue; }
    const [length, unit] = SPANS.find(([least]) => Math.abs(passed) >= least) ?? [1, "s"];
    const text = Math.floor(Math.abs(passed) / length) + " " + unit;
    each.textContent = Math.abs(passed) < 1 ? "now" : passed > 0 ? text + " ago" : "in " + text;
  }
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button.copy");
  if (button === null) { return; }
  await navigator.clipboard?.writeText(button.dataset.copy);
  button.classList.add("copied");
  setTimeout(() => button.classList.remove("copied"), 1200);
});

document.documentElement.classList.add("js");
document.querySelector(".nav [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
follow();
poll();
setInterval(tell, 10000);
setInterval(() => { if (!document.hidden && document.querySelector("[data-live]")) { schedule(); } }, 30000);  // a lock is no event
