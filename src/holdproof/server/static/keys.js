"use strict";
// Keys: each does what a link or a button of the page does. This file is read before the page, so that no key is lost:
// what is pressed while a page is still being read, or is already being left, is kept for the page that comes.

const PLACES = { t: "/today", i: "/inbox", f: "/flows", a: "/agents", e: "/evidence", h: "/health" };
const WAITING = "holdproof keys";
const WAITING_MS = 10000;
let isReady = false;
let going = false;
let leftAt = -WAITING_MS;

// A dialog that was just closed has the focus until the page is drawn again; who types then means the page.
function editable(target) {
  const dialog = target.closest("dialog");
  return dialog !== null ? dialog.open : target.closest("input:not([type=checkbox]):not([type=radio]), textarea, select") !== null;
}

function press(name, isSeen) {
  const target = document.querySelector(`[data-key="${name}"]`);
  // A consequence is confirmed by a key that was pressed when it stood there, never by one from the page before.
  if (target === null || target.disabled || (!isSeen && target.matches("[data-consequence]"))) { return; }
  const details = target.closest("details");
  if (details) { details.open = true; }
  if (target.matches("a")) { leave(); }
  if (target.matches("input, textarea, select")) { target.focus(); target.scrollIntoView({ block: "center" }); } else { target.click(); }
}

function act(pressed, isSeen) {
  const letter = pressed.toLowerCase();
  if (going) {
    going = false;
    if (PLACES[letter]) { leave(); location.href = PLACES[letter]; }
  } else if (pressed === "?") {
    document.getElementById("help")?.showModal();
  } else if (pressed === "/") {
    openPalette();
  } else if (letter === "g") {
    going = true;
    setTimeout(() => { going = false; }, 1500);
  } else {
    press(letter, isSeen);
  }
}

function leave() { leftAt = performance.now(); }
const isLeaving = () => performance.now() - leftAt < WAITING_MS;
const type = (pressed) => { if (isReady && !isLeaving()) { act(pressed, true); } else { keepKey(pressed); } };
const isKey = (pressed) => pressed === "?" || pressed === "/" || (pressed.length === 1 && "jkaenrbhgtif".includes(pressed.toLowerCase()));

addEventListener("keydown", (event) => {
  if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") { event.preventDefault(); type("/"); return; }
  if ((event.metaKey || event.ctrlKey) && event.key === "Enter") { send(event.target.form); return; }
  if (event.metaKey || event.ctrlKey || event.altKey || event.repeat || editable(event.target) || !isKey(event.key)) { return; }
  event.preventDefault();
  type(event.key);
});

// --- keys that wait for their page -----------------------------------------------------------------------------------

function takeKeys() {
  const { at, keys } = JSON.parse(sessionStorage.getItem(WAITING) ?? "{}");
  sessionStorage.removeItem(WAITING);
  return Date.now() - at < WAITING_MS ? keys : [];
}

function keepKey(...keys) {
  sessionStorage.setItem(WAITING, JSON.stringify({ at: Date.now(), keys: [...takeKeys(), ...keys] }));
}

// One of them may lead to another page: the rest are meant for that one.
function pressWaiting() {
  isReady = true;
  const keys = takeKeys();
  while (keys.length && !isLeaving()) { act(keys.shift(), false); }
  if (keys.length) { keepKey(...keys); }
}

addEventListener("submit", (event) => { if (!event.defaultPrevented && event.target.method !== "dialog") { leave(); } });
addEventListener("beforeunload", leave);
addEventListener("pageshow", (event) => { if (event.persisted) { leftAt = -WAITING_MS; } });
document.addEventListener("DOMContentLoaded", pressWaiting);

// --- answers ---------------------------------------------------------------------------------------------------------

// The button that was pressed last with a key, or the first of the form.
let wantedButton = null;

function send(form) {
  const button = wantedButton?.form === form ? wantedButton : form?.querySelector("button:not([type=button])");
  button?.click();
}

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
