"use strict";
// Makes a part of the page equal to a fresh one, and touches only what differs: what has the focus, is selected, was
// scrolled or is being typed in stays as it is.

function morph(old, fresh) {
  if (old.isEqualNode(fresh)) { return; }
  syncAttributes(old, fresh);
  // A time tells itself how long ago it is; the text the server wrote is older.
  if (old.matches("time[datetime]:not(.exact)") && old.title === fresh.title && old.childNodes.length) { return; }
  if (old.matches("textarea")) { syncTextarea(old, fresh); return; }
  morphChildren(old, fresh);
}

function syncAttributes(old, fresh) {
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !isOurs(old, name)) { old.removeAttribute(name); }
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value && !isOurs(old, name)) { old.setAttribute(name, value); }
  }
}

// What the reader or this page's script did is no difference: an opened detail, a typed value, a tick.
function isOurs(element, name) {
  if (name === "open") { return true; }
  if (name === "disabled") { return element.closest("[data-closed]") !== null; }
  if (name === "value") { return element.value !== element.defaultValue; }
  return name === "checked" && element.checked !== element.defaultChecked;
}

function syncTextarea(old, fresh) {
  if (old.value === old.defaultValue && old.defaultValue !== fresh.defaultValue) { old.value = fresh.defaultValue; }
  if (old.defaultValue !== fresh.defaultValue) { old.defaultValue = fresh.defaultValue; }
}

function morphChildren(old, fresh) {
  const parked = new Map();
  let here = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const match = findMatch(here, wanted, parked);
    if (match === null) {
      old.insertBefore(document.importNode(wanted, true), here);
      continue;
    }
    if (match === here) {
      here = here.nextSibling;
    } else if (match.parentNode !== old || match.contains(document.activeElement) === false) {
      old.insertBefore(match, here);
    } else {
      // Moving an element takes the focus from it: what stands before it makes way instead.
      while (here !== match) {
        const passed = here;
        here = here.nextSibling;
        if (passed.id) { parked.set(passed.id, passed); }
        passed.remove();
      }
      here = match.nextSibling;
    }
    if (match.nodeType === Node.ELEMENT_NODE) { morph(match, wanted); }
    else if (match.nodeValue !== wanted.nodeValue) { match.nodeValue = wanted.nodeValue; }
  }
  while (here !== null) {
    const rest = here;
    here = here.nextSibling;
    rest.remove();
  }
}

// The same element by its id; without one, the next of its kind.
function findMatch(here, wanted, parked) {
  if (wanted.id) {
    for (let each = here; each !== null; each = each.nextSibling) {
      if (each.id === wanted.id && each.nodeName === wanted.nodeName) { return each; }
    }
    return parked.get(wanted.id) ?? null;
  }
  if (here !== null && here.nodeType === wanted.nodeType && here.nodeName === wanted.nodeName && !here.id) { return here; }
  return null;
}
