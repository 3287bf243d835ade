"use strict";
// Pages work without this file. It keeps them fresh, copies ids, tells times as they pass, and keeps what one types.

const FRESH_MS = 300;
const STALE_MS = 10000;
const LOOK_MS = 30000;  // a lock is no event, and neither is somebody who looks at the same page
let asking = false;
let again = null;
let mark = "";
let pressed = false;
let missedSince = 0;

// --- fresh parts -----------------------------------------------------------------------------------------------------

// Fetch this page again, and bring the parts that are marked as live to what they are now.
async function refresh() {
  if (asking || pressed) { schedule(); return; }
  asking = true;
  missedSince ||= Date.now();
  try {
    const headers = { Accept: "text/html", ...(mark && { "If-None-Match": mark }) };
    const answer = await fetch(document.body.dataset.refresh ?? location.href, { headers, credentials: "same-origin", cache: "no-store" });
    if (answer.status === 401) { say("away", "your session has ended"); }
    if (answer.status !== 304 && !answer.ok) { return; }
    if (answer.ok) {
      mark = answer.headers.get("ETag") ?? "";
      show(new DOMParser().parseFromString(await answer.text(), "text/html"));
    }
    missedSince = 0;
    tellStale();
    poll();
  } catch (error) {
    // The server is away; the stream of events says when it is back.
  } finally {
    asking = false;
  }
}

function show(fresh) {
  for (const part of document.querySelectorAll("[data-live]")) {
    const next = fresh.getElementById(part.id);
    if (next !== null) { arrange(next); morph(part, next); }
    // Where nothing waited there was nothing to type in: the page that has something is another one.
    else if (part.dataset.else === "reload") { location.reload(); return; }
  }
  document.title = fresh.title;
  closeAnswered();
  tell();
}

function schedule() {
  again ??= setTimeout(() => { again = null; refresh(); }, FRESH_MS);
}

// A job that runs is looked at again and again.
function poll() {
  if (document.querySelector("[data-poll]")) { schedule(); }
}

// Nothing moves under a pressed button: a click would be lost, or be another's.
addEventListener("pointerdown", () => { pressed = true; });
for (const end of ["pointerup", "pointercancel"]) { addEventListener(end, () => { setTimeout(() => { pressed = false; }, 50); }); }

// --- the stream of events --------------------------------------------------------------------------------------------

function kindsHere() {
  const kinds = new Set();
  for (const part of document.querySelectorAll("[data-live]")) {
    for (const kind of part.dataset.live.split(" ")) { if (kind) { kinds.add(kind); } }
  }
  return kinds;
}

function say(state, text) {
  const place = document.getElementById("stream");
  if (place === null || place.textContent === text) { return; }
  place.dataset.state = state;
  place.textContent = text;
}

function heard(message, kinds) {
  if (message.state === "live") {
    say("live", "live");
    if (missedSince) { schedule(); }
  } else if (message.state === "away") {
    missedSince ||= Date.now();
    say("away", "reconnecting");
  }
  if (message.kinds?.some((kind) => kinds.has(kind))) {
    // Hidden tabs are quiet: they catch up when somebody looks.
    if (document.hidden) { missedSince ||= Date.now(); } else { schedule(); }
  }
}

function follow() {
  const kinds = kindsHere();
  if (kinds.size === 0 || document.getElementById("stream") === null) { return; }
  const { ns, now, worker } = document.body.dataset;
  say("", "connecting");
  if (typeof SharedWorker === "undefined") { followAlone(ns, now, kinds); return; }
  const port = new SharedWorker(worker, { name: "holdproof" }).port;
  port.onmessage = ({ data }) => heard(data, kinds);
  const join = () => port.postMessage({ ns, since: now });
  join();
  addEventListener("pagehide", () => port.postMessage({ leave: true }));
  addEventListener("pageshow", (event) => { if (event.persisted) { join(); schedule(); } });
}

// Browsers without shared workers: a stream of this tab's own.
function followAlone(ns, since, kinds) {
  const stream = new EventSource("/v1/events?ns=" + encodeURIComponent(ns) + "&since=" + encodeURIComponent(since));
  stream.onopen = () => heard({ state: "live" }, kinds);
  stream.onerror = () => heard({ state: "away" }, kinds);
  for (const kind of kinds) { stream.addEventListener(kind, () => heard({ kinds: [kind] }, kinds)); }
  addEventListener("pagehide", () => stream.close());
}

function tellStale() {
  const banner = document.getElementById("stale");
  if (banner === null) { return; }
  banner.hidden = document.hidden || !missedSince || Date.now() - missedSince < STALE_MS;
  if (!banner.hidden) {
    const at = new Date(missedSince).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
    const text = `Stale since ${at}: the server does not answer. What you see may have changed.`;
    if (banner.textContent !== text) { banner.textContent = text; }
  }
}

// --- times -----------------------------------------------------------------------------------------------------------

const SPANS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
const skew = Date.parse(document.body.dataset.now) - Date.now();

function since(seconds) {
  const [length, unit] = SPANS.find(([least]) => Math.abs(seconds) >= least) ?? [1, "s"];
  const text = Math.floor(Math.abs(seconds) / length) + " " + unit;
  return Math.abs(seconds) < 1 ? "now" : seconds > 0 ? text + " ago" : "in " + text;
}

// Under five minutes every second counts.
function countdown(seconds) {
  if (seconds <= 0) { return "passed"; }
  if (seconds >= 300) { return since(-seconds); }
  return "in " + Math.floor(seconds / 60) + ":" + String(Math.floor(seconds % 60)).padStart(2, "0");
}

function tell() {
  const now = Date.now() + skew;
  for (const each of document.querySelectorAll("time[datetime]:not(.exact)")) {
    const passed = (now - Date.parse(each.dateTime)) / 1000;
    if (Number.isNaN(passed)) { continue; }
    const due = each.closest("[data-countdown]");
    const text = due ? countdown(-passed) : since(passed);
    if (each.textContent !== text) { each.textContent = text; }
    if (due && passed > 0 && due.dataset.countdown === "") { due.dataset.countdown = "passed"; schedule(); }
  }
  const until = Date.parse(document.body.dataset.until ?? "");
  const warning = document.getElementById("session");
  if (warning !== null && !Number.isNaN(until)) { warning.hidden = until - now > 600000; }
  tellStale();
}

// --- answers: what one types stays, until it is answered --------------------------------------------------------------

const drafts = () => document.querySelectorAll("form[data-draft]");
const key = (form) => "holdproof draft " + document.body.dataset.ns + " " + form.dataset.draft;
const typed = (form) => [...form.elements].filter((each) => each.name && each.type !== "hidden" && each.type !== "submit");

function keep(form) {
  const values = typed(form).map((each) => [each.name, each.value, each.checked ?? false]);
  sessionStorage.setItem(key(form), JSON.stringify(values));
}

function restore(form) {
  const values = JSON.parse(sessionStorage.getItem(key(form)) ?? "[]");
  for (const [name, value, checked] of values) {
    for (const each of typed(form)) {
      if (each.name !== name) { continue; }
      if (each.type === "checkbox" || each.type === "radio") { if (each.value === value) { each.checked = checked; } }
      else if (each.value !== value) {
        each.value = value;
        each.closest("details")?.setAttribute("open", "");
      }
    }
  }
}

// Somebody else answered, or the time has passed: nothing can be sent any more, and the draft is no longer needed.
function closeAnswered() {
  const outcome = document.getElementById("outcome");
  if (outcome?.dataset.open !== "no") { return; }
  for (const form of drafts()) {
    form.dataset.closed = "";
    for (const each of form.elements) { each.disabled = true; }
    sessionStorage.removeItem(key(form));
  }
}

for (const form of drafts()) {
  restore(form);
  form.addEventListener("input", (event) => {
    // To change a value is to mean it.
    const part = event.target.name?.match(/^value-(\d+)$/);
    const tick = part && form.querySelector(`input[name="part"][value="${part[1]}"]`);
    if (tick) { tick.checked = true; }
    keep(form);
  });
}

// --- beginning -------------------------------------------------------------------------------------------------------

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button.copy");
  if (button === null) { return; }
  // Without TLS browsers have no clipboard for pages: the tick must not promise one.
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
  } catch (error) {
    return;
  }
  button.classList.add("copied");
  setTimeout(() => button.classList.remove("copied"), 1200);
});

document.documentElement.classList.add("js");
// Not by `scrollIntoView`: the next Tab would begin there, behind the link that skips all this.
const here = document.querySelector(".nav [aria-current]");
for (let box = here?.parentElement; box && box !== document.body; box = box.parentElement) {
  const [inner, outer] = [here.getBoundingClientRect(), box.getBoundingClientRect()];
  if (box.scrollWidth > box.clientWidth) box.scrollLeft += inner.left - outer.left - (box.clientWidth - inner.width) / 2;
  if (box.scrollHeight > box.clientHeight && inner.bottom > outer.bottom) box.scrollTop += inner.bottom - outer.bottom;
}
follow();
poll();
closeAnswered();
tell();
setInterval(tell, 1000);
setInterval(() => { if (!document.hidden && document.querySelector("[data-live]")) { schedule(); } }, LOOK_MS);
document.addEventListener("visibilitychange", () => { if (!document.hidden && missedSince) { schedule(); } });
